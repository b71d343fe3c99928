// Times collectives as one rank of a launcher: `links BACKEND BYTES...`. Rank 0 prints a line of
// JSON for each collective and size (of the whole value): the median of its times, and what all of
// them cost this process in time of the processor.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/comm/rendezvous.h"

namespace {

using dc::base::Status;
using dc::runtime::comm::CollectiveBuffer;
using dc::runtime::comm::Communicator;
using Clock = std::chrono::steady_clock;

struct Sweep {
  const char* name;
  Status (Communicator::*run)(std::span<const CollectiveBuffer>, dc::runtime::device::Stream&);
};
constexpr Sweep kSweeps[] = {{"all_gather", &Communicator::all_gather},
                             {"reduce_scatter", &Communicator::reduce_scatter},
                             {"all_reduce", &Communicator::all_reduce}};

double processor_ms() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

Status time_one(Communicator& comm, const Sweep& sweep, const CollectiveBuffer& buffer,
                dc::runtime::device::Stream& stream) {
  const int64_t bytes = buffer.elements * 4;
  const int64_t repeats = std::clamp<int64_t>((int64_t{256} << 20) / bytes, 7, 200);
  std::vector<double> samples;
  double cpu = 0;
  for (int64_t i = -2; i < repeats; ++i) {
    DC_RETURN_IF_ERROR(comm.barrier());
    const double cpu_before = processor_ms();
    const auto before = Clock::now();
    DC_RETURN_IF_ERROR((comm.*sweep.run)({&buffer, 1}, stream));
    const std::chrono::duration<double, std::milli> took = Clock::now() - before;
    if (i < 0) continue;
    samples.push_back(took.count());
    cpu += processor_ms() - cpu_before;
  }
  std::sort(samples.begin(), samples.end());
  if (comm.rank().v == 0) {
    std::printf("{\"collective\": \"%s\", \"bytes\": %lld, \"ms\": %.4f, \"cpu_ms\": %.4f}\n",
                sweep.name, static_cast<long long>(bytes), samples[samples.size() / 2],
                cpu / static_cast<double>(repeats));
  }
  return dc::base::ok_status();
}

Status run(const std::string& backend, const std::vector<int64_t>& sizes) {
  DC_ASSIGN_OR_RETURN(const auto launch, dc::runtime::comm::detect_launch());
  dc::runtime::comm::CommOptions options;
  options.backend = backend;
  DC_ASSIGN_OR_RETURN(const auto job, dc::runtime::comm::connect(launch, options));
  const int64_t largest = *std::max_element(sizes.begin(), sizes.end());
  DC_ASSIGN_OR_RETURN(const auto slab, job->allocate(2 * largest));
  DC_ASSIGN_OR_RETURN(const auto comm, job->open_communicator());
  const auto stream = job->device().make_stream();
  stream->fill(slab.base, std::byte{0}, slab.bytes);
  for (const Sweep& sweep : kSweeps) {
    for (const int64_t bytes : sizes) {
      const int64_t elements = bytes / 4, shard = (elements + launch.world - 1) / launch.world;
      const CollectiveBuffer buffer{
          {slab.base, 0}, {slab.base + largest, 0}, dc::base::DType::F32, elements, shard};
      DC_RETURN_IF_ERROR(time_one(*comm, sweep, buffer, *stream));
    }
  }
  return job->control().barrier();
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int64_t> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(std::atoll(argv[i]));
  if (sizes.empty()) return 64;
  const Status status = run(argv[1], sizes);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : dc::base::exit_code(status.kind());
}
