#include "runtime/plan/names.h"

#include "src/base/enum_names.h"

namespace dc::runtime::plan {
namespace {

constexpr auto kArgKinds = base::enum_names<ArgKind>(
    {"none", "tensor", "tensors", "int", "ints", "float", "floats", "bool", "bools", "string",
     "dtype", "device", "layout", "memory_format"});
constexpr auto kInstructions =
    base::enum_names<InstructionKind>({"kernel", "collective", "copy", "signal", "wait"});
constexpr auto kSources = base::enum_names<StateSource>(
    {"zeros", "parameter_whole", "parameter_shard", "buffer", "data", "runtime"});
constexpr auto kPurposes = base::enum_names<Purpose>({"train", "evaluate"});
constexpr auto kReductionOrders =
    base::enum_names<ReductionOrder>({"unknown", "per-step", "per-micro-batch"});
constexpr auto kFigureOriginNames = base::enum_names<FigureOrigin>(
    {"unknown", "measured", "interpolated", "extrapolated", "table", "learned", "closed form"});

}  // namespace

std::string_view name(ArgKind value) { return base::enum_name(kArgKinds, value); }
std::string_view name(InstructionKind value) { return base::enum_name(kInstructions, value); }
std::string_view name(StateSource value) { return base::enum_name(kSources, value); }
std::string_view name(Purpose value) { return base::enum_name(kPurposes, value); }
std::string_view name(ReductionOrder value) { return base::enum_name(kReductionOrders, value); }
std::string_view name(FigureOrigin value) { return base::enum_name(kFigureOriginNames, value); }

}  // namespace dc::runtime::plan
