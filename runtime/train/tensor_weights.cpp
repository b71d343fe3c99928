#include <algorithm>

#include "runtime/train/stored_elements.h"
#include "runtime/train/weight_files.h"
#include "runtime/train/weights.h"
#include "src/base/shape.h"

namespace dc::runtime::train {
namespace {

using base::Result;
using base::Status;

// Tied names that are all there must hold the same bytes: one parameter has one value.
bool agree_on_bytes(const StoredTensor& a, const StoredTensor& b) {
  const auto first = a.file->bytes(*a.tensor), second = b.file->bytes(*b.tensor);
  return a.tensor->dtype == b.tensor->dtype && a.tensor->shape == b.tensor->shape &&
         std::equal(first.begin(), first.end(), second.begin(), second.end());
}

std::unique_ptr<ElementSource> find(const WeightFiles& files, const WantedTensor& wanted,
                                    WeightComplaints& complaints) {
  StoredTensor found;
  for (const std::string& name : wanted.names) {
    const StoredTensor other = files.find(name);
    if (other.tensor == nullptr) continue;
    if (found.tensor == nullptr) {
      found = other;
    } else if (!agree_on_bytes(found, other)) {
      complaints.refuse("'" + found.tensor->name + "' and '" + name +
                        "' are one tied parameter in the plan but differ in the file");
    }
  }
  if (found.tensor == nullptr) {
    complaints.miss(wanted.names.front());
    return nullptr;
  }
  if (found.tensor->shape != wanted.sizes) {
    complaints.refuse_shape(found.tensor->name, found.tensor->shape, wanted.sizes);
    return nullptr;
  }
  if (base::is_floating(found.tensor->dtype) != base::is_floating(wanted.dtype)) {
    complaints.refuse("'" + found.tensor->name + "' is " +
                      std::string(base::name(found.tensor->dtype)) + " but the plan's is " +
                      std::string(base::name(wanted.dtype)));
    return nullptr;
  }
  return std::make_unique<StoredElements>(found.file, found.file->bytes(*found.tensor).data(),
                                          found.tensor->dtype, wanted.sizes,
                                          base::contiguous_strides(wanted.sizes));
}

}  // namespace

Result<WeightSet> open_tensor_weights(const std::string& path, const plan::Plan& plan,
                                      const WeightRequest& request) {
  DC_ASSIGN_OR_RETURN(const WeightFiles files, WeightFiles::open(path));
  WeightSet set;
  WeightComplaints complaints;
  for (const plan::Parameter& parameter : plan.parameters) {
    set.parameters.push_back(find(files, wanted(parameter), complaints));
  }
  const std::vector<bool> is_wanted = wanted_buffers(plan);
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    set.buffers.push_back(is_wanted[i] ? find(files, wanted(plan.buffers[i]), complaints)
                                       : nullptr);
  }
  complaints.find_unused(files.names(), plan);
  DC_RETURN_IF_ERROR(complaints.status(path, request.only_by_name));
  set.unused = complaints.unused_text();
  return set;
}

}  // namespace dc::runtime::train
