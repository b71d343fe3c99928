#include "src/driver/provenance.h"

#include <algorithm>
#include <utility>

#include "src/base/build_id.h"
#include "src/base/text.h"
#include "src/ir/ops.h"

namespace dc::driver {
namespace {

// Kernels whose scratch depends on the CPU: convolutions, and products and attention in 16 bits.
bool has_scratch_of_its_cpu(const ir::Graph& graph, const ir::Node& node) {
  if (node.kind != ir::OpKind::Aten) return false;
  const ir::AtenClass cls = node.overload.info()->cls;
  if (cls == ir::AtenClass::Convolution)
    return node.overload.name().find("convolution") != std::string_view::npos;
  if (cls != ir::AtenClass::Matmul && cls != ir::AtenClass::Attention) return false;
  const ir::DType dtype = graph.value(node.operands[0]).type.dtype;
  return dtype == ir::DType::BF16 || dtype == ir::DType::F16;
}

// A profile made without libtorch, or before dcrun had its own kernels.
std::vector<std::string> provider_notes(const base::Measurements& measured,
                                        passes::Providers providers) {
  const auto has = [&](base::Provider provider) {
    return std::ranges::any_of(measured.kernels, [&](const base::KernelMeasurement& row) {
      return row.signature.provider() == provider && row.signature.op().starts_with("aten.");
    });
  };
  const bool has_aten = has(base::Provider::Aten), has_native = has(base::Provider::Native);
  if (has_aten == has_native) return {};
  if (has_aten && providers != passes::Providers::Aten) {
    return {
        "profile-providers: the profile knows libtorch's kernels only; those that dcrun supplies "
        "are estimated; profile again, or compile with --providers aten"};
  }
  if (has_native && providers == passes::Providers::Aten) {
    return {
        "profile-providers: the profile does not know libtorch's kernels, which are estimated; "
        "profile again where libtorch is, or compile without --providers aten"};
  }
  return {};
}

}  // namespace

std::vector<std::string> profile_notes(const profile::Profile& profile, const ir::Step& step,
                                       const CompileOptions& options) {
  const base::Measurements& measured = profile.measurements;
  std::vector<std::string> notes;
  const bool is_synthetic = measured.origin == base::ProfileOrigin::Synthetic;
  if (is_synthetic) {
    notes.push_back(
        "synthetic-profile: nothing was measured; times are from published figures of " +
        measured.machine.cpu + ", workspace is an estimate");
  }
  if (!is_synthetic && measured.model_digest != step.model_digest) {
    notes.push_back(
        "foreign-profile: the profile was measured on another model; kernels it does "
        "not know are estimated");
  }
  if (!is_synthetic && measured.machine.software != base::build_id()) {
    notes.push_back("stale-profile: the profile was measured by " + measured.machine.software +
                    ", this is " + std::string(base::build_id()));
  }
  if (!is_synthetic && measured.machine.threads != options.threads) {
    notes.push_back("profile-threads: the profile was measured with " +
                    std::to_string(measured.machine.threads) +
                    " thread(s) per rank, the plan uses " + std::to_string(options.threads));
  }
  const auto is_gpu = [](base::DeviceKind kind) { return kind == base::DeviceKind::Cuda; };
  const base::DeviceKind here = measured.machine.device, there = options.device_kind();
  if (!is_synthetic && is_gpu(here) != is_gpu(there)) {
    notes.push_back("profile-device: the profile was measured on device '" +
                    std::string(base::name(here)) + "', the plan is for device '" +
                    std::string(base::name(there)) + "'; its times and workspace are of the other");
  }
  if (measured.machine.ranks != options.world && options.world > 1) {
    notes.push_back("profile-ranks: the profile is of " +
                    base::count_of(measured.machine.ranks, "rank") + ", the collectives of " +
                    base::count_of(options.world, "rank") + " are estimated");
  } else if (!is_synthetic && options.world > 1 && !measured.complete.collectives) {
    notes.push_back(
        "partial-profile: the profile has collectives of the sizes of one step only, none of them "
        "concurrent with compute; others are estimated, and overlap is taken to cost nothing");
  } else if (!is_synthetic && options.world > 1 && !measured.complete.during_compute) {
    notes.push_back(
        "partial-profile: the profile has no collectives concurrent with compute; overlap is taken "
        "to cost "
        "nothing");
  }
  for (std::string& note : provider_notes(measured, options.passes.providers))
    notes.push_back(std::move(note));
  return notes;
}

void add_library_memory(const base::MachineIdentity& machine, runtime::plan::Plan& plan) {
  if (plan.device != base::DeviceKind::Cuda || !machine.gpu) return;
  const int64_t more = machine.gpu->library_bytes, all = machine.gpu->memory_bytes;
  plan.prediction.library_bytes = more;
  const int64_t arena = plan.arena_bytes.front();
  if (arena + more <= all) return;
  plan.notes.push_back("beyond-gpu: the plan's " + base::format_bytes(arena) + " and " +
                       base::format_bytes(more) + " for libraries are more than the " +
                       base::format_bytes(all) + " of the GPU that was measured; --memory " +
                       std::to_string(all - more) + " fits it");
}

std::vector<std::string> estimate_notes(const ir::Step& step, const CompileOptions& options) {
  if (options.device == base::DeviceKind::Cuda) return {};
  int64_t kernels = 0;
  for (const ir::Program& program : step.programs) {
    for (ir::NodeId id = program.graph.first(); id.valid(); id = program.graph.next(id)) {
      kernels += has_scratch_of_its_cpu(program.graph, program.graph.node(id)) ? 1 : 0;
    }
  }
  if (kernels == 0) return {};
  return {"estimated-scratch: without a profile the scratch of " +
          base::count_of(kernels, "kernel") +
          " (convolutions, 16-bit products) is an estimate; where a CPU needs more, dcrun takes it "
          "on top of the plan's memory and says so; dcc profile measures it"};
}

}  // namespace dc::driver
