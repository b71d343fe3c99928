#include <cstdio>

#include "cli/commands/commands.h"
#include "runtime/plan/file.h"
#include "runtime/report/explain.h"
#include "runtime/verify/verify.h"

namespace dc::cli {

base::Status run_explain(const ExplainArguments& arguments) {
  DC_ASSIGN_OR_RETURN(const runtime::plan::Loaded loaded, runtime::verify::load(arguments.plan));
  DC_ASSIGN_OR_RETURN(const runtime::report::Explanation explanation,
                      runtime::report::explain(loaded.plan, arguments.what));
  const std::string text = arguments.json ? runtime::report::to_json(loaded.plan, explanation)
                                          : runtime::report::to_text(loaded.plan, explanation);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return {};
}

}  // namespace dc::cli
