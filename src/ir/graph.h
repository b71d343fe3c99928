// Graph: one functional program over values, in program order. Owns nodes and values; ids are dense
// and never reused.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/base/kernel_table.h"
#include "src/base/small_list.h"
#include "src/base/step_enums.h"
#include "src/ir/name_table.h"
#include "src/ir/ops.h"
#include "src/ir/output_list.h"
#include "src/ir/overload.h"
#include "src/ir/shared.h"
#include "src/ir/shared_blocks.h"
#include "src/ir/types.h"

namespace dc::ir {

using ValueList = base::SmallList<ValueId, 4>;
using NodeId = base::Id<struct NodeTag>;
using base::kSpaces;
using base::PerSpace;
using base::Phase;
using base::Space;

// Where a storage lies. Offloading sets the space; layout-arenas sets the rest, unset before.
struct Location {
  Space space = Space::Device;
  int64_t offset = -1;  // bytes from the start of the arena
  int64_t bytes = 0;
  bool placed() const { return offset >= 0; }
};

// Where a node comes from: the module's FQN and the phase; `accumulates` marks gradient sums that
// autograd added.
struct Origin {
  Shared<std::string> module;
  Phase phase = Phase::Forward;
  bool accumulates = false;
};

struct OperandRef {
  int index = 0;
  bool operator==(const OperandRef&) const = default;
};  // position in Node::operands
struct OperandList {
  std::vector<int> indices;
  bool operator==(const OperandList&) const = default;
};  // -1 = None in a list of optionals
struct DeviceArg {
  bool operator==(const DeviceArg&) const = default;
};  // always the rank's own device
struct LayoutArg {
  int64_t value = 7;
  bool operator==(const LayoutArg&) const = default;
};  // export numbering, 7 = strided
struct MemoryFormatArg {
  int64_t value = 1;
  bool operator==(const MemoryFormatArg&) const = default;
};  // 1 contiguous, 2 channels last, 3 channels last 3d, 4 preserve

using StateId = base::Id<struct StateTag>;  // index into Step::state

// One named argument of an ATen overload, or one attribute of an op of our own. monostate is None.
struct Arg {
  using Value =
      std::variant<std::monostate, OperandRef, OperandList, bool, int64_t, double, std::string,
                   std::vector<bool>, std::vector<int64_t>, std::vector<double>, DType, DeviceArg,
                   LayoutArg, MemoryFormatArg, StateId>;
  Arg() = default;
  Arg(std::string name_of, Value is, bool by_keyword = false)
      : name(std::move(name_of)), value(std::move(is)), keyword(by_keyword) {}
  Arg(Attr id, Value is) : attribute(id), value(std::move(is)) {}

  std::string name;             // schema name; empty for an attribute
  Attr attribute = Attr::None;  // of an op of our own
  Value value;
  bool keyword = false;
  bool operator==(const Arg&) const = default;
  std::string_view label() const {  // to print
    return attribute == Attr::None ? std::string_view(name) : info(attribute).text;
  }
};

// What walks over a whole graph look at comes first: it is one line of the cache.
struct Node {
  NodeId id;
  OpKind kind = OpKind::Aten;
  // Of an overload's kernel; chosen by `normalize-graph`, changed by Graph::set_provider.
  base::Provider provider = base::Provider::Aten;
  int stream = 0;  // set by `schedule`: index into Step::streams
  // Of its signature; unset until it is asked for (kernel_signature.h). The graph forgets it when
  // operands or types change.
  mutable base::KernelId kernel;
  ValueList operands;                   // every tensor read, in argument order
  base::SmallList<ValueId, 2> results;  // an invalid id where the op returns None or a number
  Overload overload;                    // empty unless kind is Aten
  Shared<std::vector<Arg>> args;  // arguments in schema order; tensors as OperandRef/OperandList
  Origin origin;
  Location scratch;  // kernel workspace, live during this node only

  const Arg* find_arg(std::string_view name) const;  // of ATen
  const Arg* find(Attr attribute) const {            // of our own ops
    // Most nodes are asked for what they cannot have, and the arguments lie elsewhere in memory.
    if (!traits(kind).takes(attribute)) return nullptr;
    for (const Arg& arg : args) {
      if (arg.attribute == attribute) return &arg;
    }
    return nullptr;
  }
  int64_t integer(Attr attribute) const;  // must exist
};

struct Use {
  NodeId node;
  int operand = 0;
  bool operator==(const Use&) const = default;
};

// As of Node: what walks look at first.
struct Value {
  ValueId id;
  NodeId producer;
  int result = 0;
  base::SmallList<Use, 2> uses;  // in no particular order
  TensorType type;
  Shared<std::string> name;  // unique in the graph
};

// Of a value. Kept together: liveness asks for all of them, and for nothing else of a value.
struct Storage {
  int64_t bytes = 0;  // that the type reaches; the graph keeps it
  Location location;  // of values that own their storage
};

struct NewValue {
  std::string name;  // made unique by appending _1, _2, ...; empty: "v<id>"
  TensorType type;
};

class Graph {
 public:
  explicit Graph(std::string name) : name_(std::move(name)) {}
  Graph(Graph&&) noexcept = default;
  Graph& operator=(Graph&&) noexcept = default;
  Graph(const Graph& other) = default;  // same ids; changes of one are not seen in the other
  Graph& operator=(const Graph& other) = default;

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }

  // Adds a node before `before` (an invalid id: at the end). Results are created from `results`; an
  // entry with rank-0 type and name "-" is None.
  Node& insert(NodeId before, OpKind kind, ValueList operands, std::vector<NewValue> results,
               std::vector<Arg> args, Origin origin);
  Node& insert_aten(NodeId before, Overload overload, ValueList operands,
                    std::vector<NewValue> results, std::vector<Arg> args, Origin origin);
  void set_operand(NodeId node, int index, ValueId value);
  void drop_last_operand(NodeId node);
  // The only way to change dtype, shape or strides of a value: the kernels that read or write it
  // become others.
  void set_type(ValueId value, TensorType type);
  void set_provider(NodeId node, base::Provider provider);  // of an overload of ATen
  void replace_all_uses(ValueId from, ValueId to);          // graph outputs included
  void erase(NodeId node);                                  // its results must be unused
  void move_before(NodeId node, NodeId before);             // before invalid: to the end

  // References that these give may not see later changes of the node or the value: ask again.
  const Node& node(NodeId id) const {
    assert(contains(id));
    return nodes_[id.index()];
  }
  const Value& value(ValueId id) const { return values_[id.index()]; }
  const Storage& storage(ValueId id) const { return storages_[id.index()]; }
  // To change what only the node or the value says: neither operands and results, nor uses, nor
  // what a kernel depends on.
  Node& edit(NodeId id) {
    assert(contains(id));
    return nodes_.edit(id.index());
  }
  Value& edit(ValueId id) { return values_.edit(id.index()); }
  Location& edit_location(ValueId id) { return storages_.edit(id.index()).location; }
  bool contains(NodeId id) const {
    return id.valid() && id.index() < nodes_.size() && nodes_[id.index()].id.valid();
  }

  NodeId first() const { return head_; }
  NodeId last() const { return tail_; }
  NodeId next(NodeId id) const { return links_[id.index()].next; }
  NodeId previous(NodeId id) const { return links_[id.index()].previous; }
  std::vector<NodeId> order()
      const;  // snapshot of program order; safe to edit the graph while walking it
  size_t node_count() const { return count_; }
  size_t value_capacity() const { return values_.size(); }  // ids are below this
  size_t node_capacity() const { return nodes_.size(); }
  ValueId find_value(std::string_view name) const;  // linear; for tests and the parser

  OutputList outputs;

 private:
  struct Link {
    NodeId previous, next;
  };
  std::string unique_name(const std::string& wanted, ValueId id);
  void assign_type(Value& value, TensorType type);
  void link(NodeId id, NodeId before);
  void unlink(NodeId id);
  void drop_use(ValueId id, Use use);
  std::string name_;
  SharedBlocks<Node> nodes_;  // by id; one that is erased has no id
  std::vector<Link> links_;
  SharedBlocks<Value> values_;
  SharedBlocks<Storage> storages_;  // by value
  NameTable names_;
  NodeId head_, tail_;
  size_t count_ = 0;
};

}  // namespace dc::ir
