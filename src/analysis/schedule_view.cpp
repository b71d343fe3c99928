#include "src/analysis/schedule_view.h"

#include <algorithm>

#include "src/analysis/dependences.h"
#include "src/ir/effects.h"

namespace dc::analysis {
namespace {

bool is_outside_compute(const ir::Node& node) {
  return node.stream != 0 && part_of(node) == Part::Kernel;
}

// Vector clocks (C. Fidge, 1988; F. Mattern, 1989): of each stream, the last position of every
// stream that has ended whenever it goes on.
class WaitFinder {
 public:
  WaitFinder(const ir::Step& step, const ir::Graph& graph, ScheduleView& view)
      : graph_(graph),
        view_(view),
        streams_(std::max<size_t>(step.streams.size(), 1), Clock(step.streams.size(), -1)),
        at_end_(view.order.size()),
        unknown_(streams_.size()),
        needs_(dependences(graph, StorageMap(step, graph), view)) {}

  void run() {
    for (size_t i = 0; i < view_.order.size(); ++i) visit(static_cast<int32_t>(i));
  }

 private:
  using Clock = std::vector<int32_t>;  // by stream

  static void merge(const Clock& other, Clock& clock) {
    for (size_t s = 0; s < clock.size(); ++s) clock[s] = std::max(clock[s], other[s]);
  }
  const ir::Node& node(int32_t position) const {
    return graph_.node(view_.order[static_cast<size_t>(position)]);
  }

  void visit(int32_t position) {
    const auto index = static_cast<size_t>(position);
    const ir::Node& it = node(position);
    pass_on(needs_[index]);
    if (part_of(it) == Part::Nothing) return;
    const auto stream = static_cast<size_t>(stream_of(it));
    Clock& clock = streams_[stream];
    if (stream != 0) merge(streams_[0], clock);
    for (const int32_t before : needs_[index]) follow(position, before, clock);
    clock[stream] = position;
    if (stream == 0) return learn(position);
    at_end_[index] = clock;
    if (part_of(it) == Part::Kernel) unknown_[stream].push_back(position);
  }

  // What runs nothing has ended when what it depends on has. The latest first, because a later one
  // may know of the end of an earlier one.
  void pass_on(std::vector<int32_t>& needs) const {
    std::vector<int32_t> running;
    for (const int32_t before : needs) {
      if (part_of(node(before)) != Part::Nothing) {
        running.push_back(before);
      } else {
        const std::vector<int32_t>& more = needs_[static_cast<size_t>(before)];
        running.insert(running.end(), more.begin(), more.end());
      }
    }
    std::sort(running.begin(), running.end(), std::greater<>());
    running.erase(std::unique(running.begin(), running.end()), running.end());
    needs = std::move(running);
  }

  void follow(int32_t position, int32_t before, Clock& clock) {
    const ir::Node& awaited = node(before);
    const auto stream = static_cast<size_t>(stream_of(awaited));
    if (stream == 0 || clock[stream] >= before) return;
    if (part_of(awaited) == Part::Kernel && stream_of(node(position)) != awaited.stream)
      view_.waits.push_back({position, before});
    merge(at_end_[static_cast<size_t>(before)], clock);
  }

  // Compute has come to `position`.
  void learn(int32_t position) {
    for (size_t s = 1; s < unknown_.size(); ++s) {
      auto ended = unknown_[s].begin();
      for (; ended != unknown_[s].end() && *ended <= streams_[0][s]; ++ended)
        view_.known[static_cast<size_t>(*ended)] = position;
      unknown_[s].erase(unknown_[s].begin(), ended);
    }
  }

  const ir::Graph& graph_;
  ScheduleView& view_;
  std::vector<Clock> streams_;
  std::vector<Clock> at_end_;                  // of nodes outside compute
  std::vector<std::vector<int32_t>> unknown_;  // kernels by stream, whose end compute cannot know
  Dependences needs_;                          // those that run, from `position` back
};

// Of a start its done, of other nodes themselves.
int32_t known_by_halves(const ir::Graph& graph, const ScheduleView& view, const ir::Node& node) {
  const auto last = static_cast<int32_t>(view.order.size()) - 1;
  if (is_outside_compute(node)) return last;
  if (!ir::is_start(node.kind)) return view.position[node.id.index()];
  for (const ir::Use& use : graph.value(node.results[0]).uses) {
    if (ir::is_done(graph.node(use.node).kind)) return view.position[use.node.index()];
  }
  return last;
}

}  // namespace

Part part_of(const ir::Node& node) {
  if (!ir::runs(node)) return Part::Nothing;
  switch (ir::traits(node.kind).half) {
    case ir::Half::Whole:
      return Part::Kernel;
    case ir::Half::Start:
      return Part::Start;
    case ir::Half::Done:
      return Part::Done;
    case ir::Half::Arrival:
      return Part::Arrival;
  }
  return Part::Nothing;
}

int stream_of(const ir::Node& node) {
  switch (part_of(node)) {
    case Part::Kernel:
    case Part::Start:
      return node.stream;
    case Part::Nothing:
    case Part::Done:
    case Part::Arrival:
      return 0;
  }
  return 0;
}

ScheduleView schedule_view(const ir::Step& step, const ir::Graph& graph) {
  ScheduleView view;
  view.order = graph.order();
  view.position.assign(graph.node_capacity(), -1);
  for (size_t i = 0; i < view.order.size(); ++i)
    view.position[view.order[i].index()] = static_cast<int32_t>(i);
  view.known.reserve(view.order.size());
  bool has_others = false;
  for (const ir::NodeId id : view.order) {
    const ir::Node& node = graph.node(id);
    view.known.push_back(known_by_halves(graph, view, node));
    has_others = has_others || is_outside_compute(node);
  }
  if (has_others) WaitFinder(step, graph, view).run();
  return view;
}

}  // namespace dc::analysis
