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
  const bool has_control = job.device().kind() != base::DeviceKind::Cuda;
  comm::Communicator* control = has_control ? &group : nullptr;
  Suite(control, group, job.device(), slab, 10'000 * (ranks[0] + 1), faults).run();
  thread.join();
  faults->insert(faults->end(), sums.begin(), sums.end());
}

// What this rank has sent to other hosts, by the collectives of one communicator.
class SentAcrossHosts {
 public:
  SentAcrossHosts(comm::ProcessGroup& job, comm::Slab slab, std::vector<std::string>* faults)
      : stream_(job.device().make_stream()),
        rank_(static_cast<size_t>(job.control().rank().v)),
        slab_(slab),
        faults_(faults) {}

  using Collective = base::Status (comm::Communicator::*)(std::span<const comm::CollectiveBuffer>,
                                                          device::Stream&);
  // bf16 elements; `expected`: bytes by rank of the job, all collectives before included.
  void expect(comm::Communicator& communicator, const char* what, Collective collective,
              int64_t elements, int64_t shard, const std::array<int64_t, 4>& expected) {
    const comm::CollectiveBuffer buffer{
        {slab_.base, 0}, {slab_.base + slab_.bytes / 2, 0}, base::DType::BF16, elements, shard};
    const base::Status status = (communicator.*collective)({&buffer, 1}, *stream_);
    if (!status.ok()) return faults_->push_back(status.to_string());
    const int64_t counted = communicator.traffic().across_hosts;
    if (counted == expected[rank_]) return;
    faults_->push_back("after " + std::string(what) + " rank " + std::to_string(rank_) +
                       " is counted to have sent " + std::to_string(counted) + " bytes, not " +
                       std::to_string(expected[rank_]));
  }

 private:
  std::unique_ptr<device::Stream> stream_;
  size_t rank_;
  comm::Slab slab_;
  std::vector<std::string>* faults_;
};

}  // namespace

// 1001 elements in shards of 256, of which the last rank owns 233.
std::vector<std::string> run_across_hosts(comm::ProcessGroup& job) {
  using comm::Communicator;
  constexpr int64_t kElements = 1001, kShard = 256;
  job.set_hosts({0, 0, 1, 1});
  const auto slab = job.allocate(1 << 15);
  const auto all = job.open_communicator();
  const bool is_first = job.control().rank().v < 2;
  const auto pair = job.open_communicator(is_first ? std::vector{0, 1} : std::vector{2, 3});
  for (const base::Status& status : {slab.status(), all.status(), pair.status()}) {
    if (!status.ok()) return {status.to_string()};
  }
  std::vector<std::string> faults;
  SentAcrossHosts sent(job, *slab, &faults);
  if ((*all)->traffic().across_hosts != 0) faults.emplace_back("bytes are counted at the start");
  // Its own range, 2 bytes an element, to two ranks.
  const std::array<int64_t, 4> gathered = {1024, 1024, 1024, 932};
  sent.expect(**all, "all_gather", &Communicator::all_gather, kElements, kShard, gathered);
  // The ranges of the two ranks over there: 256 + 233 elements from host 0, 256 + 256 from host 1.
  const std::array<int64_t, 4> reduced = {1024 + 978, 1024 + 978, 1024 + 1024, 932 + 1024};
  sent.expect(**all, "reduce_scatter", &Communicator::reduce_scatter, kElements, kShard, reduced);
  // The same, and the f32 sums of its own range to two ranks.
  const std::array<int64_t, 4> summed = {2002 + 978 + 2048, 2002 + 978 + 2048, 2048 + 1024 + 2048,
                                         1956 + 1024 + 1864};
  sent.expect(**all, "all_reduce", &Communicator::all_reduce, kElements, kShard, summed);
  sent.expect(**pair, "all_reduce inside a host", &Communicator::all_reduce, kElements, 512, {});
  return faults;
}

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
    for (std::string& fault : faults) fault.insert(0, std::string(split.name) + ": ");
    break;
  }
  return faults;
}

}  // namespace dc::runtime::conformance
