// Times collectives as one rank of a launcher: `links BACKEND BYTES...`. Rank 0 prints a line of
// JSON for each collective and size (of the whole value): the median of its times, and what all of
// them cost this process in time of the processor.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/comm/rendezvous.h"
#include "tests/runtime/comm/time_collective.h"

namespace {

using dc::base::Status;
using dc::runtime::comm::CollectiveBuffer;
using dc::runtime::comm::Communicator;

struct Sweep {
  const char* name;
  Status (Communicator::*run)(std::span<const CollectiveBuffer>, dc::runtime::device::Stream&);
};
constexpr Sweep kSweeps[] = {{"all_gather", &Communicator::all_gather},
                             {"reduce_scatter", &Communicator::reduce_scatter},
                             {"all_reduce", &Communicator::all_reduce}};

Status time_one(Communicator& comm, const Sweep& sweep, const CollectiveBuffer& buffer,
                dc::runtime::device::Stream& stream) {
  Status status = dc::base::ok_status();
  const auto note = [&](Status made) {
    status = std::move(made);
    return status.ok();
  };
  dc::runtime::comm::time_collective(
      sweep.name, buffer.elements * 4, comm.rank().v == 0, [&] { return note(comm.barrier()); },
      [&] {
        return note((comm.*sweep.run)({&buffer, 1}, stream));
      });
  return status;
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
