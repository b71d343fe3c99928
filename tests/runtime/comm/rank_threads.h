// Ranks of one job as threads, whose hosts meet by connect_threads().
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/rendezvous.h"

namespace dc::runtime::conformance {

using Hosts = std::unique_ptr<comm::ProcessGroup>;

// Runs `rank` with each rank's hosts; what went wrong on any.
inline std::vector<std::string> on_rank_threads(
    int world, const std::function<std::vector<std::string>(Hosts)>& rank) {
  auto hosts = comm::connect_threads(world, {});
  std::vector<std::vector<std::string>> faults(hosts.size());
  std::vector<std::thread> threads;
  threads.reserve(hosts.size());
  for (size_t i = 0; i < hosts.size(); ++i)
    threads.emplace_back([&, i] { faults[i] = rank(std::move(hosts[i])); });
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> all;
  for (const auto& each : faults) all.insert(all.end(), each.begin(), each.end());
  return all;
}

}  // namespace dc::runtime::conformance
