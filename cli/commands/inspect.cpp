#include <cstdio>

#include "cli/commands/commands.h"
#include "runtime/exec/trace_reader.h"
#include "runtime/page/page.h"
#include "runtime/plan/file.h"
#include "runtime/report/decisions.h"
#include "runtime/report/memory_report.h"
#include "runtime/report/report.h"
#include "runtime/verify/verify.h"
#include "src/base/file.h"

namespace dc::cli {

namespace {

base::Result<std::string> timeline(const InspectArguments& arguments,
                                   const runtime::plan::Loaded& loaded) {
  if (arguments.trace.empty()) return runtime::page::timeline_page(loaded, nullptr);
  DC_ASSIGN_OR_RETURN(const runtime::exec::TraceFile trace,
                      runtime::exec::read_trace(arguments.trace, loaded));
  return runtime::page::timeline_page(loaded, &trace);
}

base::Result<std::string> shown(const InspectArguments& arguments,
                                const runtime::plan::Loaded& loaded) {
  if (arguments.as == "timeline") return timeline(arguments, loaded);
  std::string text;
  if (arguments.as == "text") text = runtime::report::to_text(loaded.plan);
  if (arguments.as == "json") text = runtime::report::to_json(loaded.plan);
  if (arguments.as == "memory") text = runtime::report::memory_report(loaded.plan);
  if (arguments.as == "decisions") text = runtime::report::decisions_report(loaded.plan);
  if (arguments.as == "decisions-json") text = runtime::report::decisions_json(loaded.plan);
  if (arguments.as == "summary") text = runtime::report::summary(loaded.plan);
  if (arguments.as == "summary" && arguments.verbose)
    text += runtime::report::identity(loaded.plan);
  if (text.empty() || text.back() != '\n') text += '\n';
  return text;
}

}  // namespace

base::Status run_inspect(const InspectArguments& arguments) {
  if (!arguments.trace.empty() && arguments.as != "timeline") {
    return base::Status(base::ErrorKind::Usage, "DC2805",
                        "a trace is shown by --as=timeline only; leave out " + arguments.trace);
  }
  if (!arguments.output.empty()) {
    const std::string inputs[] = {arguments.plan, arguments.trace};
    DC_RETURN_IF_ERROR(base::check_output(arguments.output, inputs));
  }
  DC_ASSIGN_OR_RETURN(const runtime::plan::Loaded loaded, runtime::verify::load(arguments.plan));
  DC_ASSIGN_OR_RETURN(const std::string text, shown(arguments, loaded));
  if (!arguments.output.empty()) return base::write_file_atomically(arguments.output, text);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return {};
}

base::Status run_verify(const VerifyArguments& arguments) {
  DC_ASSIGN_OR_RETURN(const runtime::plan::Loaded loaded, runtime::verify::load(arguments.plan));
  std::printf(
      "%s: levels 0 (digest), 1 (structure), 2 (memory, shapes, effects) and 3 (order between "
      "streams, on every rank) hold\n"
      "not checked: that the numbers are right, such as the scale of gradients, or that each is "
      "reduced and applied once\n",
      arguments.plan.c_str());
  std::printf("digest %s\n", loaded.digest.c_str());
  return {};
}

}  // namespace dc::cli
