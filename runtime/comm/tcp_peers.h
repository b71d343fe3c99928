// What a rank of the tcp communicator knows of its peers: who lives, who left and why. One
// connection to each, the lifeline, carries nothing but a goodbye; a thread sleeps on them.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/comm/control_page.h"
#include "runtime/comm/tcp_meeting.h"
#include "runtime/device/memory_map.h"

namespace dc::runtime::comm {

class Peers {
 public:
  static base::Result<std::unique_ptr<Peers>> create(int rank, const std::vector<Seat>& seats);
  ~Peers() { stop_watching(); }

  void watch(std::vector<device::Descriptor> lifelines);  // by rank; own entry empty
  // Goodbye to all: the end of the peers is no longer news, nor is that of this rank to them.
  void leave(const base::Status& why);

  int rank() const { return rank_; }
  int world() const { return page_.world(); }
  const ControlPage& page() const { return page_; }
  bool gone(int rank) const;  // left, failed or died
  // PeerDied that names the rank, where it ran, and what this rank was in ("" if nothing).
  base::Status gone_status(int rank, std::string_view doing) const;
  void record_death(int rank);
  // Success while no rank has failed or died.
  base::Status health(std::string_view doing) const;

  // An event counter that gets a one whenever a peer goes.
  void add_waiter(int event);
  void remove_waiter(int event);

 private:
  Peers(int rank, device::Mapping memory, const std::vector<Seat>& seats);
  struct Line;
  void run(std::vector<Line>& lines);
  void listen_to(Line& line);
  void stop_watching();
  void wake_all();

  int rank_;
  device::Mapping memory_;
  ControlPage page_;  // of this rank alone: what it knows
  std::vector<std::string> hosts_;
  std::vector<std::atomic<bool>> silent_;  // by rank: its host stopped answering
  std::mutex mutex_;                       // of waiters_
  std::vector<int> waiters_;
  std::vector<device::Descriptor> lifelines_;
  device::Descriptor stop_;
  std::thread thread_;
};

}  // namespace dc::runtime::comm
