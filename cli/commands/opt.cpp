#include <cstdio>
#include <iostream>
#include <iterator>

#include "cli/commands/commands.h"
#include "src/base/file.h"
#include "src/cost/analytic.h"
#include "src/passes/pass.h"

namespace dc::cli {

base::Status run_opt(const OptArguments& arguments) {
  std::string text;
  if (arguments.file == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    DC_ASSIGN_OR_RETURN(text, base::read_file(arguments.file));
  }
  DC_ASSIGN_OR_RETURN(ir::Step step, ir::parse(text));
  DC_ASSIGN_OR_RETURN(const std::vector<const passes::Pass*> chain,
                      passes::parse_passes(arguments.passes));
  const cost::AnalyticCost cost(1);
  passes::Options options;
  options.zero = arguments.zero;
  std::vector<passes::Remark> remarks;
  passes::PassContext context{cost, options, remarks};
  base::Result<passes::Change> change = passes::run_passes(step, chain, context);
  for (const passes::Remark& remark : remarks)
    std::fprintf(stderr, "%s: %s\n", remark.pass.c_str(), remark.text.c_str());
  if (!change.ok()) return std::move(change).status();
  std::cout << ir::print(step);
  return {};
}

base::Status run_passes_list() {
  for (const passes::Pass& pass : passes::all_passes()) {
    std::printf("%-20.*s %.*s\n", static_cast<int>(pass.name.size()), pass.name.data(),
                static_cast<int>(pass.summary.size()), pass.summary.data());
  }
  return {};
}

}  // namespace dc::cli
