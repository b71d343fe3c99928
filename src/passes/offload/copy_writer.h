// CopyWriter: puts copies between memory spaces into one graph, and lets the readers of what came
// back read the copy.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/ir/view_copies.h"
#include "src/schedule/time_axis.h"

namespace dc::passes {

// Index into Step::streams of the stream with that name, added at the end if there is none.
int stream_of(ir::Step& step, std::string_view name);

class CopyWriter {
 public:
  // `axis`: of `graph` as it is, or of the graph that it is a copy of; positions below are its
  // positions.
  CopyWriter(ir::Step& step, ir::Graph& graph, const schedule::Positions& axis);

  // A copy that starts before the node at position `start` and is done before the one at `done`
  // (the number of positions: at the end). At one position copies that go out come before those
  // that come in.
  //
  // Out: `value`'s bytes, or those of the copy that stands for it there, go to `space`, or into the
  // state value `into`.
  struct Out {
    ir::ValueId value, into;
    ir::Space space = ir::Space::Host;
    int32_t start = 0, done = 0;
    bool is_exact = false;  // `value` itself, even where a copy stands for it
  };
  // In: `value` is state outside the device, or a value that an Out of this writer took out. From
  // `done` on, until the next one, all reads and writes of it mean the copy.
  struct In {
    ir::ValueId value;
    int32_t start = 0, done = 0;
  };
  void add(const Out& out) { outs_.push_back({out, {}}); }
  void add(const In& in) { ins_.push_back({in, {}}); }
  void write();

 private:
  enum class Kind : uint8_t { OutStart, OutDone, InStart, InDone };
  struct Event {
    int32_t position;
    Kind kind;
    size_t item;
  };
  template <typename Copy>
  struct Item {
    Copy copy;
    ir::ValueId made;  // by its start, then by its done
  };
  // From `begin` on a value's bytes are those of `device`.
  struct Segment {
    int32_t begin;
    ir::ValueId device;
    ir::ViewCopies views;  // of it
  };

  std::vector<Event> events() const;
  void start_out(Item<Out>& item, ir::NodeId before);
  void start_in(Item<In>& item, ir::NodeId before);
  ir::ValueId finish(ir::ValueId started, const ir::Origin& origin, ir::NodeId before);
  ir::NodeId node_at(int32_t position) const;
  ir::Origin origin_at(int32_t position) const;

  void redirect_readers();
  // The copy that stands for `value` at a position; null where the value is meant itself.
  Segment* segment_of(ir::ValueId value, int32_t position);
  void erase_unused_views();

  ir::Graph& graph_;
  const schedule::Positions& axis_;
  size_t known_;  // values that `axis_` knows
  int out_stream_, in_stream_;
  std::vector<Item<Out>> outs_;
  std::vector<Item<In>> ins_;
  std::map<int32_t, ir::ValueId> outside_;            // by root: where its bytes lie outside
  std::map<int32_t, std::vector<Segment>> segments_;  // by root
};

}  // namespace dc::passes
