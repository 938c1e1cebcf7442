// From a seed to a run.
#include <algorithm>
#include <cstdio>

#include "tutti/types.h"
#include "virtual/workload.h"

namespace tutti::virt {
namespace {

constexpr std::uint32_t kWideWindow = 65536;

Faults draw_faults(Random& random, const Parameters& run) {
  Faults faults;
  faults.after_joining = random.below(4) != 0;
  const auto moment = [&] {  // Points of schedule: some hundreds to some ten thousands.
    const std::uint64_t scale = std::uint64_t{50} << random.below(9);
    return 1 + random.below(scale);
  };
  switch (random.below(9)) {
    case 0:
    case 1:
    case 2:
      faults.kills = random.one_in(5) && run.ranks > 2 ? 2 : 1;
      faults.kill_at_point = moment();
      faults.kill_host = run.hosts > 1 && random.one_in(4);
      if (random.one_in(3))
        faults.fork_in_rank = 1 + random.below(static_cast<std::uint64_t>(run.ranks));
      break;
    case 3:
    case 4:
      faults.stall_at_point = moment();
      // From short to longer than the deadline.
      faults.stall_for =
          (std::uint64_t{1} +
           random.below(static_cast<std::uint64_t>(random.one_in(2) ? 100 : 2 * run.timeout_ms))) *
          kMilli;
      break;
    case 5:
      if (run.hosts > 1) {
        faults.cut_at_point = moment();
        faults.cut_for =
            random.one_in(3)
                ? kNever
                : (1 + random.below(2 * static_cast<std::uint64_t>(run.timeout_ms))) * kMilli;
      }
      break;
    case 6:
      if (run.rails > 1) faults.reset_at_point = moment();
      break;
    case 7:
      faults.after_joining = random.one_in(2);
      faults.forgery = static_cast<Forgery>(1 + random.below(3));
      faults.forge_at_point = moment();
      break;
    default: faults.refuse_one_in = 20 + random.below(400); break;
  }
  return faults;
}

/// Ranks share memory: all of them, or those of each of two hosts.
void draw_near(Random& random, Parameters& run) {
  run.hosts = run.ranks > 2 && random.one_in(3) ? 2 : 1;
  run.rails = 1;
  run.shared_memory = run.hosts == 1;
  run.joining = static_cast<Joining>(random.below(3));
  run.window = std::max(run.window, kWideWindow);
}

/// An abort in the middle of large calls on memory that all ranks write, while one of them stands
/// still for a moment: it finds the abort late.
void draw_late_writer(Random& random, Parameters& run) {
  draw_near(random, run);
  run.mapped = run.abort_thread = true;
  run.most_kib = 128;
  run.switch_one_in = static_cast<std::int32_t>(1 + random.below(4));
  run.faults.in_call = run.abort_call;
  run.faults.stall_at_step =
      static_cast<std::uint32_t>(1 + random.below(2 * static_cast<std::uint64_t>(run.ranks)));
  run.faults.stall_for = (2 + random.below(400)) * kMilli;
}

/// Forks while peers ask for the memory of large calls: a thread of the library holds its locks.
void draw_forks(Random& random, Parameters& run) {
  draw_near(random, run);
  run.mapped = run.starts_all = true;
  run.switch_one_in = static_cast<std::int32_t>(1 + random.below(4));
  run.faults.fork_in_rank = 1 + random.below(static_cast<std::uint64_t>(run.ranks));
}

/// A rank joins when the time of the others is nearly over: what is left of it is short for the
/// steps behind the first one.
void draw_late(Random& random, Parameters& run) {
  run.late_rank = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(run.ranks)));
  const Time span = (10 * kMilli) << random.below(5);
  run.late_by = static_cast<Time>(run.timeout_ms) * kMilli + kMilli - random.below(span);
}

}  // namespace

Parameters draw(std::uint64_t seed) {
  Random random{seed * 0x2545f4914f6cdd1d};
  Parameters run;
  run.seed = seed;
  run.ranks = static_cast<std::int32_t>(2 + random.below(random.one_in(4) ? 7 : 3));
  run.hosts = random.one_in(2) ? 1 : static_cast<std::int32_t>(1 + random.below(3));
  if (run.hosts > run.ranks) run.hosts = run.ranks;
  run.rails =
      run.hosts > 1 && random.one_in(3) ? static_cast<std::int32_t>(2 + random.below(2)) : 1;
  run.cpus = static_cast<std::int32_t>(1 + random.below(8));
  run.shared_memory = run.hosts == 1 && !random.one_in(4);
  constexpr std::int32_t kSwitches[] = {1, 4, 8, 16, 32, 128};
  run.switch_one_in = kSwitches[random.below(6)];
  run.latency = (5 + random.below(200)) * kMicro;
  run.jitter = random.below(4 * run.latency);
  run.bytes_per_ms = std::uint64_t{10'000} << random.below(8);
  if (random.one_in(4)) run.loss_one_in = static_cast<std::uint32_t>(40 + random.below(200));
  run.window = std::uint32_t{4096} << random.below(6);
  if (random.one_in(3)) run.short_one_in = static_cast<std::uint32_t>(1 + random.below(20));
  constexpr Time kSlacks[] = {0, 50 * kMicro, kMilli, 10 * kMilli};
  run.slack = kSlacks[random.below(4)];
  constexpr std::int32_t kTimeouts[] = {2000, 3000, 5000};
  run.timeout_ms = kTimeouts[random.below(3)];
  if (run.loss_one_in != 0) run.timeout_ms = 10000;  // So that only faults let a call fail.
  run.joining = run.hosts > 1 ? (random.one_in(2) ? Joining::kTcp : Joining::kUniqueId)
                              : static_cast<Joining>(random.below(3));
  if (run.hosts > 1 && random.one_in(4)) run.joining = Joining::kDirectory;
  run.calls = static_cast<std::int32_t>(1 + random.below(12));
  // Long messages through small windows take a second of the CPU, and most of that is waiting.
  run.most_kib = random.one_in(6) && (run.shared_memory || run.window >= kWideWindow) ? 128 : 8;
  const auto fate = random.below(12);
  switch (fate) {
    case 0:
      run.odd_call = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(run.calls)));
      run.odd_rank = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(run.ranks)));
      break;
    case 1:
      run.abort_call =
          static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(run.calls)));
      run.abort_rank =
          static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(run.ranks)));
      run.abort_thread = random.one_in(2);
      if (random.one_in(2))
        draw_late_writer(random, run);
      else
        run.repeats = random.one_in(2);
      break;
    case 2:
      run.absent_call =
          static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(run.calls)));
      run.absent_rank =
          static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(run.ranks)));
      break;
    case 3: draw_forks(random, run); break;
    case 4:
    case 5: break;  // Nothing goes wrong, but that a rank may join late.
    default: run.faults = draw_faults(random, run); break;
  }
  // A lost rail is looked for twice a second at first, so a rank that still joins waits some
  // seconds.
  if (run.faults.reset_at_point != 0) run.timeout_ms = 20000;
  if (random.one_in(3)) run.interrupt_one_in = static_cast<std::uint32_t>(2 + random.below(100));
  // A host that vanishes is noticed late, and by some ranks later than by others.
  run.recovers = run.faults.kills != 0 && !run.faults.kill_host && random.one_in(2);
  run.windows = random.one_in(8);
  if ((fate == 4 || fate == 5) && random.one_in(2)) draw_late(random, run);
  if (random.one_in(4)) run.preempt_one_in = std::uint32_t{200} << random.below(5);
  return run;
}

Parameters draw_many(std::uint64_t seed, int ranks, int hosts) {
  Parameters run;
  run.seed = seed;
  run.ranks = ranks;
  run.hosts = hosts;
  run.cpus = 8;
  run.switch_one_in = 128;
  run.joining = Joining::kTcp;
  run.shared_memory = hosts == 1;
  run.one_of_each = true;
  run.timeout_ms = 60'000;
  run.calls = kCollectiveCount;
  run.most_kib = 4;
  Random random{seed};
  if (random.one_in(2)) {
    run.faults.kills = 1;
    run.faults.after_joining = true;
    run.faults.kill_at_point = random.below(4 * static_cast<std::uint64_t>(ranks));
  }
  return run;
}

std::string describe(const Parameters& run) {
  constexpr const char* kJoinings[] = {"directory", "tcp", "unique id"};
  constexpr const char* kForgeries[] = {"no forgery", "changed byte", "repeated packet",
                                        "dropped packet"};
  const Faults& faults = run.faults;
  char text[480];
  std::snprintf(
      text, sizeof(text),
      "%d ranks on %d hosts, %d rails, %s, joined by %s, timeout %d ms, %d calls; kills %u%s "
      "at %llu, stall %.3f s at %llu, cut %.3f s at %llu, reset at %llu, %s at %llu, refusals 1 in "
      "%llu, "
      "%sodd call %d of rank %d, abort before %d by rank %d%s, late for %d rank %d, rank "
      "%d joins after %.3f s, fork of rank %d%s, "
      "preempted 1 in %u",
      run.ranks, run.hosts, run.rails, run.shared_memory ? "shared memory" : "tcp",
      kJoinings[static_cast<int>(run.joining)], run.timeout_ms, run.calls, faults.kills,
      faults.kill_host ? " with host" : "", static_cast<unsigned long long>(faults.kill_at_point),
      static_cast<double>(faults.stall_for) / 1e9,
      static_cast<unsigned long long>(faults.stall_at_point),
      faults.cut_for == kNever ? -1.0 : static_cast<double>(faults.cut_for) / 1e9,
      static_cast<unsigned long long>(faults.cut_at_point),
      static_cast<unsigned long long>(faults.reset_at_point),
      kForgeries[static_cast<int>(faults.forgery)],
      static_cast<unsigned long long>(faults.forge_at_point),
      static_cast<unsigned long long>(faults.refuse_one_in), run.windows ? "windows, " : "",
      run.odd_call, run.odd_rank, run.abort_call, run.abort_rank,
      run.mapped ? " of large calls" : "", run.absent_call, run.absent_rank, run.late_rank,
      static_cast<double>(run.late_by) / 1e9, static_cast<int>(faults.fork_in_rank) - 1,
      faults.after_joining ? ", after joining" : "", run.preempt_one_in);
  return text;
}

}  // namespace tutti::virt
