#include "virtual/driver.h"

#include <execinfo.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "virtual/kernel/files.h"
#include "virtual/kernel/network.h"
#include "virtual/kernel/raw.h"
#include "virtual/kernel/scheduler.h"
#include "virtual/workload.h"

namespace tutti::virt {
namespace {

constexpr std::uint64_t kMostPoints = 20'000'000;  // More with more than 16 ranks.

template <class T>
T* reserve(std::size_t count) {
  void* const place = ::mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) {
    std::perror("virtual: no memory for the world");
    std::exit(1);
  }
  return static_cast<T*>(place);
}

void reset(const Parameters& parameters, bool trace) {
  for (int i = 0; i < world->entity_count; ++i) {
    PollItem* const items = world->entities[i].items;
    new (&world->entities[i]) Entity;
    world->entities[i].items = items;
  }
  for (int i = 0; i < world->process_count; ++i) {
    std::int32_t* const descriptors = world->processes[i].descriptors;
    std::fill_n(descriptors, world->most_descriptors, Descriptor::kUnknown);
    world->processes[i] = Process{};
    world->processes[i].descriptors = descriptors;
  }
  for (int i = 0; i < world->socket_count; ++i) world->sockets[i] = Socket{};
  for (int i = 0; i < std::max(parameters.ranks, world->parameters.ranks); ++i)
    world->reports[i] = RankReport{};
  const World before = *world;
  *world = World{};
  world->most_entities = before.most_entities;
  world->most_processes = before.most_processes;
  world->most_descriptors = before.most_descriptors;
  world->most_items = before.most_items;
  world->most_sockets = before.most_sockets;
  world->most_segments = before.most_segments;
  world->most_events = before.most_events;
  world->segment_bytes = before.segment_bytes;
  world->entities = before.entities;
  world->processes = before.processes;
  world->sockets = before.sockets;
  world->segments = before.segments;
  world->events = before.events;
  world->runnable = before.runnable;
  world->reports = before.reports;
  world->parameters = parameters;
  world->trace = trace;
  world->random.state = parameters.seed * 0x9e3779b97f4a7c15 + 1;
  const auto ranks = static_cast<std::uint64_t>(parameters.ranks);
  world->limit_points = kMostPoints * (1 + ranks * ranks / 256);
  world->entity_count = 1;
  world->driver_pid = static_cast<std::int32_t>(raw(SYS_getpid));
  std::snprintf(world->directory, sizeof(world->directory), "/dev/shm/virtual-ranks-%d",
                world->driver_pid);
}

/// Says where a rank has crashed.
void on_crash(int number) {
  void* frames[40];
  const int count = backtrace(frames, 40);
  backtrace_symbols_fd(frames, count, 2);
  ::signal(number, SIG_DFL);
  raise(number);
}

[[noreturn]] void be_rank(int rank, Entity* entity) {
  if (world->trace) {
    ::signal(SIGSEGV, on_crash);
    ::signal(SIGABRT, on_crash);
  }
  self = entity;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  wait_for_baton();
  run_rank(rank);
  std::exit(0);  // Destroys what lives until the end of a process, as programs do.
}

/// The last thing that std::exit does in a rank.
[[gnu::constructor(102)]] void end_in_turn() {
  (void)std::atexit([] {
    if (!active()) return;
    std::fflush(nullptr);
    _exit(0);
  });
}

void wait_for_end(const Process& process) {
  if (process.parent < 0) {
    while (raw(SYS_wait4, process.pid, nullptr, 0, nullptr) == -EINTR) {
    }
    return;
  }
  const long fd = raw(SYS_pidfd_open, process.pid, 0);
  if (fd < 0) return;
  pollfd ended{static_cast<int>(fd), POLLIN, 0};
  raw(SYS_ppoll, &ended, 1, nullptr, nullptr, 0);
  raw(SYS_close, fd);
}

/// How the process ended; 0: in order.
int end_of(const Process& process) {
  int status = 0;
  if (process.parent < 0 && raw(SYS_wait4, process.pid, &status, 0, nullptr) == process.pid)
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) != 0 ? -1 : 0;
  wait_for_end(process);
  return 0;
}

void bury(int index) {
  Process& process = world->processes[index];
  process.alive = false;
  for (int i = 1; i < world->entity_count; ++i) {
    if (world->entities[i].state != Entity::State::kFree && world->entities[i].process == index)
      drop_entity(world->entities[i]);
  }
  files::close_all(process);
  for (int i = 0; i < world->process_count; ++i) {  // A fork that has not come to be.
    Process& child = world->processes[i];
    if (child.parent == index && child.pid == 0) files::close_all(child);
  }
  real_change();
}

void kill_process(int index) {
  Process& process = world->processes[index];
  note("kill", process.rank);
  process.killed = true;
  process.killed_at = world->now;
  world->killed_at = std::min(world->killed_at, world->now);
  if (process.rank >= 0) blame(process.rank);
  if (world->parameters.faults.kill_host) {
    world->network_hit = true;
    net::cut(process.host, kNever);
    for (int i = 0; i < world->process_count; ++i) {
      Process& other = world->processes[i];
      if (other.host != process.host || !other.alive) continue;
      other.killed = true;
      other.killed_at = world->now;
      if (other.rank >= 0) blame(other.rank);
      raw(SYS_kill, other.pid, SIGKILL);
      wait_for_end(other);
      bury(i);
    }
    return;
  }
  raw(SYS_kill, process.pid, SIGKILL);
  wait_for_end(process);
  bury(index);
}

bool any_alive() {
  for (int i = 0; i < world->process_count; ++i) {
    const Process& process = world->processes[i];
    if (process.alive && process.parent < 0) return true;
  }
  return false;
}

void kill_all() {
  for (int i = 0; i < world->process_count; ++i) {
    Process& process = world->processes[i];
    if (!process.alive || process.pid == 0) continue;
    raw(SYS_kill, process.pid, SIGKILL);
    wait_for_end(process);
    process.alive = false;
  }
}

std::string waiting_threads() {
  std::string text;
  for (int i = 1; i < world->entity_count; ++i) {
    const Entity& entity = world->entities[i];
    if (entity.state == Entity::State::kFree) continue;
    text += " thread " + std::to_string(i) + " of rank " +
            std::to_string(world->processes[entity.process].rank) + " (wait " +
            std::to_string(static_cast<int>(entity.wait)) + ")";
  }
  return text;
}

/// Runs the ranks until all have ended; what went wrong with that.
std::string drive() {
  std::string broken;
  while (any_alive()) {
    world->request = DriverRequest{};
    run_others();
    const DriverRequest request = world->request;
    switch (request.kind) {
      case DriverRequest::Kind::kExit: {
        Process& process = world->processes[request.process];
        const bool in_order = process.exiting;
        const int how = end_of(process);
        if ((!in_order || how != 0) && broken.empty())
          broken =
              "rank " + std::to_string(process.rank) + " crashed: signal " + std::to_string(how);
        bury(request.process);
        break;
      }
      case DriverRequest::Kind::kKill: kill_process(request.process); break;
      case DriverRequest::Kind::kDeadlock:
        return "nothing can run and nothing is due:" + waiting_threads();
      case DriverRequest::Kind::kLimit: return "the run does not end:" + waiting_threads();
      case DriverRequest::Kind::kNone: break;
    }
  }
  return broken;
}

}  // namespace

void make_world(int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  world = new (reserve<World>(1)) World;
  const bool big = ranks > 16;
  world->most_entities = static_cast<std::int32_t>(1 + 8 * count);
  world->most_processes = static_cast<std::int32_t>(2 * count);
  world->most_descriptors = static_cast<std::int32_t>(256 + 4 * count);
  world->most_items = static_cast<std::int32_t>(128 + 2 * count);
  world->most_sockets = static_cast<std::int32_t>(big ? count * count + 8 * count : 2048);
  world->most_segments = static_cast<std::int32_t>(big ? 65536 + 64 * count : 16384);
  world->most_events = static_cast<std::int32_t>(big ? 4'000'000 : 200'000);
  world->segment_bytes = 2048;
  world->entities = reserve<Entity>(static_cast<std::size_t>(world->most_entities));
  world->processes = reserve<Process>(static_cast<std::size_t>(world->most_processes));
  world->sockets = reserve<Socket>(static_cast<std::size_t>(world->most_sockets));
  world->segments = reserve<Segment>(static_cast<std::size_t>(world->most_segments));
  world->events = reserve<Event>(static_cast<std::size_t>(world->most_events));
  world->runnable = reserve<std::int32_t>(static_cast<std::size_t>(world->most_entities));
  world->reports = reserve<RankReport>(count);
  auto* const items = reserve<PollItem>(static_cast<std::size_t>(world->most_entities) *
                                        static_cast<std::size_t>(world->most_items));
  for (int i = 0; i < world->most_entities; ++i)
    world->entities[i].items = items + static_cast<std::ptrdiff_t>(i) * world->most_items;
  auto* const descriptors =
      reserve<std::int32_t>(static_cast<std::size_t>(world->most_processes) *
                            static_cast<std::size_t>(world->most_descriptors));
  for (int i = 0; i < world->most_processes; ++i)
    world->processes[i].descriptors =
        descriptors + static_cast<std::ptrdiff_t>(i) * world->most_descriptors;
  auto* const bytes =
      reserve<std::byte>(static_cast<std::size_t>(world->most_segments) * world->segment_bytes);
  for (int i = 0; i < world->most_segments; ++i)
    world->segments[i].data = bytes + static_cast<std::ptrdiff_t>(i) * world->segment_bytes;
  world->entity_count = world->most_entities;
  world->process_count = world->most_processes;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Outcome run(const Parameters& parameters, bool trace) {
  reset(parameters, trace);
  world->entities[kDriver].state = Entity::State::kWaiting;
  self = &world->entities[kDriver];
  for (int rank = 0; rank < parameters.ranks; ++rank) {
    Process& process = world->processes[world->process_count];
    process.rank = rank;
    process.host = rank % parameters.hosts;
    process.alive = true;
    process.random = parameters.seed * 31 + static_cast<std::uint64_t>(rank);
    Entity* const entity = add_entity(world->process_count);
    ++world->process_count;
    const auto pid = static_cast<std::int32_t>(::fork());
    if (pid == 0) {
      world->running = true;
      be_rank(rank, entity);
    }
    process.pid = pid;
  }
  world->running = true;
  Outcome outcome;
  outcome.broken = drive();
  kill_all();
  world->running = false;
  while (raw(SYS_wait4, -1, nullptr, WNOHANG, nullptr) > 0) {
  }
  std::error_code ignored;
  if (parameters.joining == Joining::kDirectory)
    std::filesystem::remove_all(world->directory, ignored);
  self = nullptr;
  if (outcome.broken.empty()) outcome.broken = broken_promise();
  outcome.hash = world->hash;
  outcome.points = world->points;
  outcome.switches = world->switches;
  outcome.time = world->now;
  for (int rank = 0; rank < parameters.ranks; ++rank) {
    const RankReport& report = world->reports[rank];
    outcome.errors += report.join.code != 0 ? 1 : 0;
    for (int i = 0; i < report.call_count; ++i) outcome.errors += report.calls[i].code != 0 ? 1 : 0;
  }
  return outcome;
}

}  // namespace tutti::virt
