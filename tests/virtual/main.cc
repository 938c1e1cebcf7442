// tutti_virtual: runs seeds of the simulator of processes, machines and networks
// (docs/TESTING.md).
#include <sched.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "virtual/driver.h"
#include "virtual/workload.h"

namespace {

using namespace tutti::virt;  // NOLINT(google-build-using-namespace): this program is all of it.

struct Options {
  std::uint64_t first = 1, count = 100, jobs = 1;
  std::uint64_t job = 0;  // The only one that this process does; 0: all.
  int ranks = 0;          // As many as the seed says.
  int hosts = kMostHosts;
  int calls = 0;  // How many the many ranks make; 0: one of each collective.
  bool trace = false, twice = false, verbose = false;
  std::string until;  // Ends with the first broken promise that this regular expression finds.
};

/// Addresses are part of what a seed decides: no random ones.
void fix_addresses(char** arguments) {
  const int now = personality(0xffffffff);
  if (now < 0 || (now & ADDR_NO_RANDOMIZE) != 0 || std::getenv("TUTTI_VIRTUAL_AGAIN") != nullptr)
    return;
  if (personality(static_cast<unsigned long>(now) | ADDR_NO_RANDOMIZE) < 0) return;
  setenv("TUTTI_VIRTUAL_AGAIN", "1", 1);
  execv("/proc/self/exe", arguments);
}

/// The ranks of a run take turns: on one CPU the baton is handed on without waking another.
void stay_on_a_cpu(int job) {
  cpu_set_t allowed, one;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  int left = job % std::max(CPU_COUNT(&allowed), 1);
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || left-- != 0) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof(one), &one);
  }
}

/// To a person; the first job speaks for all.
void show_progress(const Options& options, std::uint64_t seed) {
  constexpr std::uint64_t kEvery = 256;  // Runs: some seconds.
  const std::uint64_t done = seed - options.first;
  if (options.job != 1 || isatty(2) == 0 || done / options.jobs % kEvery != 0) return;
  std::fprintf(stderr, "\r%llu of %llu seeds ", static_cast<unsigned long long>(done),
               static_cast<unsigned long long>(options.count));
}

int run_seeds(const Options& options) {
  make_world(std::max(options.ranks, 16));
  int broken = 0;
  std::uint64_t runs = 0;
  std::uint64_t errors = 0, points = 0, switches = 0;
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t seed = options.first; seed < options.first + options.count;
       seed += options.jobs) {
    ++runs;
    show_progress(options, seed);
    Parameters parameters =
        options.ranks == 0 ? draw(seed) : draw_many(seed, options.ranks, options.hosts);
    if (options.ranks != 0 && options.calls != 0) parameters.calls = options.calls;
    if (options.verbose) std::fprintf(stderr, "seed %llu\n", static_cast<unsigned long long>(seed));
    const Outcome outcome = run(parameters, options.trace);
    errors += static_cast<std::uint64_t>(outcome.errors);
    points += outcome.points;
    switches += outcome.switches;
    if (options.verbose)
      std::printf("seed %llu: %s: %d errors, %llu points, %llu switches, %.3f s, hash %016llx\n",
                  static_cast<unsigned long long>(seed), describe(parameters).c_str(),
                  outcome.errors, static_cast<unsigned long long>(outcome.points),
                  static_cast<unsigned long long>(outcome.switches),
                  static_cast<double>(outcome.time) / 1e9,
                  static_cast<unsigned long long>(outcome.hash));
    if (!outcome.broken.empty()) {
      ++broken;
      std::printf("seed %llu: %s\n  replay: tutti_virtual --seed %llu --trace\n",
                  static_cast<unsigned long long>(seed), outcome.broken.c_str(),
                  static_cast<unsigned long long>(seed));
    } else if (options.twice) {
      const Outcome again = run(parameters, false);
      if (again.hash != outcome.hash) {
        ++broken;
        std::printf("seed %llu: two runs differ: %llu and %llu points\n",
                    static_cast<unsigned long long>(seed),
                    static_cast<unsigned long long>(outcome.points),
                    static_cast<unsigned long long>(again.points));
      }
    }
    std::fflush(stdout);
    if (!options.until.empty() && std::regex_search(outcome.broken, std::regex(options.until)))
      break;
  }
  if (options.job == 1 && isatty(2) != 0) std::fputs("\r\033[K", stderr);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf(
      "%llu runs, %d broken; %llu calls failed as they had to; %.0f points and %.0f switches "
      "a run; %.1f runs/s\n",
      static_cast<unsigned long long>(runs), broken, static_cast<unsigned long long>(errors),
      static_cast<double>(points) / static_cast<double>(std::max<std::uint64_t>(runs, 1)),
      static_cast<double>(switches) / static_cast<double>(std::max<std::uint64_t>(runs, 1)),
      static_cast<double>(std::max<std::uint64_t>(runs, 1)) / took.count());
  return broken == 0 ? 0 : 1;
}

/// Job j of 1 to `jobs` takes the seeds first + j - 1, first + j - 1 + jobs, ...
int run_job(const Options& options) {
  const auto cpu = static_cast<int>(options.job) - 1;
  stay_on_a_cpu(options.jobs > 1 ? cpu : std::max(sched_getcpu(), 0));
  Options mine = options;
  mine.first += options.job - 1;
  mine.count -= std::min(options.job - 1, mine.count);
  return run_seeds(mine);
}

/// Each job is a program of its own: in children of one program the kernel takes one lock for the
/// memory that all their processes have from it, and two jobs are no faster than one.
int run_jobs(const Options& options, std::vector<char*> arguments) {
  for (std::uint64_t job = 1; job <= options.jobs; ++job) {
    if (fork() != 0) continue;
    std::string option = "--job", number = std::to_string(job);
    arguments.insert(arguments.end(), {option.data(), number.data(), nullptr});
    execv("/proc/self/exe", arguments.data());
    std::perror("tutti_virtual: can't start itself");
    _exit(1);
  }
  int worst = 0;
  for (int status = 0; wait(&status) > 0;) worst |= status;
  return worst == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  fix_addresses(arguments);
  clearenv();  // Settings of the user are none of the ranks.
  setenv("TUTTI_LOG", "off", 1);
  rlimit descriptors{};
  if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    descriptors.rlim_cur = std::min<rlim_t>(descriptors.rlim_max, 16'384);
    (void)setrlimit(RLIMIT_NOFILE, &descriptors);
  }
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string_view one = arguments[i];
    const auto number = [&] {
      return i + 1 < count ? std::strtoull(arguments[++i], nullptr, 10) : 0;
    };
    if (one == "--seed")
      options.first = number(), options.count = 1;
    else if (one == "--first")
      options.first = number();
    else if (one == "--seeds")
      options.count = number();
    else if (one == "--ranks")
      options.ranks = static_cast<int>(std::min<std::uint64_t>(number(), kMostRanks));
    else if (one == "--hosts")
      options.hosts = static_cast<int>(std::clamp<std::uint64_t>(number(), 1, kMostHosts));
    else if (one == "--calls")
      options.calls = static_cast<int>(std::min<std::uint64_t>(number(), kMostCalls));
    else if (one == "--jobs")
      options.jobs = std::max<std::uint64_t>(number(), 1);
    else if (one == "--job")
      options.job = number();
    else if (one == "--until")
      options.until = i + 1 < count ? arguments[++i] : "";
    else if (one == "--trace")
      options.trace = true;
    else if (one == "--twice")
      options.twice = true;
    else if (one == "--verbose")
      options.verbose = true;
    else {
      std::fprintf(stderr,
                   "usage: tutti_virtual [--seed N | --first N --seeds N] [--jobs N [--job J]]\n"
                   "                     [--ranks N [--calls N]] [--hosts N] [--twice] [--trace] "
                   "[--verbose]\n"
                   "                     [--until REGEX]\n");
      return 2;
    }
  }
  if (options.job > options.jobs) {
    std::fprintf(stderr, "tutti_virtual: --job takes 1 to the number of --jobs\n");
    return 2;
  }
  if (options.jobs == 1) options.job = 1;
  if (options.job != 0) return run_job(options);
  return run_jobs(options, {arguments, arguments + count});
}
