#include "runtime/comm/launch.h"

#include <stdlib.h>
#include <unistd.h>

#include <charconv>
#include <optional>
#include <vector>

#include "runtime/comm/process_tree.h"

namespace dc::runtime::comm {
namespace {

using base::ErrorKind;
using base::Status;

// What one launcher says, with the two variables that say it.
struct Claim {
  LaunchInfo info;
  const char* rank_name = "";
  const char* world_name = "";
  bool by_hand = false;  // RANK and WORLD_SIZE without torchrun

  bool agrees_with(const Claim& other) const {
    return info.rank == other.info.rank && info.world == other.info.world;
  }
  std::string text() const {
    return std::string(rank_name) + "=" + std::to_string(info.rank) + ", " + world_name + "=" +
           std::to_string(info.world);
  }
};
using MaybeClaim = base::Result<std::optional<Claim>>;

Status bad(std::string sentence) {
  return Status(ErrorKind::BadConfig, "DC6120", std::move(sentence));
}

class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  std::optional<std::string> text(const char* name) const {
    const char* value = environment_(name);
    if (value == nullptr || *value == 0) return std::nullopt;
    return std::string(value);
  }
  bool has(const char* name) const { return text(name).has_value(); }
  std::string text_or(const char* name, const char* otherwise) const {
    return text(name).value_or(otherwise);
  }

  base::Result<int> number(const char* name, const char* because) const {
    const auto value = text(name);
    if (!value) {
      return bad(std::string(name) + " is not set although " + because +
                 " is; set both, or unset " + because);
    }
    int result = 0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), result);
    if (error != std::errc() || end != value->data() + value->size() || result < 0) {
      return bad(std::string(name) + "=" + *value + " is not a count; unset it or give a number");
    }
    return result;
  }

 private:
  const Environment& environment_;
};

// Reads the four numbers; `local_*` null takes one host.
base::Result<Claim> read_claim(const Variables& variables, Launcher launcher, const char* rank,
                               const char* world, const char* local_rank, const char* local_world) {
  Claim claim;
  claim.rank_name = rank;
  claim.world_name = world;
  LaunchInfo& info = claim.info;
  info.launcher = launcher;
  DC_ASSIGN_OR_RETURN(info.rank, variables.number(rank, world));
  DC_ASSIGN_OR_RETURN(info.world, variables.number(world, rank));
  info.local_rank = info.rank;
  info.local_world = info.world;
  if (local_rank != nullptr) {
    DC_ASSIGN_OR_RETURN(info.local_rank, variables.number(local_rank, rank));
    DC_ASSIGN_OR_RETURN(info.local_world, variables.number(local_world, rank));
  }
  if (info.rank >= info.world) {
    return bad(claim.text() + ": the rank must be below the number of ranks");
  }
  if (info.local_rank >= info.local_world || info.local_world > info.world) {
    return bad(claim.text() + ": " + (local_rank ? local_rank : rank) + "=" +
               std::to_string(info.local_rank) + " and " + (local_world ? local_world : world) +
               "=" + std::to_string(info.local_world) + " do not fit");
  }
  return claim;
}

MaybeClaim dcrun_claim(const Variables& variables) {
  if (!variables.has("DCRUN_RANK") && !variables.has("DCRUN_WORLD")) return std::optional<Claim>();
  DC_ASSIGN_OR_RETURN(Claim claim, read_claim(variables, Launcher::Dcrun, "DCRUN_RANK",
                                              "DCRUN_WORLD", nullptr, nullptr));
  if (!variables.has("DCRUN_JOB"))
    return bad("DCRUN_JOB is not set although DCRUN_RANK is; start with dcrun -n");
  claim.info.job = "dcrun-" + *variables.text("DCRUN_JOB");
  return std::optional<Claim>(std::move(claim));
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

// Torchrun's variables, and those that a user of another launcher sets so that ranks of several
// hosts can meet.
base::Result<std::optional<Master>> read_master(const Variables& variables, std::string run) {
  auto host = variables.text("MASTER_ADDR");
  if (!host || !variables.has("MASTER_PORT")) return std::optional<Master>();
  if (host->starts_with('[') && host->ends_with(']')) host = host->substr(1, host->size() - 2);
  DC_ASSIGN_OR_RETURN(const int port, variables.number("MASTER_PORT", "MASTER_ADDR"));
  if (port < 1 || port > 65535)
    return bad("MASTER_PORT=" + std::to_string(port) + " is no port; give one from 1 to 65535");
  return std::optional(Master{*host, port,
                              variables.text_or("TORCHELASTIC_USE_AGENT_STORE", "") == "True",
                              std::move(run)});
}

MaybeClaim torchrun_claim(const Variables& variables) {
  const bool elastic = variables.has("TORCHELASTIC_RUN_ID");
  if (!variables.has("RANK") && !variables.has("WORLD_SIZE") && !elastic)
    return std::optional<Claim>();
  const bool local_known = variables.has("LOCAL_RANK") || variables.has("LOCAL_WORLD_SIZE");
  DC_ASSIGN_OR_RETURN(Claim claim, read_claim(variables, Launcher::Torchrun, "RANK", "WORLD_SIZE",
                                              local_known ? "LOCAL_RANK" : nullptr,
                                              local_known ? "LOCAL_WORLD_SIZE" : nullptr));
  claim.by_hand = !elastic;
  const auto address = variables.text("MASTER_ADDR"), port = variables.text("MASTER_PORT");
  if (claim.info.world > 1 && (!address || !port)) {
    return bad(claim.text() + ", but " + (address ? "MASTER_PORT" : "MASTER_ADDR") +
               " is not set; set it to where rank 0 runs, or unset RANK and WORLD_SIZE and start "
               "with dcrun -n");
  }
  if (claim.info.world > 1 && !local_known && !is_loopback(*address)) {
    return bad(claim.text() +
               ", but LOCAL_RANK and LOCAL_WORLD_SIZE are not set, and MASTER_ADDR=" + *address +
               " does not tell how many ranks share this host; set them");
  }
  const std::string run = "torchrun-" + variables.text_or("TORCHELASTIC_RUN_ID", "none") + "-" +
                          variables.text_or("TORCHELASTIC_RESTART_COUNT", "0");
  DC_ASSIGN_OR_RETURN(claim.info.master, read_master(variables, run));
  claim.info.job = run + "-" + address.value_or("") + ":" + port.value_or("");
  return std::optional<Claim>(std::move(claim));
}

MaybeClaim openmpi_claim(const Variables& variables) {
  if (!variables.has("OMPI_COMM_WORLD_RANK") && !variables.has("OMPI_COMM_WORLD_SIZE"))
    return std::optional<Claim>();
  DC_ASSIGN_OR_RETURN(Claim claim, read_claim(variables, Launcher::OpenMpi, "OMPI_COMM_WORLD_RANK",
                                              "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                                              "OMPI_COMM_WORLD_LOCAL_SIZE"));
  auto job = variables.text("PMIX_NAMESPACE");
  if (!job) job = variables.text("OMPI_MCA_ess_base_jobid");
  if (!job)
    return bad(
        "OMPI_COMM_WORLD_RANK is set, but neither PMIX_NAMESPACE nor OMPI_MCA_ess_base_jobid; "
        "start with mpirun");
  // The id comes from mpirun's process id; its key, drawn for every start, tells jobs of different
  // containers apart.
  claim.info.job =
      "ompi-" + *job + "-" + variables.text_or("OMPI_MCA_orte_precondition_transports", "");
  return std::optional<Claim>(std::move(claim));
}

// The same on all ranks. Hydra has a proxy on each host, and ranks of several hosts have nothing in
// common but where they meet and their key.
std::string mpich_job(const Variables& variables, const LaunchInfo& info) {
  if (const auto job = variables.text("PMI_JOBID")) return *job;
  if (info.local_world == info.world) return launcher_identity("hydra_pmi_proxy");
  return variables.text_or("MASTER_ADDR", "") + ":" + variables.text_or("MASTER_PORT", "");
}

MaybeClaim mpich_claim(const Variables& variables) {
  if (!variables.has("PMI_RANK") && !variables.has("PMI_SIZE")) return std::optional<Claim>();
  const bool local_known = variables.has("MPI_LOCALRANKID") || variables.has("MPI_LOCALNRANKS");
  DC_ASSIGN_OR_RETURN(Claim claim, read_claim(variables, Launcher::Mpich, "PMI_RANK", "PMI_SIZE",
                                              local_known ? "MPI_LOCALRANKID" : nullptr,
                                              local_known ? "MPI_LOCALNRANKS" : nullptr));
  if (claim.info.world > 1 && !local_known && !variables.has("SLURM_STEP_ID")) {
    return bad(claim.text() +
               ", but MPI_LOCALRANKID and MPI_LOCALNRANKS are not set, so it is unknown how many "
               "ranks share this host; set them");
  }
  claim.info.job = "mpich-" + mpich_job(variables, claim.info);
  return std::optional<Claim>(std::move(claim));
}

// "2(x3),1" at node 3 is 1; nothing if the text is something else.
std::optional<int> tasks_of_node(const std::string& text, int node) {
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    int tasks = 0, repeat = 1;
    auto read = std::from_chars(at, end, tasks);
    if (read.ec != std::errc()) return std::nullopt;
    at = read.ptr;
    if (end - at > 3 && at[0] == '(' && at[1] == 'x') {
      read = std::from_chars(at + 2, end, repeat);
      if (read.ec != std::errc() || read.ptr == end || *read.ptr != ')') return std::nullopt;
      at = read.ptr + 1;
    }
    if (node < repeat) return tasks;
    node -= repeat;
    if (at < end && *at++ != ',') return std::nullopt;
  }
  return std::nullopt;
}

// Only a step, which srun starts, has ranks: a batch script sees SLURM_NTASKS too, but is alone.
MaybeClaim slurm_claim(const Variables& variables) {
  if (!variables.has("SLURM_PROCID") || !variables.has("SLURM_STEP_ID"))
    return std::optional<Claim>();
  const char* world =
      variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  if (!variables.has(world)) return std::optional<Claim>();
  DC_ASSIGN_OR_RETURN(
      Claim claim, read_claim(variables, Launcher::Slurm, "SLURM_PROCID", world, nullptr, nullptr));
  LaunchInfo& info = claim.info;
  if (info.world > 1) {
    DC_ASSIGN_OR_RETURN(info.local_rank, variables.number("SLURM_LOCALID", "SLURM_PROCID"));
    const std::string nodes =
        variables.text_or("SLURM_STEP_NUM_NODES", variables.text_or("SLURM_NNODES", "").c_str());
    const std::string layout = variables.text_or(
        "SLURM_STEP_TASKS_PER_NODE", variables.text_or("SLURM_TASKS_PER_NODE", "").c_str());
    DC_ASSIGN_OR_RETURN(const int node, nodes == "1"
                                            ? base::Result<int>(0)
                                            : variables.number("SLURM_NODEID", "SLURM_PROCID"));
    const auto tasks = nodes == "1" ? std::optional<int>(info.world) : tasks_of_node(layout, node);
    if (!tasks || *tasks <= info.local_rank || *tasks > info.world) {
      return bad(claim.text() + ", but SLURM_STEP_TASKS_PER_NODE='" + layout +
                 "' does not tell how many ranks share this host (SLURM_NODEID=" +
                 std::to_string(node) + ", SLURM_LOCALID=" + std::to_string(info.local_rank) + ")");
    }
    info.local_world = *tasks;
  }
  info.job =
      "slurm-" + variables.text_or("SLURM_JOB_ID", "0") + "." + *variables.text("SLURM_STEP_ID");
  return std::optional<Claim>(std::move(claim));
}

Status contradiction(const Claim& a, const Claim& b) {
  return Status(ErrorKind::BadConfig, "DC6121",
                "two launchers contradict each other: " + a.text() + " (" +
                    std::string(name(a.info.launcher)) + ") but " + b.text() + " (" +
                    std::string(name(b.info.launcher)) +
                    "); start with one of them, or unset the variables of the other");
}

base::Result<LaunchInfo> with_master(LaunchInfo info, const Variables& variables) {
  if (!info.master) {
    DC_ASSIGN_OR_RETURN(info.master, read_master(variables, info.job));
  }
  return info;
}

}  // namespace

std::string_view name(Launcher launcher) {
  switch (launcher) {
    case Launcher::Single:
      return "single process";
    case Launcher::Dcrun:
      return "dcrun -n";
    case Launcher::Torchrun:
      return "torchrun";
    case Launcher::OpenMpi:
      return "Open MPI";
    case Launcher::Mpich:
      return "MPICH";
    case Launcher::Slurm:
      return "Slurm";
  }
  return "unknown";
}

base::Result<LaunchInfo> detect_launch(const Environment& environment) {
  const Variables variables(environment);
  // dcrun -n starts no ranks below one of several of another launcher, so its own variables are the
  // innermost.
  DC_ASSIGN_OR_RETURN(const auto dcrun, dcrun_claim(variables));
  if (dcrun) return dcrun->info;
  DC_ASSIGN_OR_RETURN(auto openmpi, openmpi_claim(variables));
  DC_ASSIGN_OR_RETURN(auto mpich, mpich_claim(variables));
  DC_ASSIGN_OR_RETURN(auto torchrun, torchrun_claim(variables));
  DC_ASSIGN_OR_RETURN(const auto slurm, slurm_claim(variables));
  // Slurm's own process manager speaks PMI: then these variables are Slurm's.
  if (mpich && slurm && mpich->agrees_with(*slurm)) mpich.reset();

  std::vector<const Claim*> claims;
  for (const auto* claim : {&openmpi, &mpich, &torchrun}) {
    if (claim->has_value()) claims.push_back(&**claim);
  }
  for (size_t i = 1; i < claims.size(); ++i) {
    if (!claims[i]->agrees_with(*claims[0])) return contradiction(*claims[0], *claims[i]);
  }
  // Slurm's step is an outer shell of mpirun and torchrun. Variables set by hand inside a step must
  // agree with it.
  if (torchrun && torchrun->by_hand && claims.size() == 1 && slurm && slurm->info.world > 1) {
    if (!torchrun->agrees_with(*slurm)) return contradiction(*torchrun, *slurm);
    return with_master(slurm->info, variables);
  }
  if (!claims.empty()) return with_master(claims[0]->info, variables);
  if (slurm) return with_master(slurm->info, variables);
  LaunchInfo single;
  single.job = "single-" + std::to_string(getpid());
  return single;
}

base::Result<LaunchInfo> detect_launch() {
  return detect_launch([](const char* name) -> const char* { return getenv(name); });
}

}  // namespace dc::runtime::comm
