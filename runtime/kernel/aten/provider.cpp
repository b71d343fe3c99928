// The aten provider: any op that libtorch's dispatcher knows, on planned addresses.
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <atomic>
#include <map>
#include <mutex>

#include "runtime/kernel/aten/arguments.h"
#include "runtime/kernel/aten/plugin.h"
#include "runtime/kernel/aten/recording.h"
#include "runtime/kernel/aten/serving_allocator.h"
#include "runtime/kernel/aten/settings.h"
#include "runtime/kernel/extra_scratch.h"
#include "src/base/interface_id.h"
#include "src/base/shape.h"

namespace dc::runtime::kernel::aten {
namespace {

base::Status failure(base::ErrorKind kind, const char* code, const plan::Instruction& instruction,
                     const std::string& problem) {
  base::Status status(kind, code, "'" + instruction.op + "' " + problem);
  if (!instruction.module.empty()) status.add_context("in module " + instruction.module);
  return status;
}

base::Status unsupported(const plan::Instruction& instruction, const std::string& problem) {
  return failure(base::ErrorKind::Unsupported, "DC6114", instruction, problem);
}

// Lives as long as the provider or one of its kernels.
class Shared {
 public:
  ~Shared() {
    for (const auto& [stream, block] : extra.blocks()) remove_planned_range(block.data);
    for (const Arena& arena : arenas_) {
      remove_planned_range(arena.base);
      if (arena.resolved != arena.base) remove_planned_range(arena.resolved);
    }
  }

  // Declares the arena around a slice, once.
  bool add_arena(const AddressMap& addresses, int32_t slice) {
    const plan::Plan& plan = addresses.plan();
    const std::byte* base = addresses.slice(slice) - plan.slices[slice].offset;
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Arena& known : arenas_) {
      if (known.base == base) return true;
    }
    const size_t device = static_cast<size_t>(plan::Space::Device);
    int64_t bytes = device < plan.arena_bytes.size() ? plan.arena_bytes[device] : 0;
    for (const plan::Slice& entry : plan.slices) {
      if (entry.space == plan::Space::Device) bytes = std::max(bytes, entry.offset + entry.bytes);
    }
    if (!add_planned_range(base, bytes)) return false;
    arenas_.push_back({base, base, bytes});
    return true;
  }

  // Declares the arenas where the stream's kernels find them, too.
  bool resolve_arenas(const device::Stream& stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Arena& arena : arenas_) {
      const std::byte* resolved = stream.resolve(arena.base);
      if (resolved == arena.resolved) continue;
      if (!add_planned_range(resolved, arena.bytes)) return false;
      arena.resolved = resolved;
    }
    return true;
  }

  std::atomic<int64_t> repairs{0};
  ExtraScratch extra;

 private:
  struct Arena {
    const std::byte *base, *resolved;
    int64_t bytes;
  };
  std::mutex mutex_;
  std::vector<Arena> arenas_;
};

// Recordings of the whole process: ranks that are threads share them.
class Recordings {
 public:
  base::Result<std::shared_ptr<const Recording>> get(const c10::OperatorHandle& op,
                                                     const plan::Plan& plan,
                                                     const plan::Instruction& instruction,
                                                     int threads) {
    const RecordingKey key = recording_key(plan, instruction, threads);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    auto recording = record(op, plan, instruction);
    if (!recording.ok()) return std::move(recording).status();
    auto shared = std::make_shared<const Recording>(std::move(recording).value());
    known_.emplace(key, shared);
    return shared;
  }

  static Recordings& instance() {
    static auto* recordings = new Recordings;  // outlives every thread
    return *recordings;
  }

 private:
  std::mutex mutex_;
  std::map<RecordingKey, std::shared_ptr<const Recording>> known_;
};

// A wanted output and where it must be.
struct Wanted {
  BoundTensor place;       // without data: not wanted
  bool is_copied = false;  // the op cannot write it at `place`, see Recording::output
};

class AtenKernel final : public Kernel {
 public:
  AtenKernel(const c10::OperatorHandle& op, std::string name, int threads, bool onednn,
             std::shared_ptr<Shared> shared)
      : op_(op),
        name_(std::move(name)),
        threads_(threads),
        onednn_(onednn),
        shared_(std::move(shared)) {}

  void set_inputs(torch::jit::Stack inputs) {
    inputs_ = std::move(inputs);
    stack_.reserve(std::max(inputs_.size(), op_.schema().returns().size()) + 1);
  }
  void set_outputs(std::vector<Wanted> outputs) { outputs_ = std::move(outputs); }
  ReplaySession& session() { return session_; }

  base::Status launch(device::Stream& stream) override {
    if (!is_resolved_) DC_RETURN_IF_ERROR(resolve_addresses(stream));
    use_threads(threads_);
    const OneDnnHold hold(onednn_);
    const c10::InferenceMode inference;
    const SessionScope scope(&session_);
    session_.restart();
    const int64_t before = session_.unexpected();
    base::Status status = call();
    stack_.clear();
    if (const int64_t more = session_.unexpected() - before; more != 0) shared_->repairs += more;
    return status;
  }

 private:
  // At the first launch, because only then the planned bytes are within reach; a kernel stays on
  // its stream.
  base::Status resolve_addresses(const device::Stream& stream) {
    if (!shared_->resolve_arenas(stream)) return failed("there are too many arenas");
    resolve(inputs_, stream);
    session_.resolve(stream);
    for (Wanted& output : outputs_) output.place.data = stream.resolve(output.place.data);
    is_resolved_ = true;
    return {};
  }

  base::Status call() {
    try {
      stack_ = inputs_;
      op_.callBoxed(&stack_);
    } catch (const c10::Error& error) {
      return failed(error.what_without_backtrace());
    } catch (const std::exception& error) {
      return failed(error.what());
    }
    bool complete = true;
    for_each_result(stack_, [&](size_t index, const at::Tensor* tensor) {
      const auto& [place, is_copied] = outputs_[index];
      if (place.data == nullptr || base::extent(place.sizes, place.strides) == 0) return;
      complete = complete && tensor != nullptr;
      if (tensor == nullptr || tensor->const_data_ptr() == place.data) return;
      copy_strided(place.data, place.strides, tensor->const_data_ptr(), tensor->strides(),
                   place.sizes, base::byte_size(place.dtype));
      if (!is_copied) ++shared_->repairs;
    });
    return complete ? base::ok_status()
                    : failed("it returned nothing where the plan expects a tensor");
  }

  base::Status failed(const std::string& why) const {
    return base::Status(base::ErrorKind::Internal, "DC6116", "'" + name_ + "' failed: " + why);
  }

  c10::OperatorHandle op_;
  std::string name_;
  int threads_;
  bool onednn_;
  std::shared_ptr<Shared> shared_;
  torch::jit::Stack inputs_, stack_;
  std::vector<Wanted> outputs_;
  ReplaySession session_;
  bool is_resolved_ = false;
};

base::Status check_output(const plan::Plan& plan, const plan::Instruction& instruction,
                          size_t index, const Produced& produced) {
  const std::string which = "result " + std::to_string(index);
  if (!produced.is_tensor)
    return unsupported(instruction, "returns no tensor as " + which + ", but the plan expects one");
  const plan::Tensor& tensor = plan.tensors[instruction.outputs[index]];
  constexpr const char* kCure =
      "; the archive is damaged or of another PyTorch: export the model again and compile it";
  if (produced.dtype != scalar_type(tensor.dtype)) {
    return unsupported(instruction, "gives " + which + " another element type than the plan's " +
                                        std::string(base::name(tensor.dtype)) + kCure);
  }
  if (produced.sizes != tensor.sizes) {
    return unsupported(instruction, "gives " + which + " the sizes " +
                                        base::shape_text(produced.sizes) + ", but the plan has " +
                                        base::shape_text(tensor.sizes) + kCure);
  }
  return {};
}

class Provider final : public KernelProvider {
 public:
  explicit Provider(int threads) : threads_(threads), shared_(std::make_shared<Shared>()) {}

  std::string_view name() const override { return "aten"; }
  int64_t repairs() const override { return shared_->repairs; }

  base::Result<int64_t> measure_scratch(const plan::Instruction& instruction,
                                        const AddressMap& addresses) override {
    DC_ASSIGN_OR_RETURN(const c10::OperatorHandle op, resolve(instruction));
    DC_ASSIGN_OR_RETURN(const auto recording, recorded(op, instruction, addresses.plan()));
    return recording->scratch.bytes;
  }

  base::Result<MissingScratch> take_missing_scratch(const AddressMap& addresses) override {
    DC_ASSIGN_OR_RETURN(MissingScratch missing,
                        shared_->extra.take_missing(addresses.plan(), plan::Provider::Aten,
                                                    [&](const plan::Instruction& instruction) {
                                                      return measure_scratch(instruction,
                                                                             addresses);
                                                    }));
    for (const auto& [stream, block] : shared_->extra.blocks()) {
      if (!add_planned_range(block.data, block.bytes)) {
        return base::Status(base::ErrorKind::Internal, "DC6117",
                            "scratch beyond the plan is an arena too many: at most 256 ranks per "
                            "process");
      }
    }
    return missing;
  }

  base::Result<std::unique_ptr<Kernel>> prepare(const plan::Instruction& instruction,
                                                const AddressMap& addresses) override {
    const plan::Plan& plan = addresses.plan();
    DC_ASSIGN_OR_RETURN(const c10::OperatorHandle op, resolve(instruction));
    DC_ASSIGN_OR_RETURN(const auto recording, recorded(op, instruction, plan));
    const int64_t planned = planned_scratch(plan, instruction);
    const bool is_short = recording->scratch.bytes > planned;
    std::byte* extra =
        is_short ? shared_->extra.find(instruction.stream, recording->scratch.bytes) : nullptr;
    if (is_short && extra == nullptr)
      return too_little_scratch(plan, instruction, recording->scratch.bytes);
    auto kernel = std::make_unique<AtenKernel>(op, instruction.op, threads_,
                                               wants_onednn(plan, instruction), shared_);
    const c10::InferenceMode inference;
    DC_ASSIGN_OR_RETURN(auto inputs, build_stack(op.schema(), instruction, [&](int64_t id) {
                          const BoundTensor bound = addresses.bind(static_cast<int32_t>(id));
                          return borrow(bound.data, bound.dtype, bound.sizes, bound.strides);
                        }));
    kernel->set_inputs(std::move(inputs));
    DC_RETURN_IF_ERROR(bind_outputs(instruction, addresses, *recording, extra, *kernel));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

 private:
  base::Result<c10::OperatorHandle> resolve(const plan::Instruction& instruction) const {
    // "aten.mm.default" is the operator "aten::mm" with an empty overload name.
    const std::string& op = instruction.op;
    const size_t space = op.find('.'), overload = op.rfind('.');
    if (space == std::string::npos || space == overload)
      return unsupported(instruction, "is not the name of an ATen overload");
    const std::string variant = op.substr(overload + 1);
    const auto found = c10::Dispatcher::singleton().findSchema(
        {op.substr(0, space) + "::" + op.substr(space + 1, overload - space - 1),
         variant == "default" ? "" : variant});
    if (!found) return unsupported(instruction, "is unknown to this libtorch");
    if (found->schema().is_mutable())
      return unsupported(instruction, "changes its arguments; plans are functional");
    return *found;
  }

  base::Result<std::shared_ptr<const Recording>> recorded(const c10::OperatorHandle& op,
                                                          const plan::Instruction& instruction,
                                                          const plan::Plan& plan) const {
    use_threads(threads_);
    auto recording = Recordings::instance().get(op, plan, instruction, threads_);
    if (!recording.ok()) return recording;
    for (size_t i = 0; i < instruction.outputs.size(); ++i) {
      if (instruction.outputs[i] < 0) continue;
      DC_RETURN_IF_ERROR(check_output(plan, instruction, i, (*recording)->results[i]));
    }
    return recording;
  }

  // Tells the kernel where its results belong and serves the recorded allocations from there and
  // from scratch.
  base::Status bind_outputs(const plan::Instruction& instruction, const AddressMap& addresses,
                            const Recording& recording, std::byte* extra,
                            AtenKernel& kernel) const {
    const plan::Plan& plan = addresses.plan();
    std::vector<Wanted> outputs(recording.results.size());
    for (size_t i = 0; i < instruction.outputs.size(); ++i) {
      if (instruction.outputs[i] < 0) continue;
      outputs[i] = {addresses.bind(instruction.outputs[i]), recording.is_copied[i]};
      if (!shared_->add_arena(addresses, plan.tensors[instruction.outputs[i]].slice))
        return too_many_arenas(instruction);
    }
    const bool has_scratch = extra == nullptr && instruction.scratch >= 0;
    std::byte* scratch = has_scratch ? addresses.slice(instruction.scratch) : extra;
    if (has_scratch && !shared_->add_arena(addresses, instruction.scratch))
      return too_many_arenas(instruction);
    for (size_t k = 0; k < recording.allocations.size(); ++k) {
      const int32_t output = recording.output[k];
      void* place =
          output >= 0 ? outputs[output].place.data : scratch + recording.scratch.offsets[k];
      kernel.session().add(place, recording.allocations[k].bytes);
    }
    kernel.set_outputs(std::move(outputs));
    return {};
  }

  static base::Status too_many_arenas(const plan::Instruction& instruction) {
    return failure(base::ErrorKind::Internal, "DC6117", instruction,
                   "belongs to an arena too many: at most 256 ranks per process");
  }

  int threads_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace
}  // namespace dc::runtime::kernel::aten

extern "C" __attribute__((visibility("default"))) dc::runtime::kernel::KernelProvider*
dcrun_aten_open(int threads, std::string* problem) {
  using namespace dc::runtime::kernel::aten;
  try {
    static const bool ready = [] {
      dc::runtime::kernel::aten::install_serving_allocator();
      at::set_num_interop_threads(1);
      return true;
    }();
    (void)ready;
    dc::runtime::kernel::aten::use_threads(threads);
    return new dc::runtime::kernel::aten::Provider(threads);
  } catch (const std::exception& error) {
    *problem = error.what();
    return nullptr;
  }
}

DC_PLUGIN_INTERFACE
