#include <cstdio>

#include "cli/commands/commands.h"
#include "runtime/plan/file.h"
#include "runtime/plan/memory_report.h"

namespace dc::cli {

base::Status run_inspect(const InspectArguments& arguments) {
  DC_ASSIGN_OR_RETURN(const runtime::plan::Loaded loaded, runtime::plan::load(arguments.plan));
  std::string text;
  if (arguments.as == "text") text = runtime::plan::to_text(loaded.plan);
  if (arguments.as == "json") text = runtime::plan::to_json(loaded.plan);
  if (arguments.as == "memory") text = runtime::plan::memory_report(loaded.plan);
  if (arguments.as == "summary") text = runtime::plan::summary(loaded.plan);
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (text.empty() || text.back() != '\n') std::fputc('\n', stdout);
  return {};
}

base::Status run_verify(const VerifyArguments& arguments) {
  DC_ASSIGN_OR_RETURN(const runtime::plan::Loaded loaded, runtime::plan::load(arguments.plan));
  std::printf(
      "%s: levels 0 (digest), 1 (structure) and 2 (meaning) hold; level 3 (distribution) is not "
      "available yet\n",
      arguments.plan.c_str());
  std::printf("digest %s\n", loaded.digest.c_str());
  return {};
}

}  // namespace dc::cli
