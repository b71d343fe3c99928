// CostModel: predicted time and scratch memory of kernels, collectives and copies, with the origin
// of every figure. Times are of one thing running alone; `contention` says what changes next to
// others.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/collective_level.h"
#include "src/base/kernel_signature.h"
#include "src/base/step_enums.h"
#include "src/base/units.h"
#include "src/ir/graph.h"

namespace dc::cost {

// Where a figure comes from.
// Measured: exactly this kernel or size was measured.
// Interpolated: from measured sizes of the same kind.
// Extrapolated: larger than any measured size, or measured for another number of ranks.
// Analytic: from the rates of a machine.
// Learned: of a fused kernel, from other fused kernels that were measured.
// ClosedForm: of a fused kernel, from what its operations take apart.
enum class Source : uint8_t { Measured, Interpolated, Extrapolated, Analytic, Learned, ClosedForm };
inline constexpr int kSources = 6;

struct Estimate {
  base::Nanos time;
  Source source = Source::Analytic;
};
struct Scratch {
  base::Bytes bytes;
  Source source = Source::Analytic;
};

// How much a collective and compute slow each other down while both run: the time of each when
// concurrent, in thousandths of its time alone. `shared`: of the wire part while other collectives
// use the link, in thousandths of what it takes at an even share of the rate. Never below 1000.
struct Contention {
  int32_t collective = 1000, compute = 1000, shared = 1000;
  bool operator==(const Contention&) const = default;
};

// The ranks that meet, and over which links.
using Level = base::CollectiveLevel;
struct Group {
  int size = 1;
  Level level = Level::World;

  Group(int size, Level level = Level::World) : size(size), level(level) {}  // NOLINT: the world
  bool operator==(const Group&) const = default;
};
// On a mesh of hosts and the ranks of each, a group along the last axis is inside a host, and one
// without it is across hosts.
Group group_on(const ir::Mesh& mesh, ir::AxisMask axes);

using Collective = base::CollectiveKind;

inline constexpr const char* kGenericCpu = "a generic CPU";

class CostModel {
 public:
  CostModel();
  virtual ~CostModel();
  CostModel(CostModel&&) noexcept;
  CostModel& operator=(CostModel&&) noexcept;

  // Of the provider that the signature names; of a node, the one that its plan will run. Each
  // signature is worked out once and remembered. A node without a kernel costs nothing.
  Estimate compute(const base::KernelSignature& kernel) const;
  Estimate compute(const ir::Graph& graph, const ir::Node& node) const;
  Scratch scratch(const base::KernelSignature& kernel) const;
  Scratch scratch(const ir::Graph& graph, const ir::Node& node) const;
  // `bytes`: the whole value in its wire dtype.
  virtual Estimate collective(Collective kind, base::Bytes bytes, Group group) const = 0;
  // The part of that time in which the link carries nothing: collectives on several streams share
  // the link, not this.
  virtual base::Nanos latency(Collective, Group) const { return {}; }
  virtual Contention contention(Collective, base::Bytes, Group) const { return {}; }
  // Sizes, ascending, at which the figures of a collective bend: between two of them, below the
  // first and above the last, time and latency are linear in the bytes, and so is contention.
  virtual std::vector<base::Bytes> bends(Collective, Group) const { return {}; }
  virtual Estimate copy(base::Bytes bytes, ir::Space from, ir::Space to) const = 0;
  // Of a fused kernel, from kernels that were measured; not remembered, so that a search may ask
  // for many. Nothing: the model knows no better than the operations apart.
  virtual bool knows_fused_kernels() const { return false; }
  virtual std::optional<Estimate> fused(const base::KernelSignature&) const { return std::nullopt; }
  // Whose rates stand behind figures from a table.
  virtual std::string table() const { return kGenericCpu; }
  virtual std::string origin() const = 0;  // "generic cpu table" or "profile <digest>"

 private:
  virtual Estimate kernel_time(const base::KernelSignature& kernel) const = 0;
  virtual Scratch kernel_scratch(const base::KernelSignature& kernel) const = 0;

  class KnownKernels;
  std::unique_ptr<KnownKernels> known_;
};

}  // namespace dc::cost
