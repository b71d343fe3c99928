// Open MPI's own collectives, timed as links.cpp times ours: `mpi_links BYTES...` under mpirun; the
// same lines.
#include <mpi.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double processor_ms() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

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

void time_one(std::string_view name, int64_t bytes, int rank, int world) {
  std::vector<float> shard(static_cast<size_t>(bytes / 4 / world));
  std::vector<float> whole(shard.size() * static_cast<size_t>(world));
  const int64_t repeats = std::clamp<int64_t>((int64_t{256} << 20) / bytes, 7, 200);
  std::vector<double> samples;
  double cpu = 0;
  for (int64_t i = -2; i < repeats; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double cpu_before = processor_ms();
    const auto before = Clock::now();
    run(name, whole, shard);
    const std::chrono::duration<double, std::milli> took = Clock::now() - before;
    if (i < 0) continue;
    samples.push_back(took.count());
    cpu += processor_ms() - cpu_before;
  }
  std::sort(samples.begin(), samples.end());
  if (rank == 0)
    std::printf("{\"collective\": \"%.*s\", \"bytes\": %lld, \"ms\": %.4f, \"cpu_ms\": %.4f}\n",
                static_cast<int>(name.size()), name.data(), static_cast<long long>(bytes),
                samples[samples.size() / 2], cpu / static_cast<double>(repeats));
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, world = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  for (const std::string_view name : {"all_gather", "reduce_scatter", "all_reduce"}) {
    for (int i = 1; i < argc; ++i) time_one(name, std::atoll(argv[i]), rank, world);
  }
  return MPI_Finalize();
}
