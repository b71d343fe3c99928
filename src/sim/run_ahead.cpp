#include "src/sim/run_ahead.h"

#include <algorithm>
#include <cmath>

namespace dc::sim {
namespace {

using base::Nanos;

// A gather whose result some kernel needs. `need`: index among the kernels that keep their order.
struct Gather {
  int32_t need = 0;
  int64_t time = 0, bytes = 0;
};

class Relaxation {
 public:
  Relaxation(const Workload& workload, const Precedence& precedence, base::Bytes room)
      : workload_(workload), precedence_(precedence) {
    number_kernels();
    find_ranges();
    find_free(room.v);
    find_gathers();
  }

  RunAhead run() {
    int64_t now = 0;
    for (size_t i = 0; i < kernels_.size(); ++i) {
      now += stall(static_cast<int32_t>(i));
      const int64_t time = event(kernels_[i]).time.v;
      gather_beside(free_[i], time);
      now += time;
    }
    if (kernels_.empty()) return {};
    return {kernels_.back(), {now}};
  }

 private:
  const Event& event(int32_t index) const {
    return workload_.schedule.events[static_cast<size_t>(index)];
  }

  const Transfer& transfer(int32_t start) const {
    return workload_.schedule.transfers[static_cast<size_t>(event(start).transfer)];
  }

  void number_kernels() {
    number_.assign(workload_.traits.size(), -1);
    for (size_t e = 0; e < workload_.traits.size(); ++e) {
      if (!workload_.traits[e].keeps_order) continue;
      number_[e] = static_cast<int32_t>(kernels_.size());
      kernels_.push_back(static_cast<int32_t>(e));
    }
  }

  // The first and the last kernel that touches each storage.
  void find_ranges() {
    const size_t count = workload_.storages.size();
    first_.assign(count, INT32_MAX);
    last_.assign(count, -1);
    for (const Access& access : workload_.accesses) {
      const int32_t kernel = number_[static_cast<size_t>(access.event)];
      const auto storage = static_cast<size_t>(access.storage);
      if (kernel < 0) continue;
      first_[storage] = std::min(first_[storage], kernel);
      last_[storage] = std::max(last_[storage], kernel);
    }
  }

  // A collective that no kernel must precede.
  bool may_run_ahead(int32_t index) const {
    const auto e = static_cast<size_t>(index);
    if (event(index).kind != EventKind::Start) return false;
    const Link link = transfer(index).link;
    if (link == Link::None || carries_copies(link)) return false;
    for (int32_t i = precedence_.first[e]; i < precedence_.first[e + 1]; ++i) {
      const int32_t before = precedence_.before[static_cast<size_t>(i)];
      if (number_[static_cast<size_t>(before)] >= 0) return false;
    }
    return true;
  }

  void find_free(int64_t room) {
    std::vector<int64_t> change(kernels_.size() + 1);
    for (size_t s = 0; s < workload_.storages.size(); ++s) {
      if (last_[s] < 0) continue;
      const Storage& storage = workload_.storages[s];
      change[storage.from_start ? 0 : static_cast<size_t>(first_[s])] += storage.bytes.v;
      change[static_cast<size_t>(last_[s]) + 1] -= storage.bytes.v;
    }
    int64_t live = 0;
    for (size_t i = 0; i < kernels_.size(); ++i) {
      live += change[i];
      free_.push_back(room - live - workload_.traits[static_cast<size_t>(kernels_[i])].scratch.v);
    }
  }

  // Transfers that fill transients for kernels, each once.
  void find_gathers() {
    std::vector<const Transfer*> transfers;
    int32_t of = -1;
    bool one_stream = true;
    for (const Access& access : workload_.accesses) {
      const auto storage = static_cast<size_t>(access.storage);
      const int64_t bytes = workload_.storages[storage].bytes.v;
      if (!access.writes || bytes == 0 || last_[storage] < 0) continue;
      if (access.event == of) {
        gathers_.back().need = std::min(gathers_.back().need, first_[storage]);
        gathers_.back().bytes += bytes;
        continue;
      }
      if (!may_run_ahead(access.event)) continue;
      of = access.event;
      transfers.push_back(&transfer(of));
      one_stream = one_stream && transfers.back()->stream == transfers.front()->stream;
      gathers_.push_back({first_[storage], 0, bytes});
    }
    // On one stream latencies follow each other; on several only the link is sure to be shared.
    for (size_t i = 0; i < gathers_.size(); ++i)
      gathers_[i].time = (one_stream ? transfers[i]->time() : transfers[i]->wire).v;
    std::stable_sort(gathers_.begin(), gathers_.end(),
                     [](const Gather& a, const Gather& b) { return a.need < b.need; });
  }

  // How long kernel `index` waits for the gathers that it needs. Those that ran ahead of it no
  // longer count as ahead.
  int64_t stall(int32_t index) {
    int64_t time = 0;
    for (; used_ < gathers_.size() && gathers_[used_].need <= index; ++used_) {
      if (used_ < next_) {
        ahead_ -= gathers_[used_].bytes;
        continue;
      }
      time += gathers_[next_++].time - gathered_;
      gathered_ = 0;
    }
    return time;
  }

  // Gathers for kernels to come, while one runs that leaves so many bytes free.
  void gather_beside(int64_t free, int64_t time) {
    while (time > 0 && next_ < gathers_.size()) {
      const Gather& gather = gathers_[next_];
      const int64_t left = gather.time - gathered_;
      const int64_t room = free - ahead_ - part(gather, gathered_);
      if (gather.bytes > 0 && room <= 0) return;
      int64_t step = std::min(time, left);
      if (gather.bytes > 0 && gather.time > 0) {
        const double fits = static_cast<double>(room) * static_cast<double>(gather.time) /
                            static_cast<double>(gather.bytes);
        if (fits < static_cast<double>(step)) step = static_cast<int64_t>(std::ceil(fits));
      }
      gathered_ += step;
      time -= step;
      if (gathered_ < gather.time) return;
      ahead_ += gather.bytes;
      ++next_;
      gathered_ = 0;
    }
  }

  static int64_t part(const Gather& gather, int64_t time) {
    if (gather.time == 0) return 0;
    return static_cast<int64_t>(static_cast<double>(gather.bytes) * static_cast<double>(time) /
                                static_cast<double>(gather.time));
  }

  const Workload& workload_;
  const Precedence& precedence_;
  std::vector<int32_t> kernels_;       // events
  std::vector<int32_t> number_;        // by event: index in kernels_, -1
  std::vector<int32_t> first_, last_;  // by storage: kernels that touch it
  std::vector<int64_t> free_;          // by kernel: bytes free for gathers
  std::vector<Gather> gathers_;        // in the order of need
  size_t next_ = 0;                    // the gather under way
  int64_t gathered_ = 0;               // time spent on it
  size_t used_ = 0;                    // gathers before it have been needed
  int64_t ahead_ = 0;                  // bytes gathered and not needed yet
};

}  // namespace

RunAhead run_ahead(const Workload& workload, const Precedence& precedence, base::Bytes room) {
  return Relaxation(workload, precedence, room).run();
}

}  // namespace dc::sim
