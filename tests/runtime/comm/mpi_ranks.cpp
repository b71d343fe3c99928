// One rank of the suite under a real launcher: `mpi_ranks mpi|mpi-groups|mpi-hosts|local|mpi-late`.
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tests/runtime/comm/conformance.h"
#include "tests/runtime/comm/groups.h"

namespace {

int run(const std::string& what) {
  const auto launch = dc::runtime::comm::detect_launch();
  if (!launch.ok()) return std::fprintf(stderr, "%s\n", launch.status().to_string().c_str()), 1;
  if (launch.value().world == 1) return std::fprintf(stderr, "not started by a launcher\n"), 1;
  dc::runtime::comm::CommOptions options;
  options.backend = what == "local" ? "local" : "mpi";
  if (what == "mpi-late") options.timeout = std::chrono::milliseconds(300);
  auto job = dc::runtime::comm::connect(launch.value(), options);
  if (!job.ok()) return std::fprintf(stderr, "%s\n", job.status().to_string().c_str()), 1;
  if (what == "mpi-late") {
    if (launch.value().rank == 1) sleep(2);
    const dc::base::Status status = job.value()->control().barrier();
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
    return status.ok() ? 0 : dc::base::exit_code(status.kind());
  }
  namespace conformance = dc::runtime::conformance;
  const auto faults = what == "mpi-groups"  ? conformance::run_groups(*job.value())
                      : what == "mpi-hosts" ? conformance::run_across_hosts(*job.value())
                                            : conformance::run_rank(*job.value(), true);
  for (const std::string& fault : faults) std::fprintf(stderr, "%s\n", fault.c_str());
  if (launch.value().rank == 0 && faults.empty())
    std::printf("%s conforms\n", std::string(job.value()->control().name()).c_str());
  return faults.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? run(argv[1]) : 64; }
