#include "tests/runtime/comm/groups.h"

#include <array>
#include <thread>

#include "tests/runtime/comm/conformance.h"

namespace dc::runtime::conformance {
namespace {

struct Split {
  const char* name;
  int (*colour)(int rank, int world);
};

constexpr std::array<Split, 4> kSplits = {{
    {"neighbours", [](int rank, int world) { return rank / ((world + 1) / 2); }},
    {"every second", [](int rank, int) { return rank % 2; }},
    {"pairs across", [](int rank, int world) { return rank % ((world + 1) / 2); }},
    {"one alone", [](int rank, int) { return rank == 1 ? 1 : 0; }},
}};

void run_split(comm::ProcessGroup& job, const Split& split, comm::Slab slab, comm::Slab second,
               std::vector<std::string>* faults) {
  const int rank = job.control().rank().v, world = job.control().size();
  const std::vector<int> ranks = ranks_like(rank, world, split.colour);
  auto some = job.open_communicator(ranks);
  auto all = job.open_communicator();
  if (!some.ok()) return faults->push_back(some.status().to_string());
  if (!all.ok()) return faults->push_back(all.status().to_string());
  comm::Communicator& group = *some.value();
  if (group.size() != static_cast<int>(ranks.size()) ||
      ranks[static_cast<size_t>(group.rank().v)] != rank)
    return faults->push_back("the communicator has other members than were asked for");
  std::vector<std::string> sums;
  std::thread thread([&] { run_sums(*all.value(), job.device(), second, &sums); });
  Suite(group, group, job.device(), slab, 10'000 * (ranks[0] + 1), faults).run();
  thread.join();
  faults->insert(faults->end(), sums.begin(), sums.end());
}

}  // namespace

std::vector<int> ranks_like(int rank, int world, int (*colour)(int rank, int world)) {
  std::vector<int> ranks;
  for (int other = 0; other < world; ++other) {
    if (colour(other, world) == colour(rank, world)) ranks.push_back(other);
  }
  return ranks;
}

std::vector<std::string> run_groups(comm::ProcessGroup& job) {
  const auto slab = job.allocate(kSlabBytes);
  const auto second = job.allocate(1 << 20);
  if (!slab.ok()) return {slab.status().to_string()};
  if (!second.ok()) return {second.status().to_string()};
  std::vector<std::string> faults;
  for (const Split& split : kSplits) {
    run_split(job, split, slab.value(), second.value(), &faults);
    if (const base::Status all = job.control().barrier(); !all.ok())
      faults.push_back(all.to_string());
    if (faults.empty()) continue;
    for (std::string& fault : faults) fault = std::string(split.name) + ": " + fault;
    break;
  }
  return faults;
}

}  // namespace dc::runtime::conformance
