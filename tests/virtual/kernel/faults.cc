#include "virtual/kernel/faults.h"

#include <sys/wait.h>
#include <unistd.h>

#include "virtual/kernel/network.h"
#include "virtual/kernel/raw.h"
#include "virtual/kernel/scheduler.h"

namespace tutti::virt::faults {
namespace {

/// A rank that is still there; -1: none.
int victim() {
  int count = 0, chosen = -1;
  for (int i = 0; i < world->process_count; ++i) {
    const Process& process = world->processes[i];
    if (!process.alive || process.exiting || process.finished || process.parent >= 0) continue;
    if (world->random.below(static_cast<std::uint64_t>(++count)) == 0) chosen = i;
  }
  return chosen;
}

void stall(int process) {
  const Faults& faults = world->parameters.faults;
  world->stall_done = true;
  Process& stopped = world->processes[process];
  stopped.stalled_until = world->now + faults.stall_for;
  note("stall", stopped.rank, static_cast<std::int64_t>(faults.stall_for / kMilli));
  blame(stopped.rank);
}

void cut(int host) {
  const Faults& faults = world->parameters.faults;
  world->cut_done = true;
  world->network_hit = true;
  note("cut", host, faults.cut_for == kNever ? -1 : static_cast<std::int64_t>(faults.cut_for));
  net::cut(host, faults.cut_for == kNever ? kNever : world->now + faults.cut_for);
  world->fault_at = world->fault_at < world->now ? world->fault_at : world->now;
}

}  // namespace

void at_point() {
  const Faults& faults = world->parameters.faults;
  std::uint64_t points = world->points;
  if (faults.after_joining) {
    if (world->joined_at_point == 0) return;
    points -= world->joined_at_point;
  }
  if (faults.in_call >= 0) {
    if (world->called_at_point == 0) return;
    points = world->points - world->called_at_point;
  }
  if (faults.stall_at_point != 0 && points >= faults.stall_at_point && !world->stall_done) {
    if (const int process = victim(); process >= 0) stall(process);
  }
  if (faults.cut_at_point != 0 && points >= faults.cut_at_point && !world->cut_done &&
      world->parameters.hosts > 1)
    cut(static_cast<int>(world->random.below(static_cast<std::uint64_t>(world->parameters.hosts))));
  if (faults.reset_at_point != 0 && points >= faults.reset_at_point && !world->reset_done)
    world->reset_done = net::reset_one();
  if (faults.forgery != Forgery::kNone && points >= faults.forge_at_point && !world->forge_begun)
    world->forges = world->forge_begun = true;
  const auto kills = static_cast<std::uint32_t>(world->kills_done);
  if (faults.kills > kills && points >= faults.kill_at_point * (kills + 1)) {
    ++world->kills_done;
    if (const int process = victim(); process >= 0) ask_driver(DriverRequest::Kind::kKill, process);
  }
}

void preempt() {
  if (!world->random.one_in(world->parameters.preempt_one_in)) return;
  Process& process = own_process();
  // Up to as long as others have the CPU on a busy machine; mostly long enough for an answer.
  const Time end = world->now + ((20 * kMicro) << world->random.below(8));
  process.stalled_until = process.stalled_until < end ? end : process.stalled_until;
  note("preempt", process.rank);
  yield();
}

void at_step() {
  const Faults& faults = world->parameters.faults;
  if (world->called_at_point == 0 || faults.stall_at_step == 0) return;
  if (++world->steps == faults.stall_at_step) {
    stall(self->process);
    yield();
  }
}

bool refuses(const char* what) {
  const std::uint64_t one_in = world->parameters.faults.refuse_one_in;
  if (one_in == 0 || !world->random.one_in(one_in)) return false;
  const Process& process = own_process();
  note(what, process.rank);
  if (process.rank >= 0) blame(process.rank);
  return true;
}

bool interrupts() {
  const std::uint64_t one_in = world->parameters.interrupt_one_in;
  if (!world->random.one_in(one_in)) return false;
  note("interrupt", own_process().rank);
  return true;
}

bool baton_is_lost() {
  for (int i = 0; i < world->process_count; ++i) {
    Process& process = world->processes[i];
    if (!process.alive || process.parent >= 0 || process.pid == 0) continue;
    siginfo_t info{};
    if (raw(SYS_waitid, P_PID, process.pid, &info, WEXITED | WNOHANG | WNOWAIT, nullptr) == 0 &&
        info.si_pid == process.pid) {
      // acquire: the holder may have handed the baton over just before its process ended.
      if (self->go.load(std::memory_order_acquire) != 0) return false;
      world->request = {DriverRequest::Kind::kExit, i};
      return true;
    }
  }
  return false;
}

}  // namespace tutti::virt::faults
