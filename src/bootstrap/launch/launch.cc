// What launchers leave in the environment.
//
// The innermost launcher counts, because launchers start each other: `tutti run` first, then a real
// torchrun (only it sets TORCHELASTIC_RUN_ID), Open MPI, MPICH/Hydra, RANK and WORLD_SIZE without
// torchrun (set by hand or by a wrapper script), and last a Slurm step. A Slurm allocation alone
// starts no ranks: in a batch script or an interactive shell a program runs once.
//
// An empty variable is an unset one. TUTTI_RENDEZVOUS, TUTTI_JOB and TUTTI_SECRET hold under every
// launcher.
#include "bootstrap/launch/launch.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "base/one_line.h"
#include "bootstrap/limits.h"
#include "tutti/rendezvous.h"

namespace tutti {
namespace {

constexpr int kMostJobRanks = 1 << 20;

std::optional<std::string> variable(const char* name) {
  const char* value = secure_getenv(name);
  if (value == nullptr || *value == 0) return std::nullopt;
  return std::string(value);
}

std::string text_of(const char* name) { return variable(name).value_or(""); }

/// It shows values of variables, which may have line breaks.
Error malformed(const std::string& what) { return {Code::kInvalidArgument, one_line(what)}; }

Result<int> number(const char* name, int least, int most) {
  const auto text = variable(name);
  if (!text) return malformed(std::string(name) + " is not set, but its launcher always sets it");
  int value = 0;
  const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (failure != std::errc{} || end != text->data() + text->size() || value < least ||
      value > most) {
    return malformed(std::string(name) + "='" + text->substr(0, 64) + "' is not a number from " +
                     std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

/// The variables in which a launcher tells a process its rank.
struct Names {
  const char *rank, *rank_count, *local_rank, *local_rank_count;
};

std::string both(const char* a, const char* b) {
  return std::string(a) + "=" + text_of(a) + " does not go with " + b + "=" + text_of(b);
}

/// Reads the four; the local two may be missing together. `local_rank_count` 1 where unknown.
Result<LaunchInfo> read(std::string launcher, const Names& names) {
  LaunchInfo info;
  info.launcher = std::move(launcher);
  TUTTI_TRY(info.rank_count, number(names.rank_count, 1, kMostJobRanks));
  TUTTI_TRY(info.rank.value, number(names.rank, 0, kMostJobRanks));
  if (info.rank.value >= info.rank_count)
    return malformed(both(names.rank, names.rank_count) + ": ranks count from 0");
  if (!variable(names.local_rank_count)) return info;
  TUTTI_TRY(info.local_rank_count, number(names.local_rank_count, 1, kMostJobRanks));
  TUTTI_TRY(info.local_rank, number(names.local_rank, 0, kMostJobRanks));
  if (info.local_rank >= info.local_rank_count)
    return malformed(both(names.local_rank, names.local_rank_count) + ": ranks count from 0");
  if (info.local_rank_count > info.rank_count)
    return malformed(both(names.local_rank_count, names.rank_count));
  return info;
}

/// The nearest ancestor whose command is one of these, or else the parent, named for good.
std::string launcher_process(std::span<const std::string_view> commands) {
  constexpr int kMostAncestors = 32;
  int pid = getppid();
  for (int i = 0; i < kMostAncestors && pid > 1; ++i) {
    const auto process = bootstrap::name_process(pid);
    if (!process) break;
    if (std::ranges::find(commands, process->command) != commands.end()) return process->name;
    pid = process->parent;
  }
  const auto parent = bootstrap::name_process(getppid());
  return parent ? parent->name : std::to_string(getppid());
}

Result<LaunchInfo> from_tutti() {
  TUTTI_TRY(auto info, read("tutti", {"TUTTI_RANK", "TUTTI_RANK_COUNT", "TUTTI_LOCAL_RANK",
                                      "TUTTI_LOCAL_RANK_COUNT"}));
  info.master_address = text_of("MASTER_ADDR");  // On several hosts, where rank 0 is.
  return info;
}

Result<LaunchInfo> from_torchrun() {
  TUTTI_TRY(auto info, read("torchrun", {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}));
  info.master_address = text_of("MASTER_ADDR");
  if (variable("MASTER_PORT")) {
    TUTTI_TRY(info.master_port, number("MASTER_PORT", 1, 65535));
  }
  // torchrun's own name of a run is "none" unless the user gave one; its store's address is unique
  // as long as it runs.
  info.job = "torchrun-" + text_of("TORCHELASTIC_RUN_ID") + "-" +
             text_of("TORCHELASTIC_RESTART_COUNT") + "-" + info.master_address + "-" +
             std::to_string(info.master_port);
  return info;
}

Result<LaunchInfo> from_openmpi() {
  TUTTI_TRY(auto info,
            read("openmpi", {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}));
  info.job = "openmpi-" + variable("PMIX_NAMESPACE").value_or(text_of("OMPI_MCA_ess_base_jobid"));
  if (info.local_rank_count == info.rank_count) {
    // Job numbers come again; one launcher on one host does not.
    constexpr std::array<std::string_view, 7> kCommands{"mpirun", "mpiexec", "orterun", "prterun",
                                                        "orted",  "prted",   "prte"};
    info.job += "-" + launcher_process(kCommands);
  }
  return info;
}

Result<LaunchInfo> from_mpich() {
  TUTTI_TRY(auto info,
            read("mpich", {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}));
  info.job = "mpich";
  if (info.local_rank_count == info.rank_count) {
    constexpr std::array<std::string_view, 4> kCommands{"hydra_pmi_proxy", "mpiexec.hydra",
                                                        "mpiexec.mpich", "mpiexec"};
    info.job += "-" + launcher_process(kCommands);
  } else {
    // The environment has no name for a job on several hosts: see launch_rendezvous.
    info.job.clear();
  }
  return info;
}

Result<LaunchInfo> from_slurm() {
  const char* count = variable("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  TUTTI_TRY(auto info, read("slurm", {"SLURM_PROCID", count, "", ""}));
  if (variable("SLURM_LOCALID")) {
    TUTTI_TRY(info.local_rank, number("SLURM_LOCALID", 0, kMostJobRanks));
  }
  // All ranks have to come to the same answer to "are we all on one host?", so there is no
  // guessing.
  const auto nodes = variable("SLURM_STEP_NUM_NODES").value_or(text_of("SLURM_NNODES"));
  const std::string counts = text_of("SLURM_STEP_TASKS_PER_NODE");
  if (nodes == "1" || info.rank_count == 1) {
    info.local_rank_count = info.rank_count;
  } else {
    TUTTI_TRY(const int node, number("SLURM_NODEID", 0, kMostJobRanks));
    const auto here = bootstrap::tasks_of_node(counts, node);
    if (!here) {
      return malformed("SLURM_STEP_TASKS_PER_NODE='" + counts.substr(0, 64) +
                       "' does not say how many ranks node " + std::to_string(node) + " has");
    }
    info.local_rank_count = *here;
  }
  if (info.local_rank_count > info.rank_count || info.local_rank >= info.local_rank_count) {
    return malformed("SLURM_LOCALID=" + text_of("SLURM_LOCALID") + ", " + count + "=" +
                     text_of(count) + " and SLURM_STEP_TASKS_PER_NODE=" + counts.substr(0, 64) +
                     " do not go together");
  }
  // Rank 0 runs on the step's first node. Where srun was called is only the second-best guess: it
  // may have been a login node.
  info.master_address = bootstrap::first_host(text_of("SLURM_STEP_NODELIST"));
  if (info.master_address.empty()) info.master_address = text_of("SLURM_LAUNCH_NODE_IPADDR");
  info.job = "slurm-" + text_of("SLURM_JOB_ID") + "." + text_of("SLURM_STEP_ID");
  return info;
}

Result<LaunchInfo> from_launcher() {
  if (variable("TUTTI_RANK") || variable("TUTTI_RANK_COUNT")) return from_tutti();
  if (variable("TORCHELASTIC_RUN_ID") && variable("RANK")) return from_torchrun();
  if (variable("OMPI_COMM_WORLD_RANK") || variable("OMPI_COMM_WORLD_SIZE")) return from_openmpi();
  // Slurm speaks PMI too, but only Hydra says which ranks are on this host.
  if (variable("MPI_LOCALRANKID") || (variable("PMI_RANK") && !variable("SLURM_STEP_ID")))
    return from_mpich();
  if (variable("RANK") || variable("WORLD_SIZE")) return from_torchrun();
  if (variable("SLURM_STEP_ID") && variable("SLURM_PROCID")) return from_slurm();
  return LaunchInfo{};
}

}  // namespace

std::string bootstrap::secret_of_environment() { return text_of("TUTTI_SECRET"); }

std::optional<std::string> bootstrap::job_of_environment() {
  return variable("TUTTI_RANK") ? std::nullopt : variable("TUTTI_JOB");
}

Result<LaunchInfo> detect_launch() {
  TUTTI_TRY(auto info, from_launcher());
  info.rendezvous = text_of("TUTTI_RENDEZVOUS");
  if (!info.rendezvous.empty() && info.rendezvous.front() != '/' &&
      !bootstrap::parse_host_port(info.rendezvous)) {
    return malformed("TUTTI_RENDEZVOUS='" + info.rendezvous.substr(0, 64) +
                     "' is neither a directory (from the root: /shared/meeting) nor host:port");
  }
  info.secret = bootstrap::secret_of_environment();
  if (const auto job = variable("TUTTI_JOB")) info.job = *job;
  info.job = bootstrap::shorten(info.job);
  return info;
}

}  // namespace tutti
