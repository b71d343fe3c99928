#include <cstdio>
#include <iostream>
#include <iterator>

#include "cli/commands/commands.h"
#include "src/base/file.h"
#include "src/cost/analytic.h"
#include "src/passes/pass_manager.h"
#include "src/search/chains.h"

namespace dc::cli {

base::Status run_opt(const OptArguments& arguments) {
  std::string text;
  if (arguments.file == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    DC_ASSIGN_OR_RETURN(text, base::read_file(arguments.file));
  }
  DC_ASSIGN_OR_RETURN(ir::Step step, ir::parse(text));
  DC_ASSIGN_OR_RETURN(const passes::Chain chain, passes::parse_passes(arguments.passes));
  const cost::AnalyticCost cost(1);
  const passes::Options options;
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
    const std::string name = std::string(pass.name) + (pass.argument.empty() ? "" : "[=N]");
    std::printf("%-30s %.*s\n", name.c_str(), static_cast<int>(pass.summary.size()),
                pass.summary.data());
    if (pass.argument.empty()) continue;
    std::printf("%-30s N: %.*s\n", "", static_cast<int>(pass.argument.size()),
                pass.argument.data());
  }
  for (const auto chains :
       {search::named_chains(), search::baseline_chains(), search::fusion_chains()}) {
    for (const search::NamedChain& chain : chains) {
      std::printf("--chain %-22s %.*s\n", std::string(chain.name).c_str(),
                  static_cast<int>(chain.summary.size()), chain.summary.data());
    }
  }
  return {};
}

}  // namespace dc::cli
