// Step: one training step = a list of (graph, repeat) over one shared state, on one mesh.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/step_enums.h"
#include "src/ir/graph.h"

namespace dc::ir {

using base::InitKind;
using base::InputRole;
using base::OptimizerKind;
using base::ScheduleKind;
using base::StateRole;

enum class Stage : uint8_t { Imported, Normalized, Sharded, Scheduled, Allocated };

struct InputSpec {
  std::string name;
  InputRole role = InputRole::Float;
  double low = 0, high = 1;  // high exclusive for integers
  TensorType type;           // of one micro-batch on one rank
  bool next = false;         // labels: the token after each position (the model does not shift)
  bool guessed = false;      // nothing in the graph bounds the values: the range is only drawn from
  int64_t ignored = base::kIgnoredLabel;  // a label that the loss leaves out, in the range or not
};

struct Initializer {
  InitKind kind = InitKind::Unknown;
  double a = 0, b = 0;  // normal: mean, std; uniform: low, high; constant: a
  // The row (index of the first dim) that is zeros whatever the rule: an embedding's padding; -1:
  // none. The other rows are drawn as they would be without it.
  int64_t zero_row = -1;
};

// Where the bytes of a tensor lie in the archive. Empty entry: headless, no bytes.
struct ArchiveRecord {
  std::string entry;  // "data/weights/weight_3", below the archive's root folder
  DType dtype = DType::F32;
  Shape shape;
  Strides strides;
  int64_t offset = 0;  // elements
};

enum class ParameterPlacement : uint8_t { Resident, GatheredPerUse };
enum class GradientPlacement : uint8_t { WholeUntilLast, ShardedEachMicroBatch };
enum class StatePlacement : uint8_t { Replicated, Sharded };

struct Parameter {
  std::string fqn;                   // canonical
  std::vector<std::string> aliases;  // tied names
  DType dtype = DType::F32;
  Shape shape;
  bool trainable = true;  // has a gradient in the graph
  Initializer initializer;
  ArchiveRecord record;
  ParameterPlacement placement = ParameterPlacement::Resident;
  GradientPlacement gradient = GradientPlacement::WholeUntilLast;
  StatePlacement state = StatePlacement::Replicated;
  int group = 0;      // index into Step::optimizer.groups
  int64_t shard = 0;  // elements of one flat shard, padding included; set by shard-parameters
  int64_t numel() const;
};

struct Buffer {  // a module buffer or a lifted constant
  std::string fqn;
  TensorType type;
  bool persistent = true;
  bool is_constant = false;  // never written by the graph
  Initializer initializer;
  ArchiveRecord record;
  std::vector<uint8_t> data;  // bytes of non-persistent buffers and constants (they travel inside
                              // the plan); contiguous
};

struct StateEntry {
  std::string name;  // unique, for example "shard.model.embed.weight"
  StateRole role = StateRole::Parameter;
  int parameter = -1;  // index into Step::parameters, or -1
  int buffer = -1;     // index into Step::buffers, or -1
  TensorType type;     // local
  // If set, this entry is this rank's range of another entry (without storage): elements
  // [i * type.numel(), ...) for the rank's index i along range_axes().
  int range_of = -1;  // index into Step::state
  int64_t storage_elements =
      0;              // elements reserved, >= type.numel() (a whole value padded to N * shard)
  Location location;  // one with `range_of` lies in the same space as that entry
};

// Along which axes ranks have different ranges of the entry that this one is a range of: those
// along which its type is a flat shard; all, if it does not say (rows of a table of all ranks).
AxisMask range_axes(const StateEntry& entry);

// The state entries in order. They are added at the end and stay; their names do not change.
class StateTable {
 public:
  void push_back(StateEntry entry);
  int find(std::string_view name) const;  // index, the first of several; -1 if absent

  // To change all but the name. As of a Shared: references that [] gave before may not see it.
  StateEntry& edit(size_t index) { return entries_.edit()[index]; }

  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  const StateEntry& operator[](size_t index) const { return entries_[index]; }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  Shared<std::vector<StateEntry>> entries_;
  NameTable by_name_;
};

struct OptimizerGroup {  // group 0 is the default
  std::string match = "*";
  double lr = 1e-3, weight_decay = 0.01;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  // AdamW
  double momentum = 0, dampening = 0;             // SGD
  bool nesterov = false;
};
struct Optimizer {
  OptimizerKind kind = OptimizerKind::AdamW;
  std::vector<OptimizerGroup> groups = {OptimizerGroup{}};
  bool clip = false;
  double clip_norm = 1.0;
  uint64_t seed = 0;
  ScheduleKind schedule = ScheduleKind::Constant;
  int64_t warmup_steps = 0, total_steps = 0;
  double final_lr_fraction = 0;
};

struct Program {
  Graph graph;
  int repeat = 1;
};

// The forward in eval mode up to its loss, as imported: it reads the step's parameters and buffers
// by the names of their state entries and writes nothing. Passes leave it alone until the step has
// its addresses (src/passes/evaluation); printed steps do not show it.
struct Evaluation {
  Graph graph;
  std::vector<InputSpec> inputs;
  std::string digest;  // SHA-256 of the archive's entry, hex
};

struct Step {
  std::string name;
  Stage stage = Stage::Imported;
  Mesh mesh;
  int accumulation = 1;                       // micro-batches per step
  std::optional<DType> reduce_dtype;          // wire dtype of gradients; empty: each gradient's own
  std::vector<InputSpec> inputs;              // loss_scale, if the graph has one, is the last
  Shared<std::vector<Parameter>> parameters;  // in the order of the archive's signature
  std::vector<Buffer> buffers;
  Optimizer optimizer;
  StateTable state;
  std::vector<std::string> streams = {"compute"};
  std::vector<Program> programs;  // imported: one graph; sharded: [accumulate x (GA - 1),] step
  PerSpace<int64_t> arena_bytes;  // set by layout-arenas
  // Of the archive, by part (src/base/archive/step_digest.h); empty for steps from text.
  std::vector<std::string> step_digest;
  std::string model_digest;  // SHA-256 of the archive's canonical graph, hex

  std::shared_ptr<const Evaluation> evaluation;  // null: the archive has none
};

std::string print(const Step& step);                 // stable, complete
base::Result<Step> parse(std::string_view text);     // parse(print(s)) prints equal
base::Status verify(const Step& step, Stage stage);  // names the first offending node

}  // namespace dc::ir
