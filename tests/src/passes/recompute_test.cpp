// Random programs with random choices of what is kept: every reader still reads the same bits, the
// verifier agrees, and the bytes alive are those predicted.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "src/cost/fixed.h"
#include "src/ir/effects.h"
#include "src/passes/recompute/recompute_choice.h"
#include "src/passes/recompute/recompute_rewrite.h"

namespace dc::passes {
namespace {

using ir::NodeId;
using ir::OpKind;
using ir::ValueId;

// Writes a small training step: sources, a forward phase, a loss, a backward phase that reads what
// the forward phase made, mostly in reverse.
class RandomStep {
 public:
  explicit RandomStep(unsigned seed) : rng_(seed) {}

  ir::Step make() {
    text_ =
        "step @random stage=scheduled mesh=<dp=2> {\n"
        "  input \"x\" : f32[64]\n  buffer \"m\" : f32[64]\n"
        "  parameter \"w\" : f32[64] frozen placement=gathered_per_use shard=32\n"
        "  state \"w\" : f32[32] flat_shard<dp> role=shard parameter=\"w\"\n"
        "  state \"m\" : f32[64] role=buffer buffer=\"m\"\n  state \"rng\" : i64[4] role=random\n"
        "  streams \"compute\" \"comm\"\n  program @step {\n"
        "    %w = state(entry=\"w\") : f32[32] flat_shard<dp>\n"
        "    %m = state(entry=\"m\") : f32[64]\n    %rng = state(entry=\"rng\") : i64[4]\n"
        "    %x = input(name=\"x\") : f32[64] varying<dp>\n";
    values_ = {"x", "m"};
    const int forward = 3 + below(12), backward = 2 + below(12);
    for (int i = 0; i < forward; ++i) forward_node();
    line("%loss = aten.mean.default(self=%" + values_.back() + ") : f32[] varying<dp>");
    if (below(2) == 0) {
      line("%new = aten.exp.default(self=%" + values_.back() + ") : f32[64] varying<dp>");
      line("copy %m, %new");
    }
    for (int i = 0; i < backward || i <= started_; ++i) backward_node(i, backward);
    text_ += "    output loss %loss\n  }\n}\n";
    base::Result<ir::Step> step = ir::parse(text_);
    EXPECT_TRUE(step.ok()) << step.status().to_string() << "\n" << text_;
    erase_unread_views(step->programs[0].graph);
    return std::move(step).value();
  }

 private:
  // normalize-graph leaves none.
  static void erase_unread_views(ir::Graph& graph) {
    std::vector<NodeId> order = graph.order();
    std::reverse(order.begin(), order.end());
    for (NodeId id : order) {
      const ir::Node& node = graph.node(id);
      if (ir::is_plain_view(node) && graph.value(node.results[0]).uses.empty()) graph.erase(id);
    }
  }

  int below(int n) { return static_cast<int>(rng_() % static_cast<unsigned>(n)); }
  void line(const std::string& text) { text_ += "    " + text + "\n"; }
  std::string fresh() { return "v" + std::to_string(next_++); }
  std::string size() { return "f32[" + std::to_string(64 * (1 + below(8))) + "] varying<dp>"; }
  std::string module() {
    return below(3) == 0 ? "" : " in \"layers." + std::to_string(next_ / 4) + "\"";
  }
  const std::string& any() {
    return values_[static_cast<size_t>(below(static_cast<int>(values_.size())))];
  }

  void start_gather(const std::string& suffix, const std::string& phase) {
    if (casts_) line("%narrow" + suffix + " = cast %w : bf16[32] flat_shard<dp>" + phase);
    line("%start" + suffix + " = all_gather.start %" + (casts_ ? "narrow" + suffix : "w") +
         " (elements=64, shard=32) : " + (casts_ ? "bf16" : "f32") + "[64]" + phase +
         " stream=comm");
  }

  std::string finish_gather(const std::string& suffix, const std::string& phase) {
    line("%w" + suffix + " = all_gather.done %start" + suffix + " : " + (casts_ ? "bf16" : "f32") +
         "[64]" + phase);
    return "w" + suffix;
  }

  void forward_node() {
    const std::string a = any(), b = any(), name = fresh();
    switch (below(8)) {
      case 0:
        line("%" + name + "x = aten.exp.default(self=%" + a + ") : f32[64] varying<dp>" + module());
        line("%" + name + ", %mask" + name + " = dropout %" + name + "x" + ", %rng (p=0.5, op_id=" +
             std::to_string(next_) + ") : f32[64] varying<dp>, bool[64] varying<dp>" + module());
        masks_.push_back("mask" + name);
        break;
      case 1:
        line("%" + name + " = aten.view.default(self=%" + a + ", size=[64]) : f32[64] varying<dp>" +
             module());
        break;
      case 2: {
        if (gathered_) return;
        gathered_ = true;
        start_gather("f", "");
        const std::string whole = finish_gather("f", "");
        line("%" + name + " = aten.mul.Tensor(self=%" + a + ", other=%" + whole + ") : " + size() +
             module());
        const std::string other = fresh();
        line("%" + other + " = aten.add.Tensor(self=%" + b + ", other=%" + whole + ") : " + size() +
             module());
        line("release %" + whole);
        values_.push_back(other);
        break;
      }
      case 3:
        line("%" + name + " = aten.exp.default(self=%" + a + ") : " + size() + module());
        break;
      default:
        line("%" + name + " = aten.mul.Tensor(self=%" + a + ", other=%" + b + ") : " + size() +
             module());
        break;
    }
    values_.push_back(name);
  }

  void backward_node(int i, int count) {
    const auto last = static_cast<int>(values_.size()) - 1;
    const int from = last - last * std::min(i, count) / count;
    const std::string a = values_[static_cast<size_t>(below(3) == 0 ? below(last + 1) : from)];
    const std::string name = fresh(), before = i == 0 ? "loss" : gradient_;
    if (gathered_ && started_ < 0 && below(5) == 0) {  // as prefetch-gathers leaves it
      started_ = i + below(4);
      start_gather("b", " backward");
    }
    if (started_ == i) {
      const std::string whole = finish_gather("b", " backward");
      line("%" + name + " = aten.mul.Tensor(self=%" + before + ", other=%" + whole +
           ") : " + size() + " backward");
      line("release %" + whole + " backward");
    } else if (!masks_.empty() && below(4) == 0) {
      line("%" + name + " = aten.mul.Tensor(self=%" + before + ", other=%" + masks_.back() +
           ") : " + size() + " backward");
      masks_.pop_back();
    } else if (below(5) == 0) {
      line("%" + name + "v = aten.view.default(self=%" + a +
           ", size=[64]) : f32[64] varying<dp> backward");
      line("%" + name + " = aten.add.Tensor(self=%" + before + ", other=%" + name +
           "v) : " + size() + " backward");
    } else {
      line("%" + name + " = aten.add.Tensor(self=%" + before + ", other=%" + a + ") : " + size() +
           " backward");
    }
    gradient_ = name;
  }

  std::mt19937 rng_;
  std::string text_, gradient_;
  std::vector<std::string> values_, masks_;
  int next_ = 0;
  bool gathered_ = false, casts_ = below(2) == 0;
  int started_ = -1;  // the backward node that reads the second gather
};

// What every kernel reads, as text: equal text, equal bits.
class Interpreter {
 public:
  explicit Interpreter(const ir::Graph& graph) : graph_(graph) {
    for (NodeId id : graph.order()) run(graph.node(id));
  }
  // By node; of kernels only.
  std::map<int32_t, std::string> reads;

 private:
  void run(const ir::Node& node) {
    if (ir::is_plain_view(node) || node.kind == OpKind::AllGatherDone ||
        node.kind == OpKind::Release)
      return;
    std::string text = std::string(ir::info(node.kind).text) + node.overload.text() + "(";
    for (ValueId operand : node.operands) text += content(operand) + ",";
    for (const ir::Arg& arg : node.args) {
      if (const auto* number = std::get_if<int64_t>(&arg.value))
        text += std::to_string(*number) + ";";
      if (const auto* name = std::get_if<std::string>(&arg.value)) text += *name + ";";
      if (const auto* entry = std::get_if<ir::StateId>(&arg.value))
        text += "state " + std::to_string(entry->v) + ";";
    }
    const std::string hash = std::to_string(std::hash<std::string>()(text + ")"));
    if (node.kind == OpKind::Copy) contents_[node.operands[0].v] = hash;
    for (size_t r = 0; r < node.results.size(); ++r)
      contents_[node.results[r].v] = hash + "." + std::to_string(r);
    reads[node.id.v] = hash;
  }

  // Views see what is there when they are read.
  std::string content(ValueId value) const {
    const ir::Node& node = graph_.node(graph_.value(value).producer);
    if (node.kind == OpKind::AllGatherDone) return content(node.operands[0]);
    if (ir::is_plain_view(node)) return "view " + content(node.operands[0]);
    return contents_.at(value.v);
  }

  const ir::Graph& graph_;
  std::map<int32_t, std::string> contents_;
};

int64_t peak_of(const ir::Step& step) {
  const ir::Graph& graph = step.programs[0].graph;
  const analysis::Liveness live =
      analysis::liveness(step, graph, analysis::StorageMap(step, graph));
  std::vector<int64_t> change(live.order.size() + 1);
  for (const analysis::LiveRange& range : live.ranges) {
    at(change, range.first) += base::round_up(range.bytes.v, base::kAlignment);
    at(change, range.last + 1) -= base::round_up(range.bytes.v, base::kAlignment);
  }
  int64_t now = 0, peak = 0;
  for (int64_t bytes : change) peak = std::max(peak, now += bytes);
  return peak;
}

struct Rewritten {
  ir::Step step;
  Timeline timeline;
};

class Recompute : public ::testing::TestWithParam<int> {
 protected:
  // Carries `kept` out on a copy and checks everything that must hold.
  static Rewritten check(const ir::Step& step, const RecomputeProgram& program, KeptStorages kept) {
    Rewritten result{step, settle(program, kept)};
    rewrite(result.step.programs[0].graph, program, kept, result.timeline);
    const base::Status status = ir::verify(result.step, ir::Stage::Scheduled);
    EXPECT_TRUE(status.ok()) << status.to_string() << "\n" << ir::print(result.step);
    if (!status.ok()) return result;
    EXPECT_EQ(peak_of(result.step), result.timeline.peak)
        << ir::print(step) << ir::print(result.step);
    const Interpreter before(step.programs[0].graph), after(result.step.programs[0].graph);
    for (const auto& [node, reads] : before.reads) {
      const auto found = after.reads.find(node);
      if (found != after.reads.end()) {
        EXPECT_EQ(found->second, reads) << node << ir::print(result.step);
      }
    }
    return result;
  }

  const cost::FixedCost cost{{{"mul", {100}, {}}, {"exp", {1000}, {}}, {"dropout", {300}, {}}}};
};

TEST_P(Recompute, AnyChoiceKeepsTheBitsAndItsPromise) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const ir::Step step = RandomStep(1000 * static_cast<unsigned>(GetParam()) + seed).make();
    ASSERT_TRUE(ir::verify(step, ir::Stage::Scheduled).ok())
        << ir::verify(step, ir::Stage::Scheduled).to_string() << ir::print(step);
    const RecomputeProgram program(step, step.programs[0].graph, cost);
    EXPECT_EQ(evaluate(program, keep_everything(program)).peak, peak_of(step));
    std::mt19937 rng(seed);
    for (unsigned share : {2u, 5u}) {
      KeptStorages kept = keep_everything(program);
      for (size_t s = 0; s < kept.size(); ++s) {
        if (program.storages[s].recomputable) kept[s] = rng() % share == 0;
      }
      check(step, program, kept);
    }
    check(step, program, keep_block_inputs(program));
    if (HasFailure()) return;
  }
}

TEST_P(Recompute, ChoicesFitOrDoNoHarm) {
  int helped = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    const ir::Step step = RandomStep(1000 * static_cast<unsigned>(GetParam()) + seed).make();
    const RecomputeProgram program(step, step.programs[0].graph, cost);
    const int64_t most = peak_of(step);
    for (const int64_t limit : {most, most * 9 / 10, most * 7 / 10, most / 2}) {
      const RecomputeChoice choice = choose(program, limit);
      EXPECT_EQ(choice.fits, choice.timeline.peak <= limit);
      EXPECT_LE(choice.timeline.peak, most);
      if (limit == most) {
        EXPECT_EQ(choice.timeline.time.v, 0);
      }
      helped += limit < most && choice.fits;
      check(step, program, choice.kept);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(helped, 30);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Recompute, ::testing::Range(0, 5));

}  // namespace
}  // namespace dc::passes
