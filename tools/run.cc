// tutti run: starts a program as several ranks on this host.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "bootstrap/file_rendezvous.h"
#include "bootstrap/launch.h"
#include "bootstrap/sockets.h"
#include "command.h"
#include "supervisor.h"

namespace tutti::tools {
namespace {

constexpr int kMostRanks = 4096;

/// A port that is free now; 0 if there is none.
int free_port() {
  const auto listening = bootstrap::listen_at("127.0.0.1", 0);
  return listening ? listening->port : 0;
}

/// Where descriptors 0 to 2 are closed, the next file opened would be taken for one of them.
void fill_standard_descriptors() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) < 0) ::open("/dev/null", O_RDWR);
  }
}

int run(const RunOptions& options) {
  fill_standard_descriptors();
  const auto directory = bootstrap::user_directory();
  if (!directory) {
    std::fprintf(stderr, "tutti run: %s\n", directory.error().to_string().c_str());
    return 1;
  }
  Job job;
  job.program = options.program;
  job.rank_count = options.rank_count;
  job.directory = *directory;
  const auto self = bootstrap::name_process(getpid());
  job.name = "run-" + (self ? self->name : std::to_string(getpid()));
  job.master_port = free_port();
  const int exit_code = Supervisor(options).run(job);
  // What ranks that were killed while they met have left; ours, and that of launchers that were.
  bootstrap::remove_dead_jobs(*directory);
  return exit_code;
}

}  // namespace

void define_run(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<RunOptions>();
  auto grace = std::make_shared<double>(options->grace.count());
  CLI::App* command = app.add_subcommand("run", "Run a program as several ranks on this host");
  command->add_option("-n,--ranks", options->rank_count, "How many ranks")
      ->required()
      ->type_name("COUNT")
      ->check(CLI::Range(1, kMostRanks).description(""));
  command->add_flag("!--no-prefix,--prefix", options->prefix,
                    "Pass lines on without \"[rank] \" before them");
  command
      ->add_option("--timeout-after-failure", *grace,
                   "From SIGTERM to SIGKILL for the other ranks once one has failed")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 3600.0).description(""))
      ->capture_default_str();
  command->add_option("program", options->program, "The program and its arguments, after --")
      ->required();
  command->footer(
      "The program finds its rank in TUTTI_RANK, TUTTI_RANK_COUNT, TUTTI_LOCAL_RANK and\n"
      "TUTTI_LOCAL_RANK_COUNT, and in RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR\n"
      "and MASTER_PORT, where scripts for torchrun look. Rank 0 gets the standard input. The exit\n"
      "code is that of the first rank that failed, 128 + signal if it was killed.\n"
      "Examples:\n"
      "  tutti run -n 4 -- ./train --epochs 3\n"
      "  tutti run -n 2 --no-prefix -- python train.py\n"
      "  tutti run -n 8 --timeout-after-failure 0.5 -- ./job");
  command->callback([options, grace, &exit_code] {
    options->grace = std::chrono::duration<double>(*grace);
    exit_code = run(*options);
  });
}

}  // namespace tutti::tools
