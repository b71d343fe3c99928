#include "tests/src/bound/enumerate.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "src/ir/effects.h"
#include "tests/src/bound/tiny_model.h"

namespace dc::bound::test {
namespace {

using base::Bytes;
using cost::Collective;

constexpr int64_t kStatesPerDecision = 2000, kStates = 12'000;  // then the next, or the end

enum class Place : uint8_t { PerPhase, Kept, Whole, Replicated };
enum class Keep : uint8_t { Kept, Again, Away };

struct Decision {
  std::vector<Place> places;  // by parameter
  std::vector<uint8_t> away;  // by parameter: its optimizer state
  std::vector<Keep> keeps;    // by value
};

// One order after another of one decision, depth first, with what was seen in like states.
class Player {
 public:
  Player(const Question& question, const TinyModel& model, const Decision& decision, Optimum& best)
      : question_(question), model_(model), decision_(decision), best_(best) {
    make_tasks();
    count_state();
  }

  void run() {
    State state;
    state.free = {};
    state.live = state_bytes_;
    for (size_t v = 0; v < model_.values.size(); ++v) {
      if (model_.values[v].maker < 0 && is_read(static_cast<int>(v), 0)) {
        state.made |= bit(static_cast<int>(v));
        state.live += model_.values[v].bytes;
      }
    }
    state.left = 0;
    for (const Task& task : tasks_) state.left += task.time;
    if (state.left + tail_ < best_.time) visit(state);
  }

 private:
  // A kernel, or its second run. Instances: value v, and v + values for what is made again.
  struct Task {
    int64_t time = 0, scratch = 0;
    std::vector<int> reads, parameters;
    int makes = -1, gradient = -1;
    bool backward = false;
  };
  enum Link : uint8_t { kRanks, kOut, kIn, kLinks };
  struct Flying {
    int64_t end = 0;
    int64_t bytes = 0;  // that go when it is done
    int offloaded = -1;
  };
  struct State {
    uint64_t done = 0, made = 0;  // tasks; instances alive or dead
    uint32_t present = 0;         // parameters gathered
    uint32_t pending = 0;         // gradients that wait for company
    uint32_t out = 0, back = 0;   // of offloaded values: by value
    int64_t time = 0, live = 0, left = 0;
    std::array<int64_t, kLinks> free{};
    std::array<int64_t, 8> whole{};    // by parameter: when its gather ends
    std::array<int64_t, 32> reload{};  // by value
    std::vector<Flying> flying;
    int64_t reduced = 0;  // when the last reduction ends
  };

  static uint64_t bit(int index) { return uint64_t{1} << static_cast<unsigned>(index); }
  int values() const { return static_cast<int>(model_.values.size()); }

  void make_tasks() {
    const auto instance = [&](int value, bool late) {
      const bool again = decision_.keeps[static_cast<size_t>(value)] == Keep::Again;
      return again && late ? value + values() : value;
    };
    const auto add = [&](const TinyKernel& kernel, bool again) {
      Task task{kernel.time,     kernel.scratch,          {}, kernel.parameters, kernel.makes,
                kernel.gradient, kernel.backward || again};
      for (const int value : kernel.reads)
        task.reads.push_back(instance(value, kernel.backward || again));
      if (again) task.makes += values();
      tasks_.push_back(task);
    };
    for (const TinyKernel& kernel : model_.kernels) add(kernel, false);
    for (const TinyKernel& kernel : model_.kernels) {
      if (decision_.keeps[static_cast<size_t>(kernel.makes)] == Keep::Again) add(kernel, true);
    }
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (!tasks_[i].backward) forward_ |= bit(static_cast<int>(i));
    }
    readers_.resize(2 * model_.values.size());
    users_.resize(model_.parameters.size());
    for (size_t i = 0; i < tasks_.size(); ++i) {
      for (const int read : tasks_[i].reads)
        readers_[static_cast<size_t>(read)] |= bit(static_cast<int>(i));
      for (const int p : tasks_[i].parameters)
        users_[static_cast<size_t>(p)] |= bit(static_cast<int>(i));
    }
  }

  // Bytes of state on the device in forward and backward, and the time after the last reduction.
  void count_state() {
    const auto add = [&](const ir::Step& step, auto wanted) {
      for (const ir::StateEntry& entry : step.state) {
        if (entry.range_of >= 0 || !wanted(entry)) continue;
        const int64_t elements = std::max(entry.storage_elements, entry.type.storage_elements());
        state_bytes_ += aligned(elements * 4 * (entry.type.dtype == ir::DType::F64 ? 2 : 1) *
                                (entry.type.dtype == ir::DType::I64 ? 2 : 1));
      }
    };
    using Role = ir::StateRole;
    const auto is_moment = [](const ir::StateEntry& entry) {
      return entry.role == Role::Moment1 || entry.role == Role::Moment2;
    };
    add(question_.sharded, [](const ir::StateEntry& entry) { return entry.parameter < 0; });
    for (size_t p = 0; p < model_.parameters.size(); ++p) {
      const bool whole = decision_.places[p] == Place::Whole;
      const bool replicated = decision_.places[p] == Place::Replicated;
      const ir::Step& step = replicated ? question_.replicated
                             : whole    ? question_.whole
                                        : question_.sharded;
      add(step, [&](const ir::StateEntry& entry) {
        if (entry.parameter != static_cast<int>(p)) return false;
        return !(is_moment(entry) && decision_.away[p] != 0);
      });
      if (whole)
        tail_ +=
            question_.cost.collective(Collective::AllGather, {model_.parameters[p].bytes}, world())
                .time.v;
      if (decision_.away[p] != 0) {
        const Bytes moment{replicated ? model_.parameters[p].bytes
                                      : question_.sharded.parameters[p].shard * 4};
        tail_ += 2 * (question_.cost.copy(moment, *question_.away, ir::Space::Device).time.v +
                      question_.cost.copy(moment, ir::Space::Device, *question_.away).time.v);
      }
    }
    // Update, norm and all that is not the model's, one after the other.
    for (const ir::Step* step : {&question_.sharded, &question_.replicated}) {
      const ir::Graph& graph = step->programs[0].graph;
      for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
        const ir::Node& node = graph.node(id);
        const bool of_parameter = node.find(ir::Attr::Param) != nullptr;
        const auto p = of_parameter ? static_cast<size_t>(node.integer(ir::Attr::Param)) : 0;
        const bool replicated = of_parameter && decision_.places[p] == Place::Replicated;
        if ((step == &question_.replicated) != replicated) continue;
        if (node.kind != ir::OpKind::Aten && ir::runs(node) && node.stream == 0)
          tail_ += question_.cost.compute(graph, node).time.v;
        if (node.kind != ir::OpKind::AllGatherIntoStart) continue;
        const Bytes table{node.integer(ir::Attr::Elements) * 8};
        tail_ += question_.cost.collective(Collective::AllGather, table, world()).time.v;
      }
    }
  }

  int world() const { return question_.model.mesh.world(); }
  bool is_read(int instance, uint64_t done) const {
    return (readers_[static_cast<size_t>(instance)] & ~done) != 0;
  }
  int64_t bytes_of(int instance) const {
    return model_.values[static_cast<size_t>(instance % values())].bytes;
  }
  bool is_gathered(size_t parameter) const {
    const Place place = decision_.places[parameter];
    return place == Place::PerPhase || place == Place::Kept;
  }
  bool is_away(int value) const {
    return value < values() && decision_.keeps[static_cast<size_t>(value)] == Keep::Away;
  }

  // False if a state like this one was at least as good.
  bool is_new(const State& state) {
    if (++states_ > kStatesPerDecision) {
      best_.complete = false;
      return false;
    }
    ++best_.states;
    const Key key{state.done, state.present, state.pending, state.out, state.back, state.live};
    std::vector<std::vector<int64_t>>& seen = seen_[key];
    std::vector<int64_t> now = {state.time, state.reduced};
    now.insert(now.end(), state.free.begin(), state.free.end());
    for (size_t p = 0; p < model_.parameters.size(); ++p)
      now.push_back((state.present >> p & 1) != 0 ? state.whole[p] : 0);
    for (const Flying& one : state.flying) now.push_back(one.end);
    for (const std::vector<int64_t>& other : seen) {
      if (other.size() != now.size()) continue;
      bool better = true;
      for (size_t i = 0; i < now.size(); ++i) better = better && other[i] <= now[i];
      if (better) return false;
    }
    seen.push_back(std::move(now));
    return true;
  }

  void visit(State state) {
    land(state);
    if (std::max(state.time + state.left, state.reduced) + tail_ >= best_.time) return;
    if (!is_new(state)) return;
    if (state.done + 1 == bit(static_cast<int>(tasks_.size()))) return finish(state);
    start_gathers(state);
    for (size_t i = 0; i < tasks_.size(); ++i) run_task(state, static_cast<int>(i));
    reload(state);
    if (state.flying.empty()) return;
    State waits = state;  // for the next transfer to end
    const auto soonest =
        std::min_element(waits.flying.begin(), waits.flying.end(),
                         [](const Flying& a, const Flying& b) { return a.end < b.end; });
    waits.time = std::max(waits.time, soonest->end);
    visit(std::move(waits));
  }

  // What has ended is known at no cost.
  void land(State& state) const {
    std::erase_if(state.flying, [&](const Flying& one) {
      if (one.end > state.time) return false;
      state.live -= one.bytes;
      if (one.offloaded >= 0) state.out |= 1U << one.offloaded;
      return true;
    });
  }

  void start_gathers(const State& state) {
    uint32_t wanted = 0;
    for (size_t p = 0; p < model_.parameters.size(); ++p) {
      const bool gathers = is_gathered(p) && (state.present >> p & 1) == 0;
      if (gathers && (users_[p] & ~state.done) != 0) wanted |= 1U << p;
    }
    for (uint32_t set = wanted; set != 0; set = (set - 1) & wanted) {
      State next = state;
      int64_t bytes = 0;
      for (size_t p = 0; p < model_.parameters.size(); ++p) {
        if ((set >> p & 1) == 0) continue;
        bytes += model_.parameters[p].bytes;
        next.live += model_.parameters[p].whole;
      }
      if (next.live > question_.budget) continue;
      const int64_t end = send(
          next, kRanks, question_.cost.collective(Collective::AllGather, {bytes}, world()).time.v);
      for (size_t p = 0; p < model_.parameters.size(); ++p) {
        if ((set >> p & 1) != 0) next.whole[p] = end;
      }
      next.present |= set;
      visit(std::move(next));
    }
  }

  static int64_t send(State& state, Link link, int64_t time) {
    state.free[link] = std::max(state.free[link], state.time) + time;
    return state.free[link];
  }

  void reload(const State& state) {
    for (int v = 0; v < values(); ++v) {
      if (!is_away(v) || (state.out >> v & 1) == 0 || (state.back >> v & 1) != 0) continue;
      State next = state;
      next.live += bytes_of(v);
      if (next.live > question_.budget) continue;
      next.back |= 1U << v;
      next.reload[static_cast<size_t>(v)] = send(
          next, kIn, question_.cost.copy({bytes_of(v)}, *question_.away, ir::Space::Device).time.v);
      visit(std::move(next));
    }
  }

  bool is_ready(const State& state, const Task& task, int index, int64_t& from) const {
    if ((state.done & bit(index)) != 0) return false;
    const bool second = task.makes >= values();
    if (second && (forward_ & ~state.done) != 0) return false;
    for (const int p : task.parameters) {
      if (!is_gathered(static_cast<size_t>(p))) continue;
      if ((state.present >> p & 1) == 0) return false;
      from = std::max(from, state.whole[static_cast<size_t>(p)]);
    }
    for (const int read : task.reads) {
      if ((state.made & bit(read)) == 0) return false;
      if (!is_away(read) || !task.backward) continue;
      if ((state.back >> read & 1) == 0) return false;
      from = std::max(from, state.reload[static_cast<size_t>(read)]);
    }
    return true;
  }

  void run_task(const State& state, int index) {
    const Task& task = tasks_[static_cast<size_t>(index)];
    int64_t from = state.time;
    if (!is_ready(state, task, index, from)) return;
    State next = state;
    next.time = from;
    land(next);
    next.live += bytes_of(task.makes);
    if (next.live + task.scratch > question_.budget) return;
    next.time += task.time;
    next.left -= task.time;
    next.done |= bit(index);
    next.made |= bit(task.makes);
    release_values(state, next, task);
    release_parameters(state, next);
    if (task.gradient < 0) return visit(std::move(next));
    // The gradient waits for company, or travels with those that wait.
    next.pending |= 1U << task.gradient;
    State held = next;
    reduce(next);
    visit(std::move(next));
    if (held.left > 0) visit(std::move(held));
  }

  void release_values(const State& before, State& next, const Task& task) {
    std::vector<int> touched = task.reads;
    touched.push_back(task.makes);
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    for (const int instance : touched) {
      if (task.gradient >= 0 && instance == task.makes) continue;  // until it is reduced
      const uint64_t readers = readers_[static_cast<size_t>(instance)];
      if (is_away(instance) && (next.back >> instance & 1) == 0) {
        const bool early_left = (readers & forward_ & ~next.done) != 0;
        const bool early_before =
            (readers & forward_ & ~before.done) != 0 || instance == task.makes;
        if (early_left || !early_before) continue;
        const int64_t end = send(
            next, kOut,
            question_.cost.copy({bytes_of(instance)}, ir::Space::Device, *question_.away).time.v);
        next.flying.push_back({end, bytes_of(instance), instance});
        continue;
      }
      if ((readers & ~next.done) == 0) next.live -= bytes_of(instance);
    }
  }

  void release_parameters(const State& before, State& next) const {
    for (size_t p = 0; p < model_.parameters.size(); ++p) {
      if ((next.present >> p & 1) == 0) continue;
      const uint64_t left = users_[p] & ~next.done, had = users_[p] & ~before.done;
      const bool phase_ends =
          decision_.places[p] == Place::PerPhase && (left & forward_) == 0 && (had & forward_) != 0;
      if (left != 0 && !phase_ends) continue;
      next.present &= ~(1U << p);
      next.live -= model_.parameters[p].whole;
    }
  }

  void reduce(State& next) const {
    for (const bool to_all : {false, true}) {
      int64_t bytes = 0, gone = 0;
      for (size_t p = 0; p < model_.parameters.size(); ++p) {
        const bool is_mine = (decision_.places[p] == Place::Replicated) == to_all;
        if ((next.pending >> p & 1) == 0 || !is_mine) continue;
        bytes += model_.parameters[p].bytes;
        gone += aligned(model_.parameters[p].bytes);
        next.live += to_all ? aligned(model_.parameters[p].bytes) : model_.parameters[p].shard;
      }
      if (bytes == 0) continue;
      const Collective kind = to_all ? Collective::AllReduce : Collective::ReduceScatter;
      const int64_t end =
          send(next, kRanks, question_.cost.collective(kind, {bytes}, world()).time.v);
      next.flying.push_back({end, gone});
      next.reduced = std::max(next.reduced, end);
    }
    next.pending = 0;
  }

  void finish(const State& state) const {
    State end = state;
    if (end.pending != 0) reduce(end);
    best_.time = std::min(best_.time, std::max(end.time, end.reduced) + tail_);
  }

  using Key = std::tuple<uint64_t, uint32_t, uint32_t, uint32_t, uint32_t, int64_t>;
  const Question& question_;
  const TinyModel& model_;
  const Decision& decision_;
  Optimum& best_;
  std::vector<Task> tasks_;
  std::vector<uint64_t> readers_, users_;  // by instance; by parameter: tasks
  uint64_t forward_ = 0;
  int64_t state_bytes_ = 0, tail_ = 0, states_ = 0;
  std::map<Key, std::vector<std::vector<int64_t>>> seen_;
};

// Every combination of decisions, one after the other.
class Decisions {
 public:
  Decisions(const Question& question, const TinyModel& model)
      : question_(question), model_(model) {}

  Optimum run() {
    decision_.places.resize(model_.parameters.size());
    decision_.away.resize(model_.parameters.size());
    decision_.keeps.resize(model_.values.size());
    parameter(0);
    return best_;
  }

 private:
  void parameter(size_t p) {
    if (p == decision_.places.size()) return value(model_.values.size());
    for (const Place place : {Place::Kept, Place::PerPhase, Place::Whole, Place::Replicated}) {
      decision_.places[p] = place;
      for (int away = 0; away <= (question_.away ? 1 : 0); ++away) {
        decision_.away[p] = static_cast<uint8_t>(away);
        parameter(p + 1);
      }
    }
  }

  // The values before `end`, last first: one is made again where the backward phase reads it, or a
  // kernel that runs again.
  void value(size_t end) {
    if (best_.states > kStates) best_.complete = false;
    if (best_.states > kStates) return;
    if (end == 0) return Player(question_, model_, decision_, best_).run();
    const size_t v = end - 1;
    const TinyValue& one = model_.values[v];
    decision_.keeps[v] = Keep::Kept;
    value(v);
    if (one.maker < 0 || model_.kernels[static_cast<size_t>(one.maker)].backward) return;
    if (question_.recompute && (one.saved || is_read_again(static_cast<int>(v)))) {
      decision_.keeps[v] = Keep::Again;
      value(v);
    }
    if (one.saved && question_.away) {
      decision_.keeps[v] = Keep::Away;
      value(v);
    }
    decision_.keeps[v] = Keep::Kept;
  }

  bool is_read_again(int v) const {
    return std::any_of(model_.kernels.begin(), model_.kernels.end(), [&](const TinyKernel& kernel) {
      return decision_.keeps[static_cast<size_t>(kernel.makes)] == Keep::Again &&
             std::find(kernel.reads.begin(), kernel.reads.end(), v) != kernel.reads.end();
    });
  }

  const Question& question_;
  const TinyModel& model_;
  Decision decision_;
  Optimum best_;
};

}  // namespace

Optimum enumerate(const Question& question) {
  return Decisions(question, read(question.model, question.cost)).run();
}

}  // namespace dc::bound::test
