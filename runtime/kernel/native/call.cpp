#include "runtime/kernel/native/call.h"

#include <algorithm>

#include "src/base/checked.h"
#include "src/base/shape.h"

namespace dc::runtime::kernel::native {
namespace {

// Whether elements may have one place: in the order of strides, each dim must step over all that
// the dims before it reach.
bool may_overlap(const BoundTensor& tensor) {
  if (tensor.numel() == 0) return false;
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t dim = 0; dim < tensor.sizes.size(); ++dim) {
    if (tensor.sizes[dim] > 1) dims.emplace_back(tensor.strides[dim], tensor.sizes[dim]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t reached = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= reached) return true;
    reached += stride * (size - 1);
  }
  return false;
}

// Elements that a tensor may have and reach: far more than memory has, and few enough that sums and
// products of a few tensors' sizes in bytes fit an int64_t. A plan may say more of a tensor that is
// expanded or has no elements.
constexpr int64_t kMostElements = int64_t{1} << 48;

bool has_too_many(const BoundTensor& tensor) {
  int64_t count = 1;
  for (size_t dim = 0; dim < tensor.sizes.size(); ++dim) {
    const int64_t size = std::max<int64_t>(tensor.sizes[dim], 1);
    const auto product = base::checked_mul(count, size);
    const auto reach = base::checked_mul(tensor.strides[dim], size);
    if (!product || !reach || *product > kMostElements || *reach > kMostElements) return true;
    count = *product;
  }
  return false;
}

}  // namespace

void Call::require(bool condition, std::string_view problem) {
  if (condition || !status_.ok()) return;
  std::string sentence =
      "the native kernel '" + instruction_.op + "' cannot run this instruction: ";
  sentence.append(problem).append("; recompile the plan with the dcc that belongs to this dcrun");
  refuse(base::Status(base::ErrorKind::Unsupported, "DC6130", std::move(sentence)));
}

void Call::refuse(base::Status reason) {
  if (!status_.ok()) return;
  status_ = std::move(reason);
  if (!instruction_.module.empty()) status_.add_context("in module " + instruction_.module);
}

BoundTensor Call::bound(int64_t tensor, const std::string& what) {
  const auto& tensors = addresses_.plan().tensors;
  require(tensor >= 0 && tensor < static_cast<int64_t>(tensors.size()), what + " is missing");
  if (!ok()) return {};
  const BoundTensor bound = addresses_.bind(static_cast<int32_t>(tensor));
  require(!has_too_many(bound), what + " has or reaches more than 2^48 elements");
  return ok() ? bound : BoundTensor();
}

Dense Call::bind(int64_t tensor, const std::string& what) {
  const BoundTensor bound = this->bound(tensor, what);
  if (!ok()) return {};
  require(base::is_contiguous(bound.sizes, bound.strides), what + " is not contiguous");
  return Dense{bound.data, bound.dtype, bound.numel()};
}

Dense Call::operand(size_t index) {
  const std::string what = "operand " + std::to_string(index);
  const bool given =
      index < instruction_.args.size() && instruction_.args[index].kind == plan::ArgKind::Tensor;
  require(given, what + " is missing");
  return given ? bind(instruction_.args[index].i, what) : Dense{};
}

Dense Call::operand(size_t index, base::DType dtype) {
  const Dense dense = operand(index);
  require(dense.dtype == dtype, "operand " + std::to_string(index) + " must have element type " +
                                    std::string(base::name(dtype)));
  return dense;
}

Dense Call::result(size_t index) {
  const std::string what = "result " + std::to_string(index);
  const bool given = index < instruction_.outputs.size();
  require(given, what + " is missing");
  return given ? bind(instruction_.outputs[index], what) : Dense{};
}

bool Call::has_result(size_t index) const {
  return index < instruction_.outputs.size() && instruction_.outputs[index] >= 0;
}

int64_t Call::columns(size_t index) {
  if (!ok() || index >= instruction_.args.size()) return 0;
  const plan::Tensor& tensor = addresses_.plan().tensors[instruction_.args[index].i];
  require(!tensor.sizes.empty(), "operand " + std::to_string(index) + " must have two dims");
  return tensor.sizes.empty() ? 0 : tensor.sizes.back();
}

const plan::Arg* Call::find(std::string_view name) const {
  for (const plan::Arg& arg : instruction_.args) {
    if (arg.kind != plan::ArgKind::Tensor && arg.name == name) return &arg;
  }
  return nullptr;
}

bool Call::has(std::string_view name) const { return find(name) != nullptr; }

const plan::Arg* Call::attribute(std::string_view name) {
  const plan::Arg* found = find(name);
  if (found == nullptr) require(false, "attribute '" + std::string(name) + "' is missing");
  return found;
}

uint32_t Call::axes(std::string_view name) {
  const plan::Arg* arg = attribute(name);
  if (arg == nullptr) return 0;
  uint32_t mask = 0;
  bool fits = arg->kind == plan::ArgKind::Ints;
  for (const int64_t axis : arg->ints) {
    fits = fits && axis >= 0 && axis < static_cast<int64_t>(addresses_.plan().mesh.size());
    if (fits) mask |= uint32_t{1} << axis;
  }
  require(fits, "attribute '" + std::string(name) + "' must list mesh axes");
  return mask;
}

int64_t Call::integer(std::string_view name) {
  const plan::Arg* arg = attribute(name);
  if (arg == nullptr) return 0;
  require(arg->kind == plan::ArgKind::Int || arg->kind == plan::ArgKind::Bool,
          "attribute '" + std::string(name) + "' must be an integer");
  return arg->i;
}

double Call::number(std::string_view name) {
  const plan::Arg* arg = attribute(name);
  if (arg == nullptr) return 0;
  return arg->kind == plan::ArgKind::Float ? arg->f : static_cast<double>(integer(name));
}

std::byte* Call::scratch(int64_t bytes) {
  scratch_bytes_ = bytes;
  if (bytes == 0 || extra_ == nullptr || !ok()) return nullptr;
  if (bytes <= planned_scratch(addresses_.plan(), instruction_))
    return addresses_.slice(instruction_.scratch);
  std::byte* found = extra_->find(instruction_.stream, bytes);
  if (found == nullptr) status_ = too_little_scratch(addresses_.plan(), instruction_, bytes);
  return found;
}

const plan::Arg* Call::given(std::string_view name) const {
  for (const plan::Arg& arg : instruction_.args) {
    if (arg.name == name) return arg.kind == plan::ArgKind::None ? nullptr : &arg;
  }
  return nullptr;
}

bool Call::has_value(std::string_view name) const { return given(name) != nullptr; }

bool Call::is_fraction(std::string_view name) const {
  const plan::Arg* arg = given(name);
  return arg != nullptr && arg->kind == plan::ArgKind::Float;
}

size_t Call::tensor_count() const {
  return static_cast<size_t>(
      std::ranges::count(instruction_.args, plan::ArgKind::Tensor, &plan::Arg::kind));
}

bool Call::is_tensor(std::string_view name) const {
  const plan::Arg* arg = given(name);
  return arg != nullptr && arg->kind == plan::ArgKind::Tensor;
}

std::optional<BoundTensor> Call::tensor_if(std::string_view name) {
  const plan::Arg* arg = given(name);
  if (arg == nullptr) return std::nullopt;
  const std::string what = "argument '" + std::string(name) + "'";
  require(arg->kind == plan::ArgKind::Tensor, what + " must be a tensor");
  return bound(arg->i, what);
}

BoundTensor Call::tensor(std::string_view name) {
  const auto found = tensor_if(name);
  require(found.has_value(), "argument '" + std::string(name) + "' is missing");
  return found.value_or(BoundTensor());
}

std::vector<std::optional<BoundTensor>> Call::tensors(std::string_view name) {
  std::vector<std::optional<BoundTensor>> list;
  const plan::Arg* arg = given(name);
  const std::string what = "argument '" + std::string(name) + "'";
  require(arg != nullptr && arg->kind == plan::ArgKind::Tensors,
          what + " must be a list of tensors");
  if (!ok()) return list;
  for (const int64_t id : arg->ints) {
    list.push_back(id < 0 ? std::nullopt : std::optional<BoundTensor>(bound(id, what)));
  }
  return list;
}

std::vector<int64_t> Call::integers(std::string_view name) {
  const plan::Arg* arg = given(name);
  if (arg == nullptr) return {};
  if (arg->kind == plan::ArgKind::Int) return {arg->i};
  require(arg->kind == plan::ArgKind::Ints || arg->kind == plan::ArgKind::Bools,
          "argument '" + std::string(name) + "' must be a list of integers");
  return arg->ints;
}

int64_t Call::integer(std::string_view name, int64_t otherwise) {
  return given(name) == nullptr ? otherwise : integer(name);
}

double Call::number(std::string_view name, double otherwise) {
  return given(name) == nullptr ? otherwise : number(name);
}

std::string Call::text(std::string_view name, std::string_view otherwise) const {
  const plan::Arg* arg = given(name);
  return arg == nullptr ? std::string(otherwise) : arg->s;
}

BoundTensor Call::output(size_t index) {
  const std::string what = "result " + std::to_string(index);
  require(index < instruction_.outputs.size(), what + " is missing");
  if (!ok()) return {};
  const BoundTensor tensor = bound(instruction_.outputs[index], what);
  require(!may_overlap(tensor), "elements of " + what + " lie in one place");
  return tensor;
}

size_t Call::dim(std::string_view name, const BoundTensor& of, int64_t otherwise) {
  // A tensor without dims is treated as if it had one.
  const auto dims = std::max<int64_t>(1, static_cast<int64_t>(of.sizes.size()));
  int64_t dim = integer(name, otherwise);
  if (dim < 0) dim += dims;
  require(dim >= 0 && dim < dims, "argument '" + std::string(name) + "' is not one of its dims");
  return ok() ? static_cast<size_t>(dim) : 0;
}

void Call::same_sizes(const BoundTensor& a, const BoundTensor& b, std::optional<size_t> except) {
  bool same = a.sizes.size() == b.sizes.size();
  for (size_t dim = 0; same && dim < a.sizes.size(); ++dim)
    same = dim == except || a.sizes[dim] == b.sizes[dim];
  require(same, "its tensors differ in shape");
}

}  // namespace dc::runtime::kernel::native
