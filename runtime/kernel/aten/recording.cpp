#include "runtime/kernel/aten/recording.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "runtime/kernel/aten/arguments.h"
#include "runtime/kernel/aten/serving_allocator.h"
#include "runtime/kernel/aten/settings.h"
#include "runtime/plan/kernel_signature.h"
#include "src/base/shape.h"

namespace dc::runtime::kernel::aten {
namespace {

constexpr int64_t kTrimBytes = 1 << 20;

base::Status refused(const plan::Instruction& instruction, const std::string& problem) {
  return base::Status(base::ErrorKind::Unsupported, "DC6113",
                      "'" + instruction.op + "' cannot be run: " + problem);
}

// Zeros that all dummy inputs share. Pages that are only read cost no memory; as indices, zeros are
// always valid.
class Dummies {
 public:
  explicit Dummies(int64_t bytes) : bytes_(static_cast<size_t>(std::max<int64_t>(bytes, 64))) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~Dummies() {
    if (ok()) munmap(data_, bytes_);
  }
  Dummies(const Dummies&) = delete;
  Dummies& operator=(const Dummies&) = delete;
  bool ok() const { return data_ != MAP_FAILED; }
  void* data() const { return data_; }
  // For integer divisors: from now on no input is 0.
  void make_positive() { std::memset(data_, 1, bytes_); }
  // For pivots of a matrix, which count its rows from 1.
  void make_ones() { std::fill_n(static_cast<int32_t*>(data_), bytes_ / sizeof(int32_t), 1); }

 private:
  size_t bytes_;
  void* data_;
};

template <typename Visit>
void for_each_input(const plan::Instruction& instruction, Visit visit) {
  for (const plan::Arg& arg : instruction.args) {
    if (arg.kind == plan::ArgKind::Tensor) visit(arg.i);
    if (arg.kind == plan::ArgKind::Tensors) {
      for (int64_t id : arg.ints) visit(id);
    }
  }
}

int64_t largest_input(const plan::Plan& plan, const plan::Instruction& instruction) {
  int64_t bytes = 0;
  for_each_input(instruction, [&](int64_t id) {
    if (id < 0) return;
    const plan::Tensor& tensor = plan.tensors[id];
    bytes =
        std::max(bytes, base::extent(tensor.sizes, tensor.strides) * base::byte_size(tensor.dtype));
  });
  return bytes;
}

// Whether the op may write this result straight into the plan's bytes.
bool fits_plan(const plan::Tensor& planned, const Produced& produced, int64_t allocated) {
  return produced.dtype == scalar_type(planned.dtype) && produced.sizes == planned.sizes &&
         same_places(produced.sizes, produced.strides, planned.strides) &&
         allocated <= base::extent(planned.sizes, planned.strides) * base::byte_size(planned.dtype);
}

// Which allocation became which wanted output, and what all results look like.
void read_results(const torch::jit::Stack& stack, const RecordingSession& session,
                  const plan::Plan& plan, const plan::Instruction& instruction,
                  Recording& recording) {
  recording.output.assign(session.allocations().size(), -1);
  for_each_result(stack, [&](size_t index, const at::Tensor* tensor) {
    Produced produced;
    bool is_copied = false;
    if (tensor != nullptr) {
      produced = {true, tensor->scalar_type(), tensor->sizes().vec(), tensor->strides().vec()};
      const bool wanted = index < instruction.outputs.size() && instruction.outputs[index] >= 0;
      const int32_t allocation = session.find(tensor->const_data_ptr());
      if (wanted && allocation >= 0 && recording.output[allocation] < 0) {
        const int64_t bytes = session.allocations()[allocation].bytes;
        if (fits_plan(plan.tensors[instruction.outputs[index]], produced, bytes)) {
          recording.output[allocation] = static_cast<int32_t>(index);
        } else {
          is_copied = true;
        }
      }
    }
    recording.is_copied.push_back(is_copied);
    recording.results.push_back(std::move(produced));
  });
}

base::Status run_once(const c10::OperatorHandle& op, const plan::Plan& plan,
                      const plan::Instruction& instruction, const torch::jit::Stack& inputs,
                      Recording& recording) {
  RecordingSession session;
  const SessionScope scope(&session);
  torch::jit::Stack stack = inputs;
  try {
    op.callBoxed(&stack);
  } catch (const c10::Error& error) {
    return refused(instruction, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return refused(instruction, error.what());
  }
  recording.allocations = session.allocations();
  read_results(stack, session, plan, instruction, recording);
  return {};
}

}  // namespace

at::Tensor borrow(void* data, base::DType dtype, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return at::from_blob(data, sizes, strides, at::TensorOptions().dtype(scalar_type(dtype)));
}

RecordingKey recording_key(const plan::Plan& plan, const plan::Instruction& instruction,
                           int threads) {
  RecordingKey key{plan::signature_of(plan, instruction), {}, threads};
  for (const plan::Arg& arg : instruction.args) key.kinds.push_back(arg.kind);
  return key;
}

base::Result<Recording> record(const c10::OperatorHandle& op, const plan::Plan& plan,
                               const plan::Instruction& instruction) {
  Dummies dummies(largest_input(plan, instruction));
  if (!dummies.ok()) return refused(instruction, "there is no memory for dummy inputs");
  const c10::InferenceMode inference;
  auto inputs = build_stack(op.schema(), instruction, [&](int64_t id) {
    const plan::Tensor& tensor = plan.tensors[id];
    return borrow(dummies.data(), tensor.dtype, tensor.sizes, tensor.strides);
  });
  if (!inputs.ok()) return std::move(inputs).status();
  const bool onednn = wants_onednn(plan, instruction);
  const OneDnnHold hold(onednn);
  Recording recording;
  const base::Status status = run_once(op, plan, instruction, *inputs, recording);
  if (!status.ok()) {
    const auto runs_again = [&] {
      recording = Recording();
      return run_once(op, plan, instruction, *inputs, recording).ok();
    };
    dummies.make_positive();
    if (!runs_again()) {
      dummies.make_ones();
      if (!runs_again()) return status;
    }
  }
  // oneDNN allocates more when it meets a shape for the first time: only the second run is typical.
  if (onednn) {
    recording = Recording();
    DC_RETURN_IF_ERROR(run_once(op, plan, instruction, *inputs, recording));
  }
  if (recording.results.size() < instruction.outputs.size()) {
    return refused(instruction, "it returns " + std::to_string(recording.results.size()) +
                                    " values, but the plan has " +
                                    std::to_string(instruction.outputs.size()));
  }
  std::vector<bool> is_scratch;
  for (int32_t output : recording.output) is_scratch.push_back(output < 0);
  recording.scratch = lay_out_scratch(recording.allocations, is_scratch);
  // What the dummy run took goes back to the system: a rank's memory is its arena and little else.
  int64_t bytes = 0;
  for (const Allocation& allocation : recording.allocations) bytes += allocation.bytes;
  if (bytes >= kTrimBytes) malloc_trim(0);
  return recording;
}

}  // namespace dc::runtime::kernel::aten
