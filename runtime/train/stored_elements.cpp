#include "runtime/train/stored_elements.h"

#include <algorithm>
#include <unordered_set>

#include "src/base/shape.h"

namespace dc::runtime::train {
namespace {

using base::DType;
using base::ErrorKind;
using base::Status;

std::string listed(const std::vector<std::string>& items) {
  constexpr size_t kShown = 12;
  std::string text;
  for (size_t i = 0; i < std::min(items.size(), kShown); ++i) text += (i ? ", " : "") + items[i];
  if (items.size() > kShown) text += " and " + std::to_string(items.size() - kShown) + " more";
  return text;
}

}  // namespace

StoredElements::StoredElements(std::shared_ptr<const void> owner, const uint8_t* data, DType dtype,
                               std::vector<int64_t> sizes, std::vector<int64_t> strides)
    : owner_(std::move(owner)),
      data_(data),
      dtype_(dtype),
      sizes_(std::move(sizes)),
      strides_(std::move(strides)),
      walk_(sizes_, strides_) {}

Status StoredElements::read(int64_t first, int64_t count, DType through, DType to,
                            void* out) const {
  const int64_t in_bytes = base::byte_size(dtype_), out_bytes = base::byte_size(to);
  if (walk_.contiguous()) {
    kernel::convert(dtype_, data_ + first * in_bytes, through, to, out, count);
    return base::ok_status();
  }
  for (int64_t i = 0; i < count; ++i) {
    kernel::convert(dtype_, data_ + walk_.offset(first + i) * in_bytes, through, to,
                    static_cast<std::byte*>(out) + i * out_bytes, 1);
  }
  return base::ok_status();
}

WantedTensor wanted(const plan::Parameter& parameter) {
  WantedTensor tensor{{parameter.fqn}, parameter.dtype, parameter.sizes};
  tensor.names.insert(tensor.names.end(), parameter.aliases.begin(), parameter.aliases.end());
  return tensor;
}

WantedTensor wanted(const plan::Buffer& buffer) {
  return {{buffer.fqn}, buffer.dtype, buffer.sizes};
}

std::vector<bool> wanted_buffers(const plan::Plan& plan) {
  std::vector<bool> wanted(plan.buffers.size(), false);
  for (const plan::StateEntry& entry : plan.state) {
    if (entry.source == plan::StateSource::Buffer && entry.buffer >= 0) {
      wanted[static_cast<size_t>(entry.buffer)] = true;
    }
  }
  return wanted;
}

void WeightComplaints::refuse_shape(const std::string& name, const std::vector<int64_t>& there,
                                    const std::vector<int64_t>& planned) {
  refuse("'" + name + "' has shape " + base::shape_text(there) + " but the plan's is " +
         base::shape_text(planned));
}

void WeightComplaints::find_unused(const std::vector<std::string>& stored, const plan::Plan& plan) {
  std::unordered_set<std::string> known;
  for (const plan::Parameter& parameter : plan.parameters) {
    known.insert(parameter.fqn);
    known.insert(parameter.aliases.begin(), parameter.aliases.end());
  }
  for (const plan::Buffer& buffer : plan.buffers) known.insert(buffer.fqn);
  for (const std::string& name : stored) {
    if (!known.contains(name)) unused_.push_back(name);
  }
}

std::string WeightComplaints::unused_text() const {
  if (unused_.empty()) return "";
  return std::to_string(unused_.size()) + " of its tensors are not in the plan: " + listed(unused_);
}

Status WeightComplaints::status(const std::string& path, bool unused_allowed) const {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  if (!unfit_.empty()) add(listed(unfit_));
  if (!missing_.empty()) {
    add("it lacks " + std::to_string(missing_.size()) +
        " of the plan's tensors: " + listed(missing_));
  }
  const bool has_unused = !unused_.empty() && !unused_allowed;
  if (has_unused) add(unused_text());
  if (!unfit_.empty()) {
    return Status(ErrorKind::BadInput, "DC6421",
                  path + ": " + text + "; give weights of the model that was compiled");
  }
  if (!missing_.empty()) {
    return Status(ErrorKind::MissingInput, "DC6422",
                  path + ": " + text + "; give a file that has them, or --weights init:SEED");
  }
  if (!has_unused) return base::ok_status();
  return Status(ErrorKind::Mismatch, "DC6423",
                path + ": " + text +
                    "; give weights of the model that was compiled, or, if these are meant to be "
                    "left out, use --weights-only-by-name");
}

}  // namespace dc::runtime::train
