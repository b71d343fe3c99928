// Random fusions of random graphs give the bits of their operators apart, and these are what the
// reference interpreter says.
//
// Each graph becomes a plan three times: as it is, with random regions fused and copied by the
// moves of the search (src/fusion/draft.h), and by fuse-elementwise. All are verified up to level 3
// and run through the real provider, in the memory that the layout gave them. Of the plan as it is
// every element-wise instruction is interpreted; of all, what kernels that are no part of a fusion
// read is compared.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "runtime/device/device.h"
#include "runtime/plan/file.h"
#include "runtime/verify/verify.h"
#include "src/base/expression.h"
#include "src/base/shape.h"
#include "src/cost/analytic.h"
#include "src/fusion/draft.h"
#include "src/ir/native_ops.h"
#include "src/passes/fuse/carry_out_fusion.h"
#include "src/passes/pass_manager.h"
#include "src/plan/emit.h"
#include "tests/random/elementwise_ops.h"
#include "tests/random/random_elementwise.h"
#include "tests/random/reference_reductions.h"

namespace dc::test {
namespace {

using base::DType;
using base::Result;
using base::Status;
namespace rp = runtime::plan;
using runtime::kernel::AddressMap;

// CI runs the first of them, a slow run (random_fusions_all of ctest) the others too.
constexpr uint32_t kGraphs = 2'000, kAllGraphs = 10'000;

class Plans {
 public:
  // `fuse`: passes that come first, with a comma behind each.
  Result<ir::Step> scheduled(uint32_t seed, const std::string& fuse = "") {
    ir::Step step = random_elementwise_step(seed);
    DC_RETURN_IF_ERROR(
        run(step, fuse + "shard-parameters=0,insert-collectives,add-update,schedule").status());
    return step;
  }

  Result<rp::Plan> plan(ir::Step step) {
    DC_RETURN_IF_ERROR(run(step, "layout-arenas").status());
    DC_ASSIGN_OR_RETURN(const rp::Plan plan, plan::emit(step, {}, cost_));
    const std::string file = rp::encode(plan);
    DC_ASSIGN_OR_RETURN(rp::Plan decoded,
                        rp::decode({reinterpret_cast<const uint8_t*>(file.data()), file.size()}));
    DC_RETURN_IF_ERROR(runtime::verify::verify_meaning(decoded));
    return decoded;
  }

  // Fuses as random moves of the draft say. How many kernels went.
  Result<int> fuse(ir::Step& step, uint32_t seed) {
    ir::Graph& graph = step.programs.back().graph;
    const auto program = passes::fusion_program(step, graph, cost_);
    if (!program || program->fusible.size() < 2) return 0;
    const fusion::ClosedFormTime time({100}, 1'000'000'000);
    fusion::Draft draft(program->problem, time);
    std::mt19937 random(seed);
    const auto one_of = [&](std::span<const int32_t> list) { return list[random() % list.size()]; };
    const bool copies = random() % 2 == 0;
    for (size_t i = 4 * program->fusible.size(); i > 0; --i) {
      const int32_t kernel = one_of(program->fusible);
      const std::span<const int32_t> readers = program->problem.readers(kernel);
      if (readers.empty()) continue;
      // Groups have the numbers of kernels; a kernel may have moved on into another group.
      const int32_t reader = one_of(readers);
      const int32_t earlier = draft.owner(kernel), later = draft.owner(reader);
      if (earlier >= 0 && later >= 0 && earlier != later)
        draft.fuse(earlier, later, copies && random() % 3 == 0);
    }
    const passes::Fusions fusions = passes::fusions_of(draft, *program, *program);
    for (const auto& group : fusions.groups)
      for (const auto& member : group) copies_ += member.is_copy ? 1 : 0;
    DC_RETURN_IF_ERROR(passes::carry_out(step, graph, fusions, cost_));
    DC_RETURN_IF_ERROR(ir::verify(step, ir::Stage::Scheduled));
    return static_cast<int>(fusions.groups.size());
  }

  int copies() const { return copies_; }

 private:
  Result<passes::Change> run(ir::Step& step, const std::string& text) {
    DC_ASSIGN_OR_RETURN(const passes::Chain chain, passes::parse_passes(text));
    std::vector<base::Remark> remarks;
    return passes::run_passes(step, chain, {cost_, options_, remarks});
  }

  const cost::AnalyticCost cost_{1};
  const passes::Options options_ = [] {
    passes::Options options;
    options.fuse_reductions = passes::FuseReductions::Always;  // there is no profile
    return options;
  }();
  int copies_ = 0;
};

// Numbers around 1, and now and then something special.
class Filling {
 public:
  explicit Filling(uint32_t seed) : random_(seed) {}

  void fill(std::byte* to, int64_t count, DType dtype) {
    for (int64_t i = 0; i < count; ++i) {
      const float real = number();
      const auto put = [&](auto value) {
        std::memcpy(to + i * static_cast<int64_t>(sizeof value), &value, sizeof value);
      };
      const auto whole = static_cast<int64_t>(random_() % 9) - 4;
      if (dtype == DType::F32) put(real);
      if (dtype == DType::F64) put(static_cast<double>(real) * 1.1);
      if (dtype == DType::BF16) put(static_cast<uint16_t>(std::bit_cast<uint32_t>(real) >> 16));
      if (dtype == DType::F16)
        put(static_cast<uint16_t>(
            random_() % 50 == 0 ? 0x7bff : 0x3400 + random_() % 0x900 + 0x8000 * (random_() % 2)));
      if (dtype == DType::I64) put(random_() % 40 == 0 ? INT64_MAX / 3 : whole);
      if (dtype == DType::I32) put(static_cast<int32_t>(random_() % 40 == 0 ? INT32_MIN : whole));
      if (dtype == DType::I16) put(static_cast<int16_t>(random_() % 40 == 0 ? INT16_MAX : whole));
      if (dtype == DType::U8) put(static_cast<uint8_t>(random_() % 256));
      if (dtype == DType::Bool) put(static_cast<uint8_t>(random_() % 2));
    }
  }

 private:
  float number() {
    switch (random_() % 64) {
      case 0:
        return NAN;
      case 1:
        return random_() % 2 == 0 ? INFINITY : -INFINITY;
      case 2:
        return random_() % 2 == 0 ? 0.0f : -0.0f;
      case 3:
        return 1e-41f;
      case 4:
        return 3e37f;
      default:
        return static_cast<float>(random_() % 2001) / 500.0f - 2.0f;
    }
  }
  std::mt19937 random_;
};

// What a run of a plan's forward and backward phase gave.
struct PlanRun {
  // What kernels read, by the instruction's module.
  std::map<std::string, std::vector<Elements>> read;
  int never_fused = 0;  // kernels
  std::string wrong;    // where the reference interpreter differs; empty: nowhere
  int interpreted = 0, reductions = 0;
};

class Runner {
 public:
  Runner(const rp::Plan& plan, uint32_t seed)
      : plan_(plan),
        memory_(static_cast<size_t>(plan.arena_bytes[0]) + 64, std::byte{0xff}),
        addresses_(plan, aligned(), 0) {
    Filling filling(seed);
    for (const rp::Input& input : plan.inputs) {
      const auto bound = addresses_.bind(input.tensor);
      filling.fill(static_cast<std::byte*>(bound.data), bound.numel(), bound.dtype);
    }
  }

  Result<PlanRun> run(bool interprets) {
    static const auto provider = runtime::kernel::make_native_provider();
    const auto stream = runtime::device::cpu_device().make_stream();
    PlanRun run;
    for (const rp::Instruction& instruction : plan_.programs.back().instructions) {
      if (instruction.phase == base::Phase::Update) break;
      if (instruction.kind != rp::InstructionKind::Kernel) continue;
      const ElementwiseOp* op = find_elementwise(instruction.op);
      const bool is_own = instruction.op.starts_with("dc.");
      const bool folds = is_reduction_of_dims(instruction.op);
      std::vector<Elements> operands;
      if (!is_own) run.read[instruction.module] = operands = operands_of(instruction);
      if (!is_own && op == nullptr && !folds) ++run.never_fused;
      DC_ASSIGN_OR_RETURN(const auto kernel, provider->prepare(instruction, addresses_));
      DC_RETURN_IF_ERROR(kernel->launch(*stream));
      if (folds && !is_row_major(instruction)) continue;
      if (!interprets || (op == nullptr && !folds) || !run.wrong.empty()) continue;
      const Elements found = read_elements(addresses_.bind(instruction.outputs[0]));
      const Elements expected =
          folds ? interpret_reduction(instruction.op, operands[0], dims_of(instruction),
                                      found.dtype, found.sizes)
                : interpret(instruction, operands, found.dtype, found.sizes);
      const bool is_close = !folds && op->bits == ElementwiseOp::Bits::Close;
      run.reductions += folds ? 1 : 0;
      const std::string difference = test::difference(found, expected, is_close, operands);
      ++run.interpreted;
      if (!folds) ops_.insert(instruction.op);
      if (!difference.empty())
        run.wrong = instruction.op + " of module " + instruction.module + ": " + difference;
    }
    return run;
  }

  const std::set<std::string>& ops() const { return ops_; }

 private:
  std::byte* aligned() {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    return memory_.data() + (64 - address % 64) % 64;
  }
  std::vector<Elements> operands_of(const rp::Instruction& instruction) const {
    std::vector<Elements> operands;
    for (const rp::Arg& arg : instruction.args) {
      if (arg.kind == rp::ArgKind::Tensor)
        operands.push_back(read_elements(addresses_.bind(static_cast<int32_t>(arg.i))));
    }
    return operands;
  }

  static std::vector<int64_t> dims_of(const rp::Instruction& instruction) {
    const auto arg = std::ranges::find(instruction.args, "dim", &rp::Arg::name);
    return arg == instruction.args.end() ? std::vector<int64_t>{} : arg->ints;
  }
  bool is_row_major(const rp::Instruction& instruction) const {
    const auto operand = addresses_.bind(static_cast<int32_t>(instruction.args[0].i));
    return base::is_contiguous(operand.sizes, operand.strides);
  }

  const rp::Plan& plan_;
  std::vector<std::byte> memory_;
  const AddressMap addresses_;
  std::set<std::string> ops_;
};

// The first difference between what kernels read that both have; empty: none.
std::string difference(const PlanRun& fused, const PlanRun& apart) {
  if (fused.never_fused != apart.never_fused) return "numbers of kernels";
  for (const auto& [module, found] : fused.read) {
    const auto expected = apart.read.find(module);
    if (expected == apart.read.end()) continue;  // a copy
    if (expected->second.size() != found.size()) return "kernel of module " + module;
    for (size_t i = 0; i < found.size(); ++i) {
      const std::string where = difference(found[i], expected->second[i], false, {});
      if (!where.empty())
        return std::string("what module ").append(module).append(" reads: ").append(where);
    }
  }
  return "";
}

// What all graphs had together.
struct Seen {
  int graphs = 0, groups = 0, reductions = 0;
  size_t fused_reductions = 0;
  std::set<std::string> ops;
};

// Where a fused step gives other bits; empty: nowhere.
std::string differs(const ir::Step& step, const PlanRun& expected, uint32_t seed, Plans& plans) {
  const Result<rp::Plan> fused = plans.plan(step);
  if (!fused.ok()) return fused.status().to_string() + ir::print(step);
  const Result<PlanRun> found = Runner(*fused, seed).run(false);
  if (!found.ok()) return found.status().to_string() + ir::print(step);
  const std::string where = difference(*found, expected);
  return where.empty() ? "" : where + ":\n" + ir::print(step);
}

// Of fused kernels of the step.
size_t fused_reductions(const ir::Step& step) {
  size_t count = 0;
  for (const ir::Program& program : step.programs) {
    for (const ir::NodeId id : program.graph.order()) {
      const ir::Node& node = program.graph.node(id);
      if (node.kind != ir::OpKind::Fused) continue;
      const auto body =
          base::Expression::parse(std::get<std::string>(node.find(ir::Attr::Body)->value));
      for (const base::ExpressionOperation& operation : body->operations)
        count += base::is_reduction(operation.overload) ? 1 : 0;
    }
  }
  return count;
}

// What is wrong with the graph of this seed; empty: nothing.
std::string failure(uint32_t seed, Plans& plans, Seen& seen) {
  Result<ir::Step> step = plans.scheduled(seed);
  if (!step.ok()) return step.status().to_string();
  const Result<rp::Plan> apart = plans.plan(*step);
  if (!apart.ok()) return apart.status().to_string();
  Runner reference(*apart, seed);
  const Result<PlanRun> expected = reference.run(true);
  if (!expected.ok()) return expected.status().to_string();
  if (!expected->wrong.empty()) return expected->wrong;
  const Result<int> groups = plans.fuse(*step, seed);
  if (!groups.ok()) return groups.status().to_string();
  if (std::string wrong = differs(*step, *expected, seed, plans); !wrong.empty())
    return "fused by the draft: " + wrong;
  const Result<ir::Step> by_pass = plans.scheduled(seed, "fuse-elementwise=9,");
  if (!by_pass.ok()) return by_pass.status().to_string();
  seen.fused_reductions += fused_reductions(*by_pass);
  seen.reductions += expected->reductions;
  if (std::string wrong = differs(*by_pass, *expected, seed, plans); !wrong.empty())
    return "fused by fuse-elementwise: " + wrong;
  seen.graphs += *groups > 0 ? 1 : 0;
  seen.groups += *groups;
  seen.ops.insert(reference.ops().begin(), reference.ops().end());
  return "";
}

void check(uint32_t first, uint32_t end) {
  Plans plans;
  Seen seen;
  for (uint32_t seed = first; seed < end; ++seed) {
    const std::string wrong = failure(seed, plans, seen);
    ASSERT_EQ(wrong, "") << "seed " << seed << ":\n" << ir::print(random_elementwise_step(seed));
  }
  const int graphs = static_cast<int>(end - first);
  EXPECT_GT(seen.graphs, graphs / 10 * 8);
  EXPECT_GT(seen.groups, 2 * graphs);
  EXPECT_GT(plans.copies(), graphs / 4);
  EXPECT_GT(seen.reductions, 4 * graphs);
  EXPECT_GT(seen.fused_reductions, static_cast<size_t>(2 * graphs));
  // Every operator that a fused kernel can run is among them.
  for (const ir::NativeOp& op : ir::native_ops())
    EXPECT_EQ(seen.ops.contains(std::string(op.overload)), op.is_elementwise) << op.overload;
}

TEST(RandomFusions, GiveTheBitsOfTheirOperators) { check(0, kGraphs); }
TEST(RandomFusions, DISABLED_All) { check(kGraphs, kAllGraphs); }

}  // namespace
}  // namespace dc::test
