// Open MPI's own collectives, timed as links.cpp times ours: `mpi_links BYTES...` under mpirun; the
// same lines.
#include <mpi.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "tests/runtime/comm/time_collective.h"

namespace {

void run(std::string_view name, std::vector<float>& whole, std::vector<float>& shard) {
  const int count = static_cast<int>(shard.size());
  if (name == "all_gather")
    MPI_Allgather(shard.data(), count, MPI_FLOAT, whole.data(), count, MPI_FLOAT, MPI_COMM_WORLD);
  else if (name == "reduce_scatter")
    MPI_Reduce_scatter_block(whole.data(), shard.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  else
    MPI_Allreduce(MPI_IN_PLACE, whole.data(), static_cast<int>(whole.size()), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
}

void time_one(const char* name, int64_t bytes, int rank, int world) {
  std::vector<float> shard(static_cast<size_t>(bytes / 4 / world));
  std::vector<float> whole(shard.size() * static_cast<size_t>(world));
  dc::runtime::comm::time_collective(
      name, bytes, rank == 0, [] { return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS; },
      [&] {
        run(name, whole, shard);
        return true;
      });
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, world = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  for (const char* name : {"all_gather", "reduce_scatter", "all_reduce"}) {
    for (int i = 1; i < argc; ++i) time_one(name, std::atoll(argv[i]), rank, world);
  }
  return MPI_Finalize();
}
