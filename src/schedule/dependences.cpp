#include "src/schedule/dependences.h"

#include <unordered_map>
#include <utility>

#include "src/ir/effects.h"

namespace dc::schedule {
namespace {

class Builder {
 public:
  explicit Builder(const TimeAxis& axis) : of_(axis.live.order.size()) {
    for (size_t i = 0; i < of_.size(); ++i) add(axis, static_cast<int32_t>(i));
  }
  Dependences take() { return std::move(of_); }

 private:
  struct Storage {
    int32_t writer = -1;
    std::vector<int32_t> readers;  // since the last write
  };

  void add(const TimeAxis& axis, int32_t position) {
    const ir::Node& node = axis.node(position);
    for (size_t i = 0; i < node.operands.size(); ++i) {
      after(position, axis.position(axis.graph.value(node.operands[i]).producer));
      // The end of a gathered value changes it, as far as order is concerned.
      const bool writes = node.kind == ir::OpKind::Release || ir::writes(node, i);
      touch(axis, position, node.operands[i], writes);
    }
    if (!ir::is_done(node.kind)) return;
    // Until the collective is done, peers may read what travels.
    const ir::Node& start = axis.graph.node(axis.graph.value(node.operands[0]).producer);
    for (size_t i = 0; i < start.operands.size(); ++i)
      touch(axis, position, start.operands[i], ir::writes(start, i));
  }

  void touch(const TimeAxis& axis, int32_t position, ir::ValueId value, bool writes) {
    Storage& storage = storages_[axis.storage_key(value)];
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

  Dependences of_;
  std::unordered_map<int64_t, Storage> storages_;  // only looked up
};

}  // namespace

Dependences dependences(const TimeAxis& axis) { return Builder(axis).take(); }

}  // namespace dc::schedule
