// What may be asked of a compilation; each option can change the plan. The table of them is
// compile_options.def.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/device_kind.h"
#include "src/base/status.h"
#include "src/base/step_scalars.h"
#include "src/cost/fused_network.h"
#include "src/ir/types.h"
#include "src/passes/pass.h"

namespace dc::driver {

// A plan whose chain the search tries too.
struct EarlierPlan {
  std::string file;    // to read; not part of the cache key once the rest is known
  std::string digest;  // of the plan
  std::string passes;
  std::optional<base::Bytes> planned;  // bytes of the device that they planned for; empty: no limit
};

// What stands for fused kernels that the profile does not have.
struct FusedEstimate {
  std::string choice;  // a file of weights, or kFitted; empty: fitted if the profile allows it
  std::string digest;  // of that file; completed() (compile.h) reads it
  std::shared_ptr<const cost::FusedNetwork> network{};
};
inline constexpr std::string_view kFitted = "fitted";

struct CompileOptions {
  // The runtime's own kernels where it has them: numbers that no profile changes.
  CompileOptions() { passes.providers = passes::Providers::Native; }

  int world = 1;
  int accumulation = 1;
  int threads = 1;                        // per rank
  std::optional<ir::DType> reduce_dtype;  // wire dtype of gradients
  passes::Options passes;
  std::string chain = "auto";  // a name that search::find_chain knows, or "auto": search::find_best
  std::optional<int> search_effort;  // schedules that "auto" may take the work of
  std::string own_passes;            // a chain as text instead of a name; empty: none
  FusedEstimate fused_estimate;
  EarlierPlan start_from;  // for "auto"; completed() (compile.h) reads it
  // That the plan's kernels run on. Empty: a GPU where the profile is of one (completed()), else
  // the CPU.
  std::optional<base::DeviceKind> device;
  base::DeviceKind device_kind() const { return device.value_or(base::DeviceKind::Cpu); }

  // Every option that has a value, in the table's order: "world=2 grad-accum=1 ...". Part of the
  // cache key.
  std::string canonical() const;
};

struct CompileOption {
  std::string_view flag;             // "--grad-accum"
  std::string_view value, help;      // for --help
  std::vector<std::string> choices;  // what the text may be; empty: anything that reads
  // Sets the member from text. Usage (64), DC2812, naming the flag.
  base::Status (*read)(std::string_view text, CompileOptions& options);
  // The member as text that read() takes; empty for what is not set.
  std::string (*print)(const CompileOptions& options);

  std::string_view name() const { return flag.substr(2); }  // "grad-accum"
};
std::span<const CompileOption> compile_options();

inline constexpr int kMaxWorld = base::kMaxRanks;
base::Status check(const CompileOptions& options);  // Usage (64), DC2801, naming the option

}  // namespace dc::driver
