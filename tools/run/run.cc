// tutti run: starts a program as several ranks, on this host or on others.
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "base/net/handshake.h"
#include "bootstrap/file_rendezvous.h"
#include "bootstrap/launch/launch.h"
#include "bootstrap/sockets.h"
#include "perf/command_line/command_line.h"
#include "tools/command.h"
#include "tools/run/hosts.h"
#include "tools/run/supervisor.h"
#include "tools/words.h"
#include "topology/capture/machines.h"

namespace tutti::tools {
namespace {

constexpr int kMostProcesses = 4096;
constexpr std::size_t kSecretBytes = 32;
// Without a terminal, and never asking for a password: nobody could answer for all hosts.
// A host that vanishes is noticed after 15 s: ssh itself would wait for TCP, two hours.
constexpr const char* kSsh =
    "ssh -T -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=3";

/// GPUs that are pretended, for the programs that are started.
struct SimulatedGpus {
  int count = 0;                     // 0: none are asked for.
  std::string machine = "hgx-h100";  // A model or a file of the topology.
};

struct RunOptions {
  int rank_count = 0;  // 0: one for each slot of the hosts.
  bool prefix = true;  // "[rank] " before each line.
  bool elastic = false;
  double grace_seconds = Supervision{}.grace.count();
  std::string hosts, rsh = kSsh, remote_tutti;
  SimulatedGpus simulated;
  std::vector<std::string> program;
};

/// A port that is free now; 0 if there is none.
int free_port() {
  const auto listening =
      bootstrap::listen_at("127.0.0.1", 0, Deadline::after(std::chrono::seconds(1)));
  return listening ? listening->port : 0;
}

/// Random bytes, up to 32, as hexadecimal digits.
Result<std::string> random_text(std::size_t count) {
  TUTTI_TRY(const auto random, tcp::random_bytes());
  std::string text;
  for (std::size_t i = 0; i < count; ++i)
    text += fmt::format("{:02x}", static_cast<int>(random[i]));
  return text;
}

int fail(const Error& error, int exit_code) {
  say_error("tutti run: {}\n", error.what);
  return exit_code;
}

Supervision supervision(const RunOptions& options) {
  return {.grace = std::chrono::duration<double>(options.grace_seconds),
          .elastic = options.elastic};
}

/// The user's name for the job, or ours, and what tells jobs of one name apart.
std::string name_job(const std::string& ours, const std::string& number) {
  return bootstrap::job_of_environment().value_or(ours) + "-" + number;
}

int run_here(const RunOptions& options) {
  const auto directory = bootstrap::user_directory();
  if (!directory) {
    say_error("tutti run: {}\n", directory.error().to_string());
    return 1;
  }
  Job job;
  job.program = options.program;
  job.rank_count = job.local_rank_count = options.rank_count;
  job.rendezvous = *directory;
  const auto self = bootstrap::name_process(getpid());
  job.name = name_job("run", self ? self->name : std::to_string(getpid()));
  auto secret = random_text(kSecretBytes);
  if (!secret) return fail(secret.error(), 1);
  job.secret = *std::move(secret);
  job.master_port = free_port();
  job.prefix = options.prefix;
  const int exit_code = supervise(supervision(options), ranks_of(job));
  // Files left by ranks that were killed while they joined: of this launcher and of earlier ones.
  bootstrap::remove_dead_jobs(*directory);
  return exit_code;
}

Result<std::vector<Child>> prepare_hosts(const RunOptions& options) {
  TUTTI_TRY(const auto hosts, bootstrap::parse_hosts(options.hosts));
  HostsRun run;
  TUTTI_TRY(run.hosts, bootstrap::share_out(hosts, options.rank_count));
  std::istringstream words(options.rsh);
  for (std::string word; words >> word;) run.rsh.push_back(word);
  if (run.rsh.empty()) return invalid("--rsh is empty");
  run.command = options.remote_tutti;
  std::array<char, 4096> self{};
  if (run.command.empty() && ::readlink("/proc/self/exe", self.data(), self.size() - 1) > 0)
    run.command = self.data();
  run.grace_seconds = options.grace_seconds;
  run.job.program = options.program;
  TUTTI_TRY(const std::string name, random_text(8));
  run.job.name = name_job("hosts", name);
  TUTTI_TRY(run.job.secret, random_text(kSecretBytes));
  // As other hosts know it; without what is only for ssh.
  const std::string& first = run.hosts.front().host;
  run.job.master_address = first.substr(first.find('@') + 1);
  // Below the ports that Linux hands out by itself. Nobody can know whether it is free there.
  run.job.master_port = 30000 + static_cast<int>(getpid() % 2000);
  run.job.prefix = options.prefix;
  return agents_of(run);
}

int run_on_hosts(const RunOptions& options) {
  if (options.elastic)
    return fail(invalid("--elastic is for this host; leave out --hosts"), kUsage);
  const auto agents = prepare_hosts(options);
  if (!agents) return fail(agents.error(), agents.error().code == Code::kSystem ? 1 : kUsage);
  auto how = supervision(options);
  how.what = "hosts";
  how.grace += std::chrono::seconds(1);  // First it is the agents' turn.
  return supervise(how, *agents);
}

namespace fs = std::filesystem;

/// Where the libraries are: beside the command, as it was installed or as it was built.
Result<std::string> folder_of_libraries() {
  std::error_code error;
  const fs::path bin = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* relative : {TUTTI_SIMULATED_FOLDERS}) {
    const fs::path folder = fs::weakly_canonical(bin / relative, error);
    if (!error && fs::exists(folder / "libcuda.so.1", error)) return folder.string();
  }
  return Error{Code::kUnsupported,
               "this build has no simulated GPUs: they are built where the CUDA toolkit's headers "
               "are (docs/simulated-gpus.md)"};
}

/// Sets this process's environment so that programs it starts find simulated GPUs: the folder of
/// their libraries first in LD_LIBRARY_PATH, and what is pretended in SIMT_MACHINE and
/// SIMT_DEVICES. Returns the line that says so. kInvalidArgument: there is no such machine, or it
/// has fewer GPUs; kUnsupported: this build has no such libraries.
Result<std::string> simulate_gpus(const SimulatedGpus& wanted) {
  TUTTI_TRY(const std::string folder, folder_of_libraries());
  const auto machine = topology::load_machine(wanted.machine);
  if (!machine) return invalid("--model: {}", machine.error().what);
  const auto answers = topology::library_answers(machine->graph);
  if (!answers) return invalid("--model {}: {}", wanted.machine, answers.error().what);
  const auto there = static_cast<int>(answers->cuda.gpus.size());
  if (wanted.count > there) {
    return invalid(
        "--simulated-gpus {}: a host of {} has {}; choose fewer, or another "
        "--model (dgx2 has 16)",
        wanted.count, wanted.machine, there);
  }
  // A file is found wherever programs run.
  std::error_code error;
  const std::string name = topology::is_model(wanted.machine)
                               ? wanted.machine
                               : fs::absolute(wanted.machine, error).string();
  std::string path = folder;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    constexpr std::string_view kName = "LD_LIBRARY_PATH=";
    const std::string_view text = *entry;
    if (text.starts_with(kName) && text != kName)
      path.append(":").append(text.substr(kName.size()));
  }
  ::setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  ::setenv("SIMT_MACHINE", name.c_str(), 1);
  ::setenv("SIMT_DEVICES", std::to_string(wanted.count).c_str(), 1);
  return fmt::format("{} of {}, pretended: results are right, speeds mean nothing",
                     wanted.count == 1 ? "1 GPU" : fmt::format("{} GPUs", wanted.count),
                     wanted.machine);
}

/// Without -n one rank: a program that drives all GPUs by itself.
int run_simulated(RunOptions options) {
  if (!options.hosts.empty())
    return fail(invalid("--simulated-gpus is for this host; leave out --hosts"), kUsage);
  const auto said = simulate_gpus(options.simulated);
  if (!said) return fail(said.error(), said.error().code == Code::kUnsupported ? 1 : kUsage);
  say_error("tutti run: {}\n", *said);
  if (options.rank_count == 0) options.rank_count = 1;
  return run_here(options);
}

int run(const RunOptions& options) {
  if (options.simulated.count > 0) return run_simulated(options);
  if (!options.hosts.empty()) return run_on_hosts(options);
  if (options.rank_count == 0)
    return fail(invalid("--ranks or --hosts is required; see tutti run --help"), kUsage);
  return run_here(options);
}

}  // namespace

void define_run(const perf::Command& app, int& exit_code) {
  auto options = std::make_shared<RunOptions>();
  const auto command = app.add_subcommand("run", "Run a program as several ranks");
  command.add_option("-n,--ranks", options->rank_count, "How many ranks")
      .type_name("COUNT")
      .check(perf::range(1, kMostProcesses).description(""));
  command
      .add_option("--hosts", options->hosts,
                  "Where: names or addresses, each with the ranks that it takes (a,b:4); without "
                  "-n, as many as that")
      .type_name("LIST");
  command
      .add_option("--rsh", options->rsh,
                  "What starts a command on a host, as ssh does; default: ssh -T with options by "
                  "which it asks for nothing and notices a host that vanishes")
      .type_name("COMMAND")
      .envname("TUTTI_RSH");
  command
      .add_option("--remote-tutti", options->remote_tutti,
                  "Where this command is on the hosts, if not where it is here")
      .type_name("PATH");
  command.add_flag(
      "!--no-prefix,--prefix", options->prefix,
      "Pass lines on without \"[rank] \" before them; with it, equal lines of stderr that "
      "several ranks write at once are one: \"[0-2] ...\"");
  command
      .add_option("--timeout-after-failure", options->grace_seconds,
                  "From SIGTERM to SIGKILL for the other ranks once one has failed")
      .type_name("SECONDS")
      .check(perf::range(0.0, 3600.0).description(""))
      .capture_default_str();
  command.add_flag("--elastic", options->elastic,
                   "A rank that fails does not end the others: the program goes on without it; the "
                   "exit code is 0 if one succeeds");
  const auto simulated =
      command
          .add_option("--simulated-gpus", options->simulated.count,
                      "Pretend that many GPUs, for programs that are linked with CUDA's runtime, "
                      "NCCL or Tutti; without -n, one rank")
          .type_name("COUNT")
          .check(perf::range(1, 64).description(""));
  perf::offer(command
                  .add_option("--model", options->simulated.machine,
                              "What machine they are of: a model or a file, as tutti topo takes "
                              "them")
                  .needs(simulated)
                  .type_name("FILE|MODEL")
                  .capture_default_str(),
              model_words());
  command.add_option("program", options->program, "The program and its arguments, after --")
      .type_name("COMMAND")
      .required();
  command.footer(
      "The program finds its rank in TUTTI_RANK, TUTTI_RANK_COUNT, TUTTI_LOCAL_RANK and\n"
      "TUTTI_LOCAL_RANK_COUNT, and in RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR\n"
      "and MASTER_PORT, where scripts for torchrun look. Rank 0 gets the standard input, unless\n"
      "there are --hosts. The exit code is that of the first rank that failed, 128 + signal if it\n"
      "was killed.\n"
      "Examples:\n"
      "  tutti run -n 4 -- ./train --epochs 3\n"
      "  tutti run -n 2 --no-prefix -- python train.py\n"
      "  tutti run -n 8 --timeout-after-failure 0.5 -- ./job\n"
      "  tutti run --hosts node1:8,node2:8 -- ./train\n"
      "  tutti run --simulated-gpus 8 --model dgx-a100 -n 8 -- ./all_reduce");
  command.callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace tutti::tools
