#include "src/base/text.h"
#include "src/passes/pass.h"

namespace dc::passes {

using base::ErrorKind;
using base::Result;

#define DC_PASS(name, function, needs, gives, summary) \
  Result<Change> function(ir::Step&, PassContext&);
#include "src/passes/passes.def"
#undef DC_PASS

std::span<const Pass> all_passes() {
  static constexpr Pass kPasses[] = {
#define DC_PASS(name, function, needs, gives, summary) \
  {name, summary, ir::Stage::needs, ir::Stage::gives, function},
#include "src/passes/passes.def"
#undef DC_PASS
  };
  return kPasses;
}

const Pass* find_pass(std::string_view name) {
  for (const Pass& pass : all_passes()) {
    if (pass.name == name) return &pass;
  }
  return nullptr;
}

Result<Change> run_passes(ir::Step& step, std::span<const Pass* const> passes, PassContext& context,
                          const PassDone& done) {
  if (base::Status status = ir::verify(step, step.stage); !status.ok()) {
    return std::move(status).add_context("before the first pass");
  }
  Change total = Change::No;
  for (const Pass* pass : passes) {
    const std::string where = "in pass " + std::string(pass->name);
    if (step.stage != pass->needs) {
      return base::Status(ErrorKind::Usage, "DC2601",
                          "pass " + std::string(pass->name) +
                              " cannot run here: the step is at another stage; "
                              "run the passes in the order `dcc passes` lists");
    }
    Result<Change> change = pass->run(step, context);
    if (!change.ok()) return std::move(change).status().add_context(where);
    step.stage = pass->gives;
    if (base::Status status = ir::verify(step, step.stage); !status.ok()) {
      return std::move(status).add_context("after pass " + std::string(pass->name));
    }
    if (*change == Change::Yes) total = Change::Yes;
    if (done) done(*pass);
  }
  return total;
}

Result<std::vector<const Pass*>> parse_passes(std::string_view list) {
  std::vector<const Pass*> passes;
  std::vector<std::string_view> names;
  for (const Pass& pass : all_passes()) names.emplace_back(pass.name);
  while (!list.empty()) {
    const size_t comma = list.find(',');
    const std::string_view name = list.substr(0, comma);
    const Pass* pass = find_pass(name);
    if (!pass) {
      return base::Status(ErrorKind::Usage, "DC2602",
                          "there is no pass '" + std::string(name) + "'" +
                              base::did_you_mean(name, names) + "; `dcc passes` lists them");
    }
    passes.push_back(pass);
    list = comma == std::string_view::npos ? "" : list.substr(comma + 1);
  }
  return passes;
}

}  // namespace dc::passes
