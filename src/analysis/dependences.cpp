#include "src/analysis/dependences.h"

#include <unordered_map>
#include <utility>

#include "src/ir/effects.h"

namespace dc::analysis {
namespace {

class DependenceBuilder {
 public:
  DependenceBuilder(const ir::Graph& graph, const StorageMap& storages, const ScheduleView& view)
      : graph_(graph), storages_(storages), view_(view), of_(view.order.size()) {
    for (size_t i = 0; i < of_.size(); ++i) add(static_cast<int32_t>(i));
  }
  Dependences take() { return std::move(of_); }

 private:
  struct Touched {
    int32_t writer = -1;
    std::vector<int32_t> readers;  // since the last write
  };

  void add(int32_t position) {
    const ir::Node& node = graph_.node(view_.order[static_cast<size_t>(position)]);
    for (size_t i = 0; i < node.operands.size(); ++i) {
      after(position, view_.position[graph_.value(node.operands[i]).producer.index()]);
      // The end of a gathered value changes it, as far as order is concerned.
      const bool writes = node.kind == ir::OpKind::Release || ir::writes(node, i);
      touch(position, node.operands[i], writes);
    }
    if (!ir::is_done(node.kind)) return;
    // Until the collective is done, peers may read what travels.
    const ir::Node& start = graph_.node(graph_.value(node.operands[0]).producer);
    for (size_t i = 0; i < start.operands.size(); ++i)
      touch(position, start.operands[i], ir::writes(start, i));
  }

  void touch(int32_t position, ir::ValueId value, bool writes) {
    Touched& storage = touched_[storage_key(storages_, value)];
    after(position, storage.writer);
    if (!writes) {
      storage.readers.push_back(position);
      return;
    }
    for (int32_t reader : storage.readers) after(position, reader);
    storage = {position, {}};
  }

  void after(int32_t position, int32_t other) {
    if (other >= 0 && other < position) of_[static_cast<size_t>(position)].push_back(other);
  }

  const ir::Graph& graph_;
  const StorageMap& storages_;
  const ScheduleView& view_;
  Dependences of_;
  std::unordered_map<int64_t, Touched> touched_;  // by storage; only looked up
};

}  // namespace

Dependences dependences(const ir::Graph& graph, const StorageMap& storages,
                        const ScheduleView& view) {
  return DependenceBuilder(graph, storages, view).take();
}

}  // namespace dc::analysis
