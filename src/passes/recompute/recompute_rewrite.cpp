#include "src/passes/recompute/recompute_rewrite.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "src/ir/builder.h"
#include "src/ir/effects.h"
#include "src/ir/view_copies.h"

namespace dc::passes {
namespace {

using ir::Node;
using ir::NodeId;
using ir::OpKind;
using ir::ValueId;

class Rewriter {
 public:
  Rewriter(ir::Graph& graph, const RecomputeProgram& program, const KeptStorages& kept,
           const Timeline& timeline)
      : graph_(graph), p_(program), kept_(kept), t_(timeline) {}

  void run() {
    mark_moved();
    for (size_t i = 0; i < t_.again.size(); ++i) {
      const int32_t place = at(t_.place, t_.again[i]);
      run_again(t_.again[i], place);
      const bool last_here = i + 1 == t_.again.size() || at(t_.place, t_.again[i + 1]) != place;
      if (last_here) release_own();
    }
    redirect_readers();
    erase_unread();
  }

 private:
  // A gather added for the kernels at one place.
  struct Own {
    ValueId done;
    NodeId last_reader;
  };

  void mark_moved() {
    moved_.assign(static_cast<size_t>(p_.count()), false);
    size_t number = 0;
    for (const GatheredParameter& gather : p_.gathers) {
      for (const GatheredCopy& copy : gather.copies) {
        if (t_.moved[number++] == kNever) continue;
        for (NodeId id : nodes_of(copy)) at(moved_, p_.live.position[id.index()]) = true;
      }
    }
  }

  // The nodes of the copy: its cast, if there is one, its start and its done.
  std::vector<NodeId> nodes_of(const GatheredCopy& copy) const {
    std::vector<NodeId> nodes = {copy.start, copy.done};
    const NodeId first = at(p_.live.order, copy.first);
    if (first != copy.start) nodes.insert(nodes.begin(), first);
    return nodes;
  }

  // The first node from `place` on that stays where it is.
  NodeId anchor(int32_t place) const {
    while (place < p_.count() && at(moved_, place)) ++place;
    return place < p_.count() ? at(p_.live.order, place) : NodeId{};
  }

  void run_again(int32_t i, int32_t place) {
    const Node& original = p_.node(i);
    const NodeId before = anchor(place);
    std::vector<ValueId> operands;
    for (int32_t g : p_.forward(i).gathers) whole_[g] = gather(g, place, before);
    for (ValueId operand : original.operands) operands.push_back(at_hand(operand));
    const NodeId id = repeat(original, before, operands, "recomputed.");
    for (int32_t g : p_.forward(i).gathers) {
      if (const auto own = own_.find(g); own != own_.end()) own->second.last_reader = id;
    }
    for (size_t r = 0; r < original.results.size(); ++r) {
      if (original.results[r].valid())
        views_of({}).stand_for(original.results[r], graph_.node(id).results[r]);
    }
  }

  // The same op on other operands, in the backward phase.
  NodeId repeat(const Node& original, NodeId before, const std::vector<ValueId>& operands,
                const std::string& prefix) {
    ir::Origin origin = original.origin;
    origin.phase = ir::Phase::Backward;
    return ir::Builder(graph_, before, std::move(origin)).repeat(original, operands, prefix).id;
  }

  // The whole value of a parameter for a kernel at `place`.
  ValueId gather(int32_t g, int32_t place, NodeId before) {
    const GatheredParameter& parameter = at(p_.gathers, g);
    const GatherRead read = gather_read(parameter, place);
    if (read.copy < 0) return own_gather(g, parameter.copies[0], before);
    const GatheredCopy& copy = at(parameter.copies, read.copy);
    const bool here = read.moves && at(t_.moved, parameter.first_copy + read.copy) == place;
    if (here && moved_now_.insert(copy.start.v).second) {
      for (NodeId id : nodes_of(copy)) graph_.move_before(id, before);
    }
    return graph_.node(copy.done).results[0];
  }

  ValueId own_gather(int32_t g, const GatheredCopy& like, NodeId before) {
    if (const auto own = own_.find(g); own != own_.end()) return own->second.done;
    ValueId value = graph_.node(nodes_of(like)[0]).operands[0];  // the shard
    for (NodeId id : nodes_of(like)) {
      const NodeId copy = repeat(graph_.node(id), before, {value}, "");
      value = graph_.node(copy).results[0];
    }
    own_[g] = {value, {}};
    return value;
  }

  void release_own() {
    for (const auto& [g, own] : own_) {
      const Node& reader = graph_.node(own.last_reader);
      ir::Builder(graph_, graph_.next(reader.id), reader.origin).act(OpKind::Release, {own.done});
    }
    own_.clear();
  }

  // What a kernel that runs again, or a reader in the backward phase, reads instead of `value`.
  ValueId at_hand(ValueId value) {
    const ValueId root = p_.owners.root(value);
    const int32_t g = at(p_.gather_of, root.v);
    if (g >= 0) return views_of(whole_.at(g)).of_in(value, ir::Phase::Backward);
    const int32_t s = at(p_.storage_of, root.v);
    return s < 0 || at(kept_, s) ? value : views_of({}).of_in(value, ir::Phase::Backward);
  }

  // Views of the gathered value `whole`, or, if it is none, of what kernels made that run again.
  ir::ViewCopies& views_of(ValueId whole) {
    return views_.try_emplace(whole.v, graph_, whole).first->second;
  }

  void redirect_readers() {
    for (int32_t t = p_.boundary; t < p_.count(); ++t) {
      const Node& node = graph_.node(at(p_.live.order, t));
      if (ir::is_plain_view(node)) continue;
      for (size_t i = 0; i < node.operands.size(); ++i) {
        const int32_t s = at(p_.storage_of, p_.owners.root(node.operands[i]).v);
        if (s >= 0 && !at(kept_, s))
          graph_.set_operand(node.id, static_cast<int>(i),
                             views_of({}).of_in(node.operands[i], ir::Phase::Backward));
      }
    }
  }

  // Views, and kernels run again, that only the backward phase had read.
  void erase_unread() {
    std::vector<uint8_t> is_output(graph_.value_capacity());
    for (const ir::Output& output : graph_.outputs) is_output[output.value.index()] = true;
    for (int32_t t = p_.count(); t-- > 0;) {
      const Node& node = graph_.node(at(p_.live.order, t));
      const bool dropped = t < p_.boundary && at(t_.only_again, t);
      if (!dropped && !ir::is_plain_view(node)) continue;
      const bool read = std::any_of(node.results.begin(), node.results.end(), [&](ValueId result) {
        return result.valid() && (is_output[result.index()] || !graph_.value(result).uses.empty());
      });
      if (!read) graph_.erase(node.id);
    }
  }

  ir::Graph& graph_;
  const RecomputeProgram& p_;
  const KeptStorages& kept_;
  const Timeline& t_;
  std::vector<uint8_t> moved_;               // by position: true for gathers that start elsewhere
  std::set<int32_t> moved_now_;              // starts that are in their new place
  std::map<int32_t, ir::ViewCopies> views_;  // by gathered value, -1: of kernels run again
  std::unordered_map<int32_t, ValueId> whole_;  // by gather, for the kernel at hand; looked up only
  std::map<int32_t, Own> own_;                  // by gather, at the place at hand
};

}  // namespace

void rewrite(ir::Graph& graph, const RecomputeProgram& program, const KeptStorages& kept,
             const Timeline& timeline) {
  Rewriter(graph, program, kept, timeline).run();
}

}  // namespace dc::passes
