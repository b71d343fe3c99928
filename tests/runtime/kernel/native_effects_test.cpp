// The verifier's table of what native kernels touch, row by row, against the kernels themselves:
// every operand lies between pages that may not be touched, and bytes are compared before and
// after.
#include <sys/mman.h>

#include <functional>
#include <map>
#include <set>

#include "runtime/verify/effects.h"
#include "src/base/step_scalars.h"
#include "src/ir/ops.h"
#include "tests/runtime/kernel/kernel_bench.h"

namespace dc::runtime {
namespace {

using base::DType;
using Bytes = std::vector<uint8_t>;

constexpr int64_t kPage = 4096, kPages = 80;

// Tensors that end where a page without access begins; one such page is before them, too.
class GuardedMemory {
 public:
  GuardedMemory()
      : memory_(static_cast<std::byte*>(
            mmap(nullptr, kPages * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    plan_.tensors.reserve(16);
  }
  ~GuardedMemory() { munmap(memory_, kPages * kPage); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  int32_t add(DType dtype, const std::vector<int64_t>& sizes) {
    plan::Tensor tensor;
    tensor.dtype = dtype;
    tensor.sizes = sizes;
    tensor.strides = KernelBench::contiguous(sizes);
    tensor.slice = static_cast<int32_t>(plan_.slices.size());
    const int64_t bytes = KernelBench::bytes(tensor);
    EXPECT_LE(bytes, kPage);
    EXPECT_LT(page_ + 2, kPages);
    EXPECT_EQ(mprotect(memory_ + (page_ + 1) * kPage, kPage, PROT_READ | PROT_WRITE), 0);
    page_ += 2;
    plan_.slices.push_back({plan::Space::Device, page_ * kPage - bytes, bytes, -1, 0, 0});
    plan_.tensors.push_back(tensor);
    return static_cast<int32_t>(plan_.tensors.size()) - 1;
  }

  // Its slice; -1 of no bytes.
  int32_t add_scratch(int64_t bytes) {
    if (bytes == 0) return -1;
    const int64_t pages = (bytes + kPage - 1) / kPage;
    EXPECT_LT(page_ + pages + 1, kPages);
    EXPECT_EQ(mprotect(memory_ + (page_ + 1) * kPage, pages * kPage, PROT_READ | PROT_WRITE), 0);
    plan_.slices.push_back({plan::Space::Device, (page_ + 1) * kPage, bytes, -1, 0, 0});
    page_ += pages + 1;
    return static_cast<int32_t>(plan_.slices.size()) - 1;
  }

  kernel::AddressMap addresses() const { return kernel::AddressMap(plan_, memory_, 1); }
  const plan::Tensor& tensor(int32_t id) const { return plan_.tensors[static_cast<size_t>(id)]; }
  template <typename T>
  T* data(int32_t id) const {
    return static_cast<T*>(addresses().bind(id).data);
  }
  Bytes bytes(int32_t id) const {
    const auto* start = data<uint8_t>(id);
    return Bytes(start, start + KernelBench::bytes(tensor(id)));
  }

  // Ordinary numbers between 0 and 1, others for every element and tensor.
  void fill(int32_t id) const {
    for (int64_t i = 0; i < addresses().bind(id).numel(); ++i) {
      const double value = 0.3 + 0.007 * static_cast<double>(i) + 0.002 * id;
      if (tensor(id).dtype == DType::F32) data<float>(id)[i] = static_cast<float>(value);
      if (tensor(id).dtype == DType::F64) data<double>(id)[i] = value;
      if (tensor(id).dtype == DType::I64) data<int64_t>(id)[i] = i + 1 + id;
    }
  }
  void fill_bytes(int32_t id, uint8_t byte) const {
    std::memset(data<uint8_t>(id), byte, static_cast<size_t>(KernelBench::bytes(tensor(id))));
  }

 private:
  std::byte* memory_;
  plan::Plan plan_;
  int64_t page_ = 0;
};

struct Case {
  std::vector<int32_t> operands, results;
  std::vector<plan::Arg> attributes;
};

constexpr int64_t kCount = 37;  // not a multiple of any vector's width
constexpr int64_t kColumns = 3 + base::kTableExtra;

// A call of each kernel. An update is of column 1 and group 1, in step 2.
Case make_case(GuardedMemory& m, std::string_view op) {
  const auto vector = [&](DType dtype = DType::F32) { return m.add(dtype, {kCount}); };
  const auto scalars = [&] { return m.add(DType::F64, {base::kScalarFinite + 3}); };
  const auto hyperparameters = [&] {
    return m.add(DType::F64, {base::kHyperGroups + 2 * base::kHyperPerGroup});
  };
  const auto row = [&] { return m.add(DType::F64, {kColumns}); };
  const std::vector<plan::Arg> update = {int_arg("param", 1), int_arg("group", 1),
                                         int_arg("clip", 1)};
  const auto with = [&](std::vector<plan::Arg> more) {
    more.insert(more.end(), update.begin(), update.end());
    return more;
  };
  if (op == "dc.accumulate") return {{vector(), vector()}, {}, {}};
  if (op == "dc.adamw")
    return {
        {vector(), vector(), vector(), vector(), scalars(), hyperparameters(), vector(DType::BF16)},
        {},
        update};
  if (op == "dc.add_loss") return {{m.add(DType::F64, {1}), m.add(DType::F32, {1})}, {}, {}};
  const auto matrix = [&](int64_t rows, int64_t columns) {
    return m.add(DType::F32, {rows, columns});
  };
  if (op == "dc.add_product") {
    const int32_t sum = matrix(3, 7);
    return {{sum, matrix(3, 5), matrix(5, 7)}, {sum}, {}};
  }
  if (op == "dc.two_products")
    return {
        {matrix(3, 5), matrix(5, 7), matrix(3, 5), matrix(5, 7)}, {matrix(3, 7), matrix(3, 7)}, {}};
  if (op == "dc.cast") return {{vector()}, {vector(DType::BF16)}, {}};
  if (op == "dc.copy") return {{vector(), vector()}, {}, {}};
  if (op.starts_with("dc.cross_entropy")) {
    // A target of only set bits is -1.
    const std::vector<plan::Arg> kind = {int_arg("reduction", 1), int_arg("ignored", -1)};
    const int32_t logits = m.add(DType::F32, {3, kCount}), targets = m.add(DType::I64, {3});
    const auto number = [&] { return m.add(DType::F32, {1}); };
    const auto of_rows = [&] { return m.add(DType::F32, {3}); };
    const std::vector<int32_t> numbers = {number(), number(), of_rows(), of_rows()};
    if (op == "dc.cross_entropy") return {{logits, targets}, numbers, kind};
    return {{logits, targets, numbers[0], numbers[1], numbers[2], numbers[3]}, {logits}, kind};
  }
  if (op == "dc.linear_cross_entropy") {
    const auto numbers = [&](DType dtype, int64_t rows) { return m.add(dtype, {rows, 5}); };
    return {{numbers(DType::F32, 3), numbers(DType::F32, kCount), m.add(DType::I64, {3}),
             m.add(DType::F32, {1})},
            {m.add(DType::F32, {1}), m.add(DType::F32, {1}), numbers(DType::F32, 3),
             numbers(DType::F32, kCount)},
            {int_arg("reduction", 1), int_arg("ignored", -1), int_arg("rows", 3),
             int_arg("classes", 16)}};
  }
  if (op == "dc.dropout")
    return {{vector(), m.add(DType::I64, {4})},
            {vector(), vector(DType::Bool)},
            {float_arg("p", 0.5), int_arg("op_id", 3)}};
  if (op == "dc.clip_and_check")
    return {
        {scalars(), m.add(DType::F64, {2, kColumns}), hyperparameters()}, {}, {int_arg("clip", 1)}};
  if (op == "dc.check_finite") return {{scalars(), row(), m.add(DType::F64, {2})}, {}, update};
  if (op == "dc.sgd")
    return {{vector(), vector(), vector(), scalars(), hyperparameters(), vector(DType::BF16)},
            {},
            with({float_arg("momentum", 0.9), int_arg("nesterov", 0)})};
  if (op == "dc.square_sum")
    return {{row(), vector(), hyperparameters()},
            {},
            with({int_arg("shard", kCount), int_arg("elements", 2 * kCount), int_arg("whole", 0)})};
  if (op == "dc.zero") return {{vector()}, {}, {}};
  ADD_FAILURE() << op << " has no case here";
  return {};
}

class Launched {
 public:
  explicit Launched(const verify::NativeKernel& row)
      : row_(row), case_(make_case(memory_, row.op)), hyperparameters_(find_slots()) {}

  using Prepare = std::function<void(const GuardedMemory&, const Case&)>;
  // Fills everything, lets `prepare` change it, launches.
  void launch(const Prepare& prepare = [](const GuardedMemory&, const Case&) {}) {
    for (int32_t id : tensors()) memory_.fill(id);
    if (hyperparameters_ >= 0) memory_.data<double>(hyperparameters_)[base::kHyperStep] = 2;
    for (int32_t id : case_.results) {
      if (!row_.in_place) memory_.fill_bytes(id, 0xee);
    }
    prepare(memory_, case_);
    before_ = all();
    std::vector<plan::Arg> args;
    const std::span<const ir::OperandInfo> named = ir::info(*ir::native_op(row_.op)).operands();
    for (size_t i = 0; i < case_.operands.size(); ++i)
      args.push_back(tensor_arg(case_.operands[i], std::string(named[i].name)));
    args.insert(args.end(), case_.attributes.begin(), case_.attributes.end());
    plan::Instruction step = instruction(std::string(row_.op), args, case_.results);
    const auto provider = kernel::make_native_provider();
    const auto bytes = provider->measure_scratch(step, memory_.addresses());
    ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
    step.scratch = memory_.add_scratch(*bytes);
    auto kernel = provider->prepare(step, memory_.addresses());
    ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
    ASSERT_TRUE((*kernel)->launch(*device::cpu_device().make_stream()).ok());
    after_ = all();
  }

  const Case& call() const { return case_; }
  const Bytes& before(int32_t id) const { return before_.at(id); }
  const Bytes& after(int32_t id) const { return after_.at(id); }
  bool changed(int32_t id) const { return before(id) != after(id); }

  std::vector<int32_t> tensors() const {
    std::vector<int32_t> ids = case_.operands;
    ids.insert(ids.end(), case_.results.begin(), case_.results.end());
    return ids;
  }

 private:
  std::map<int32_t, Bytes> all() const {
    std::map<int32_t, Bytes> bytes;
    for (int32_t id : tensors()) bytes[id] = memory_.bytes(id);
    return bytes;
  }
  int32_t find_slots() const {
    for (int32_t id : case_.operands) {
      if (memory_.tensor(id).sizes[0] == base::kHyperGroups + 2 * base::kHyperPerGroup) return id;
    }
    return -1;
  }

  const verify::NativeKernel& row_;
  GuardedMemory memory_;
  Case case_;
  int32_t hyperparameters_;
  std::map<int32_t, Bytes> before_, after_;
};

// What was in an overwritten tensor shows nowhere: each byte is the same or stays as it was.
void expect_not_read(const verify::NativeKernel& row, size_t operand) {
  Launched one(row), other(row);
  const auto put = [&](uint8_t byte) {
    return [=](const GuardedMemory& m, const Case& call) {
      m.fill_bytes(call.operands[operand], byte);
    };
  };
  one.launch(put(0x11));
  other.launch(put(0x77));
  for (int32_t id : one.tensors()) {
    for (size_t i = 0; i < one.after(id).size(); ++i) {
      const bool untouched =
          one.after(id)[i] == one.before(id)[i] && other.after(id)[i] == other.before(id)[i];
      EXPECT_TRUE(untouched || one.after(id)[i] == other.after(id)[i])
          << row.op << " reads operand " << operand;
    }
  }
}

// What is read makes a difference.
void expect_read(const verify::NativeKernel& row, size_t operand) {
  Launched plain(row), other(row);
  plain.launch();
  other.launch([&](const GuardedMemory& m, const Case& call) {
    m.fill_bytes(call.operands[operand], 0xff);  // NaN
  });
  bool differs = false;
  for (int32_t id : plain.tensors()) {
    if (id != plain.call().operands[operand] || row.operands[operand] == 'u')
      differs = differs || plain.after(id) != other.after(id);
  }
  EXPECT_TRUE(differs) << row.op << " does not read operand " << operand;
}

TEST(NativeEffects, AreWhatTheKernelsDo) {
  const std::set<std::string_view> kProducts = {"dc.add_product", "dc.linear_cross_entropy",
                                                "dc.two_products"};
  for (const verify::NativeKernel& row : verify::native_kernels()) {
    // In a plug-in, which a build without oneDNN lacks.
    if (!DC_WITH_ONEDNN && kProducts.contains(row.op)) continue;
    Launched run(row);
    run.launch();
    ASSERT_EQ(run.call().operands.size(), row.operands.size()) << row.op;
    ASSERT_EQ(run.call().results.size(), row.results) << row.op;
    for (size_t i = 0; i < row.operands.size(); ++i) {
      EXPECT_EQ(run.changed(run.call().operands[i]), row.operands[i] != 'r')
          << row.op << " operand " << i;
      if (row.operands[i] == 'w') {
        expect_not_read(row, i);
      } else {
        expect_read(row, i);
      }
    }
    for (int32_t id : run.call().results) EXPECT_TRUE(run.changed(id)) << row.op;
  }
}

// A third source: the compiler's own table.
TEST(NativeEffects, AreThoseOfTheCompilersTable) {
  size_t native = 0;
  constexpr ir::OpKind kKinds[] = {
#define DC_OP(kind, text, alias, provider, half, trait, rule, results, operands, attributes) \
  ir::OpKind::kind,
#include "src/ir/ops.def"
#undef DC_OP
  };
  for (const ir::OpKind kind : kKinds) {
    const ir::OpInfo& info = ir::info(kind);
    if (info.traits.provider != ir::Provider::Native) continue;
    ++native;
    bool found = false;
    for (const verify::NativeKernel& row : verify::native_kernels()) {
      if (row.op != info.kernel) continue;
      found = true;
      std::string letters;
      for (const ir::OperandInfo& operand : info.operands())
        letters += "rwu"[static_cast<size_t>(operand.access)];
      EXPECT_EQ(letters, row.operands) << row.op;
      EXPECT_EQ(ir::optional_operand(kind).has_value(), row.perhaps == 1) << row.op;
      EXPECT_EQ(info.result_count, row.results) << row.op;
      EXPECT_EQ(info.traits.alias == ir::AliasRule::View, row.in_place) << row.op;
    }
    EXPECT_TRUE(found) << info.kernel;
  }
  EXPECT_EQ(native, verify::native_kernels().size());
}

}  // namespace
}  // namespace dc::runtime
