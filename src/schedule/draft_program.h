// DraftProgram: what a draft knows of its program, and what follows from a change of its items
// (draft.h). Made in draft_program.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "src/analysis/live_bytes.h"
#include "src/base/small_list.h"
#include "src/schedule/draft.h"
#include "src/schedule/live_curve.h"
#include "src/sim/replay.h"

namespace dc::schedule {

// What may go: a kernel made again, a view in the backward phase, the cast of a shard, or a later
// gather of a parameter with its done and release. It is there while something there reads it and
// its item, if it has one, is not taken.
struct Part {
  base::SmallList<int32_t, 4> positions;
  ir::ValueList operands;              // of all of its nodes that need them; a release needs none
  base::SmallList<int32_t, 4> needs;   // parts that make these, once for each operand
  base::SmallList<int32_t, 6> stored;  // storages that its nodes read or make
  int item = -1;
  int readers = 0;  // that are there
  bool present = true;
};

// A transient of the device.
struct Stored {
  struct Use {
    int32_t known;      // as ScheduleView::known
    int32_t part = -1;  // of the reader; -1: one that stays
  };
  int32_t first = 0;
  int64_t bytes = 0;
  int32_t part = -1;                      // of its producer
  int32_t least_last = 0;                 // by the producer
  base::SmallList<Use, 4> uses;           // by decreasing position
  base::SmallList<int32_t, 2> stand_ins;  // whose readers read this one while their items are taken
  int32_t original = -1;                  // that this one stands in for; -1: none
  int32_t last = -1;                      // as it counts now; -1: not alive
};

struct Bucket {
  struct Member {
    int32_t part = -1;  // -1: one that stays
    base::Bytes bytes;
  };
  int32_t event = -1, transfer = -1;
  cost::Collective kind = cost::Collective::AllGather;
  cost::Group group;
  std::vector<Member> members{};
};

// Gathers of one parameter, by their dones. The first stays.
struct Gathers {
  struct One {
    ir::NodeId cast, start, done, release;
    int32_t part = -1;
    int32_t release_at = -1;
  };
  std::vector<One> all;
  int item = -1;
};

class DraftProgram {
 public:
  DraftProgram(const ir::Step& step, const ir::Graph& graph, const cost::CostModel& cost);

  void toggle(size_t item);
  base::Nanos time() { return replay_.evaluate().time; }

  void accept() {
    replay_.accept();
    toggled_.clear();
  }
  void reject();
  void carry_out(ir::Graph& graph) const;

  const std::vector<DraftItem>& items() const { return items_; }
  bool is_taken(size_t item) const { return taken_[item]; }
  bool is_kept(size_t item) const;
  int64_t most_bytes() const { return curve_.most(); }
  base::Nanos work() const { return work_; }

 private:
  const ir::Node& node(int32_t position) const {
    return graph_.node(live_.order[static_cast<size_t>(position)]);
  }
  int32_t position(ir::NodeId id) const { return live_.position[id.index()]; }
  Part& part(int32_t index) { return parts_[static_cast<size_t>(index)]; }
  const Part& part(int32_t index) const { return parts_[static_cast<size_t>(index)]; }
  bool is_there(int32_t part) const {
    return part < 0 || parts_[static_cast<size_t>(part)].present;
  }

  int32_t add_part(const std::vector<ir::NodeId>& nodes, int item = -1);
  size_t add_item(DraftItem item);
  // Whether what both made is the same in all but the bytes that it lies in.
  bool is_repeat(const ir::Node& again, const ir::Node& first) const;
  bool is_output(const ir::Node& made) const;
  // By more than a release.
  bool is_read(const ir::Node& made) const;

  // What there is, in this order.
  void find_written();
  void find_kernels();
  void find_gathers();
  void add_gathers(Gathers gathers);
  // Those of the backward phase that something reads.
  void find_views();
  void count_readers();
  void find_storages();
  void add_uses();
  void add_stand_ins(size_t item);
  void add_stand_in(int32_t original, int32_t stored);
  void find_stored_of_parts();
  void find_buckets();
  // Kernels of one signature, and gathers of as many bytes.
  void number_alike();

  // The part that makes the value; -1: it stays.
  int32_t part_making(ir::ValueId value) const {
    return part_at_[static_cast<size_t>(position(graph_.value(value).producer))];
  }
  int32_t producer_known(ir::ValueId value) const;
  int64_t scratch(int32_t at) const { return scratch_[static_cast<size_t>(at)]; }
  int32_t root_of_done(const Gathers::One& one) const {
    return stored_of_[storages_.root(graph_.node(one.done).results[0]).index()];
  }

  bool item_taken(const Part& one) const {
    return one.item >= 0 && taken_[static_cast<size_t>(one.item)];
  }

  // Whether it is there follows from its readers and its item.
  void update(int32_t index);
  void update_event(int32_t at, bool present);
  // Takes no time.
  static sim::Event nothing(const sim::Event& instead) {
    return {sim::EventKind::Compute, -1, instead.origin, {}};
  }

  void resize(int32_t index);
  void dirty(int32_t stored);
  void dirty_operands_and_results(int32_t index) {
    for (const int32_t stored : part(index).stored) dirty(stored);
  }
  void refresh();
  int32_t last_use(const Stored& stored) const;
  int32_t last_of(const Stored& stored) const;

  const ir::Step& step_;
  const ir::Graph& graph_;
  const cost::CostModel& cost_;
  const analysis::StorageMap storages_;
  const analysis::Liveness live_;
  sim::Replay replay_;
  std::vector<sim::Event> events_;  // with no item taken
  LiveCurve curve_;
  std::vector<int64_t> scratch_;  // by position
  std::vector<bool> is_written_;  // in place, by value that owns its storage
  std::vector<Part> parts_;
  std::vector<int32_t> part_at_;    // by position; -1: the node stays
  std::vector<int32_t> event_of_;   // by node
  std::vector<int32_t> stored_of_;  // by value that owns its storage; -1: none of the device
  std::vector<Stored> stored_;
  std::vector<Bucket> buckets_;
  std::vector<int32_t> bucket_of_;  // by start; -1: none that changes
  std::vector<Gathers> gathers_;
  std::vector<DraftItem> items_;
  std::vector<bool> taken_;
  std::vector<int32_t> part_of_item_;  // of a kernel
  std::vector<size_t> gathers_of_;     // of a parameter
  std::vector<size_t> toggled_;        // since the last accept()
  std::vector<int32_t> dirty_;
  std::vector<bool> is_dirty_;  // by storage
  base::Nanos work_;
};

}  // namespace dc::schedule
