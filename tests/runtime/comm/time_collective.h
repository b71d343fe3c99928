// How links.cpp and mpi_links.cpp time one collective and say it.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace dc::runtime::comm {

// Of this process.
inline double processor_ms() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

// Times `run` on values of so many bytes, each time behind `barrier`; both give whether they
// worked. `speaks`: prints the median and the processor time of one run, as a line of JSON.
template <typename Barrier, typename Run>
bool time_collective(const char* name, int64_t bytes, bool speaks, Barrier&& barrier, Run&& run) {
  using Clock = std::chrono::steady_clock;
  const int64_t repeats = std::clamp<int64_t>((int64_t{256} << 20) / bytes, 7, 200);
  std::vector<double> samples;
  double cpu = 0;
  for (int64_t i = -2; i < repeats; ++i) {
    if (!barrier()) return false;
    const double cpu_before = processor_ms();
    const auto before = Clock::now();
    if (!run()) return false;
    const std::chrono::duration<double, std::milli> took = Clock::now() - before;
    if (i < 0) continue;
    samples.push_back(took.count());
    cpu += processor_ms() - cpu_before;
  }
  std::sort(samples.begin(), samples.end());
  if (speaks) {
    std::printf("{\"collective\": \"%s\", \"bytes\": %lld, \"ms\": %.4f, \"cpu_ms\": %.4f}\n", name,
                static_cast<long long>(bytes), samples[samples.size() / 2],
                cpu / static_cast<double>(repeats));
  }
  return true;
}

}  // namespace dc::runtime::comm
