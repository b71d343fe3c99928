// Parameters and buffers out of files: their elements, and what does not fit, said in one message.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/kernel/elements.h"
#include "runtime/train/weights.h"

namespace dc::runtime::train {

// Elements in memory, with whatever keeps that memory.
class StoredElements final : public ElementSource {
 public:
  StoredElements(std::shared_ptr<const void> owner, const uint8_t* data, base::DType dtype,
                 std::vector<int64_t> sizes, std::vector<int64_t> strides);

  base::Status read(int64_t first, int64_t count, base::DType through, base::DType to,
                    void* out) const override;

 private:
  std::shared_ptr<const void> owner_;
  const uint8_t* data_;
  base::DType dtype_;
  std::vector<int64_t> sizes_, strides_;
  kernel::ElementWalk walk_;  // of the two before it
};

// What a file of weights must hold for a plan, by name.
struct WantedTensor {
  std::vector<std::string> names;  // the canonical one, then tied ones
  base::DType dtype = base::DType::F32;
  std::vector<int64_t> sizes;
};
WantedTensor wanted(const plan::Parameter& parameter);
WantedTensor wanted(const plan::Buffer& buffer);

// Buffers that the run reads from the weights, by index; the others travel inside the plan.
std::vector<bool> wanted_buffers(const plan::Plan& plan);

// Complaints about many tensors, so that the user sees all of them at once.
class WeightComplaints {
 public:
  void miss(const std::string& name) { missing_.push_back(name); }
  void refuse(const std::string& what) { unfit_.push_back(what); }
  void refuse_shape(const std::string& name, const std::vector<int64_t>& there,
                    const std::vector<int64_t>& planned);
  // Those of `stored` that are the name of nothing in the plan.
  void find_unused(const std::vector<std::string>& stored, const plan::Plan& plan);

  // Empty if none; for a note where they are allowed.
  std::string unused_text() const;
  // BadInput (unfit), MissingInput (missing), or Mismatch (unused, unless allowed).
  base::Status status(const std::string& path, bool unused_allowed) const;

 private:
  std::vector<std::string> missing_, unfit_, unused_;
};

}  // namespace dc::runtime::train
