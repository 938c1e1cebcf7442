#include "perf/sweep/ranks.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/folder.h"
#include "base/output.h"
#include "perf/sweep/interrupt.h"

namespace tutti::perf {
namespace {

/// Says what went wrong.
int exit_code_of(const Result<int>& code) {
  if (code) return *code;
  say_error("{}\n", code.error().to_string());
  return 1;
}

/// Binds this thread to the rank's CPU among those that it may use.
void pin(int local_rank) {
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof(usable), &usable) != 0) return;
  int skip = local_rank % CPU_COUNT(&usable);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &usable) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);
    return;
  }
}

void remove_directory(const std::string& directory) {
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
}

/// A process of `options.ranks`: joins the others through a directory.
Result<int> run_forked(const Options& options, const std::string& directory, int rank,
                       const Body& body, const Settings& settings) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  TUTTI_TRY(const auto rendezvous, file_rendezvous(directory, "sweep"));
  TUTTI_TRY(auto comm, Communicator::create(*rendezvous, Rank{rank}, options.ranks, settings));
  // All have met once the barrier is over. The directory goes then, and not only at the end, so
  // that a sweep that somebody interrupts leaves nothing behind.
  TUTTI_RETURN_IF_ERROR(comm.barrier());
  if (rank == 0) remove_directory(directory);
  if (options.pin) pin(rank);
  return body(comm);
}

Result<int> run_processes(const Options& options, const Body& body, const Settings& settings) {
  TUTTI_TRY(const std::string directory, make_temporary_folder("tutti-sweep"));
  std::fflush(nullptr);
  std::vector<pid_t> children;
  const RanksInterrupts interrupts;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      interrupts.release();
      const auto code = run_forked(options, directory, rank, body, settings);
      _exit(finish_output(options.program, exit_code_of(code)));
    }
    if (child < 0) {
      const int reason = errno;
      for (const pid_t started : children) kill(started, SIGKILL);
      interrupts.wait(children);
      remove_directory(directory);
      return Error{Code::kSystem, fmt::format("starting rank {} of {}: {}", rank, options.ranks,
                                              std::strerror(reason))};
    }
    children.push_back(child);
  }
  const int code = interrupts.wait(children);
  remove_directory(directory);  // Where they did not all meet.
  return code;
}

Result<int> run_threads(const Options& options, const Body& body, const Settings& settings) {
  TUTTI_TRY(auto comms, Communicator::in_process(options.threads, settings));
  std::vector<int> codes(comms.size(), 0);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < comms.size(); ++rank) {
      threads.emplace_back([&, rank] {
        if (options.pin) pin(static_cast<int>(rank));
        codes[rank] = body(comms[rank]);
      });
    }
  }
  const auto failed = std::ranges::find_if(codes, [](int code) { return code != 0; });
  return failed == codes.end() ? 0 : *failed;
}

Result<int> run(const Options& options, const Body& body,
                const std::function<void(Settings&)>& adjust) {
  TUTTI_TRY(const auto launch, detect_launch());
  if (!launch.launcher.empty() && (options.ranks > 0 || options.threads > 1)) {
    return Error{Code::kInvalidArgument,
                 "started by " + launch.launcher +
                     ", which says how many ranks there are: leave --ranks and -t out"};
  }
  TUTTI_TRY(auto settings, Settings::from_environment());
  if (!options.plan.empty()) settings.plan = options.plan;
  if (adjust) adjust(settings);
  if (options.timeout_s > 0) settings.timeout = std::chrono::seconds(options.timeout_s);
  if (options.ranks > 0) return run_processes(options, body, settings);
  if (options.threads > 1) return run_threads(options, body, settings);
  if (launch.rank_count < 2) {
    return Error{
        Code::kInvalidArgument,
        (launch.launcher.empty() ? "started alone" : launch.launcher + " started one rank") +
            ", and one rank measures nothing: use --ranks N, or mpirun, torchrun, srun or "
            "tutti run (--ranks 1 if one is what you want)"};
  }
  TUTTI_TRY(const auto rendezvous, launch_rendezvous(launch, Deadline::after(settings.timeout)));
  TUTTI_TRY(auto comm, Communicator::create(*rendezvous, launch.rank, launch.rank_count, settings));
  if (options.pin) pin(launch.local_rank);
  return body(comm);
}

}  // namespace

int run_ranks(const Options& options, const Body& body,
              const std::function<void(Settings&)>& adjust) {
  return exit_code_of(run(options, body, adjust));
}

}  // namespace tutti::perf
