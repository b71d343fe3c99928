#include "src/passes/pass_manager.h"

#include <algorithm>

#include "src/base/text.h"
#include "src/ir/enum_words.h"

namespace dc::passes {

using base::ErrorKind;
using base::Result;
using base::Status;

#define DC_PASS(name, function, needs, gives, argument, follows, conflicts, summary) \
  Result<Change> function(ir::Step&, const PassContext&);
#include "src/passes/passes.def"
#undef DC_PASS

namespace {

constexpr Pass kPasses[] = {
#define DC_PASS(name, function, needs, gives, argument, follows, conflicts, summary) \
  {name, summary, ir::Stage::needs, ir::Stage::gives, argument, follows, conflicts, function},
#include "src/passes/passes.def"
#undef DC_PASS
};

Status misuse(const char* code, const std::string& what) {
  return Status(ErrorKind::Usage, code, what + "; `dcc passes` lists what there is");
}

std::vector<std::string_view> split(std::string_view list) {
  std::vector<std::string_view> words;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    words.push_back(list.substr(0, comma));
    list = comma == std::string_view::npos ? "" : list.substr(comma + 1);
  }
  return words;
}

Result<PassCall> parse_call(std::string_view text) {
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const Pass* pass = find_pass(name);
  if (!pass) {
    std::vector<std::string_view> names;
    for (const Pass& known : kPasses) names.emplace_back(known.name);
    return misuse("DC2602",
                  "there is no pass '" + std::string(name) + "'" + base::did_you_mean(name, names));
  }
  if (equals == std::string_view::npos) return PassCall{pass, std::nullopt};
  const std::optional<int64_t> argument = base::parse_bytes(text.substr(equals + 1));
  if (pass->argument.empty() || !argument) {
    return misuse("DC2607", pass->argument.empty()
                                ? "pass " + std::string(name) + " takes no argument"
                                : "pass " + std::string(name) + " takes a number or size (" +
                                      std::string(pass->argument) + "), not '" +
                                      std::string(text.substr(equals + 1)) + "'");
  }
  return PassCall{pass, argument};
}

Status check_contracts(const Chain& chain) {
  for (size_t i = 0; i < chain.size(); ++i) {
    const Pass& pass = *chain[i].pass;
    if (i > 0 && chain[i - 1].pass >= chain[i].pass) {
      return misuse("DC2608", "pass " + std::string(pass.name) + " cannot come after " +
                                  std::string(chain[i - 1].pass->name) +
                                  ": each pass runs once, in the order of the list");
    }
    const auto has = [&](std::string_view other) {
      return std::ranges::any_of(chain,
                                 [&](const PassCall& call) { return call.pass->name == other; });
    };
    const bool is_whole = chain[0].pass->needs == ir::Stage::Imported;
    if (is_whole && !pass.follows.empty() && !has(pass.follows)) {
      return misuse("DC2608", "pass " + std::string(pass.name) + " needs " +
                                  std::string(pass.follows) + " before it in the chain");
    }
    for (const std::string_view other : split(pass.conflicts)) {
      if (has(other)) {
        return misuse("DC2609", "passes " + std::string(pass.name) + " and " + std::string(other) +
                                    " cannot be in one chain; leave one of them out");
      }
    }
  }
  return {};
}

}  // namespace

std::span<const Pass> all_passes() { return kPasses; }

const Pass* find_pass(std::string_view name) {
  for (const Pass& pass : kPasses) {
    if (pass.name == name) return &pass;
  }
  return nullptr;
}

Result<Change> apply(const PassCall& call, ir::Step& step, const PassContext& context) {
  const Pass& pass = *call.pass;
  if (step.stage != pass.needs) {
    return Status(ErrorKind::Usage, "DC2601",
                  "pass " + std::string(pass.name) + " cannot run here: it takes a step that is " +
                      std::string(ir::word(pass.needs)) + ", and this one is " +
                      std::string(ir::word(step.stage)) +
                      "; run the passes in the order `dcc passes` lists");
  }
  PassContext with_argument = context;
  with_argument.argument = call.argument;
  Result<Change> change = pass.run(step, with_argument);
  if (!change.ok())
    return std::move(change).status().add_context("in pass " + std::string(pass.name));
  step.stage = pass.gives;
  if (context.options.after_pass) DC_RETURN_IF_ERROR(context.options.after_pass(pass, step));
  return change;
}

Result<Change> apply_verified(const PassCall& call, ir::Step& step, const PassContext& context) {
  DC_ASSIGN_OR_RETURN(const Change change, apply(call, step, context));
  if (Status status = ir::verify(step, step.stage); !status.ok()) {
    return std::move(status).add_context("after pass " + std::string(call.pass->name));
  }
  return change;
}

Result<Change> run_passes(ir::Step& step, std::span<const PassCall> chain,
                          const PassContext& context, Verify verify, const PassDone& done) {
  if (Status status = ir::verify(step, step.stage); !status.ok()) {
    return std::move(status).add_context("before the first pass");
  }
  Change total = Change::No;
  for (const PassCall& call : chain) {
    DC_ASSIGN_OR_RETURN(const Change change, verify == Verify::AfterEach
                                                 ? apply_verified(call, step, context)
                                                 : apply(call, step, context));
    if (change == Change::Yes) total = Change::Yes;
    if (done) done(*call.pass);
  }
  return total;
}

Result<Chain> parse_passes(std::string_view list) {
  Chain chain;
  for (const std::string_view word : split(list)) {
    DC_ASSIGN_OR_RETURN(PassCall call, parse_call(word));
    chain.push_back(call);
  }
  DC_RETURN_IF_ERROR(check_contracts(chain));
  return chain;
}

std::string print(const Chain& chain) {
  std::string text;
  for (const PassCall& call : chain) {
    text += (text.empty() ? "" : ",") + std::string(call.pass->name);
    if (call.argument) text += "=" + std::to_string(*call.argument);
  }
  return text;
}

}  // namespace dc::passes
