#include "runtime/comm/affinity.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>

namespace dc::runtime::comm {
namespace {

// The first logical processor of the same physical core; itself where the machine does not tell.
int first_twin(int cpu) {
  const std::string path =
      "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list";
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return cpu;
  int first = cpu;
  if (std::fscanf(file, "%d", &first) != 1) first = cpu;
  std::fclose(file);
  return first;
}

}  // namespace

std::vector<int> choose_cores(std::vector<Core> allowed, int local_rank, int local_world,
                              int threads) {
  const int count = static_cast<int>(allowed.size());
  if (local_world < 1 || threads < 1 || local_world * threads > count) return {};
  // One processor of each physical core first, the twins of these after.
  std::set<int> seen;
  std::stable_partition(allowed.begin(), allowed.end(),
                        [&](const Core& core) { return seen.insert(core.twin).second; });
  const int share = std::min(count / local_world, threads + 1);
  std::vector<int> mine;
  for (int i = 0; i < share; ++i) {
    // The threads of all ranks take their places first; what is left over goes round as the
    // additional ones.
    const int place = i < threads ? local_rank * threads + i : local_world * threads + local_rank;
    mine.push_back(allowed[static_cast<size_t>(place)].cpu);
  }
  return mine;
}

bool pin_rank(int local_rank, int local_world, int threads) {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return false;
  std::vector<Core> allowed;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) allowed.push_back({cpu, first_twin(cpu)});
  }
  const std::vector<int> mine = choose_cores(std::move(allowed), local_rank, local_world, threads);
  if (mine.empty()) return false;
  CPU_ZERO(&mask);
  for (const int cpu : mine) CPU_SET(cpu, &mask);
  return sched_setaffinity(0, sizeof(mask), &mask) == 0;
}

}  // namespace dc::runtime::comm
