#include "virtual/kernel/scheduler.h"

#include <linux/futex.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "virtual/kernel/faults.h"
#include "virtual/kernel/network.h"
#include "virtual/kernel/raw.h"

namespace tutti::virt {

World* world = nullptr;
thread_local Entity* self = nullptr;

namespace {

// The driver looks this often whether a process has ended that had the baton.
constexpr long kDriverLooksNs = 50'000'000;

// Most points of a long run are waiting: spins and naps. On a slower machine there are fewer.
constexpr std::uint64_t kManyPoints = 8'000;
constexpr int kManyRanks = 16;
constexpr Time kMoreSlack = 40 * kMilli, kMostSlack = 400 * kMilli;
// A rank that naps some times between two calls must not be late by itself.
constexpr Time kNapsInDeadline = 10;

/// How many times as slow as at its start the run is now. A rank looks for dead ones once nothing
/// has come for some 400 polls. On a slower machine other ranks send within each 400 polls, so that
/// a rank would never look. Many ranks have as many points in a call as few have in a long run.
Time slowness() {
  if (world->points < kManyPoints || world->parameters.ranks > kManyRanks) return 1;
  return world->points < 3 * kManyPoints ? 8 : 32;
}

/// Many ranks run at the same time: with them the clock goes no faster than with kManyRanks.
Time side_by_side(Time one) {
  const int ranks = world->parameters.ranks;
  return ranks > kManyRanks ? one * kManyRanks / static_cast<Time>(ranks) : one;
}

bool later(const Event& a, const Event& b) {
  return a.at != b.at ? a.at > b.at : a.order > b.order;
}

Event take_event() {
  std::pop_heap(world->events, world->events + world->event_count, later);
  return world->events[--world->event_count];
}

bool stale(const Event& event) {
  return event.kind == Event::Kind::kTimer &&
         (world->entities[event.index].generation != event.generation ||
          world->entities[event.index].state != Entity::State::kWaiting);
}

void unlist(Entity& entity) {
  if (entity.place < 0) return;
  const std::int32_t last = world->runnable[--world->runnable_count];
  world->runnable[entity.place] = last;
  world->entities[last].place = entity.place;
  entity.place = -1;
}

void list(Entity& entity) {
  entity.place = world->runnable_count;
  world->runnable[world->runnable_count++] = index_of(entity);
}

void run_due() {
  while (world->event_count > 0 && (world->events[0].at <= world->now || stale(world->events[0]))) {
    const Event event = take_event();
    switch (event.kind) {
      case Event::Kind::kTimer:
        if (!stale(event)) make_runnable(world->entities[event.index], true);
        break;
      case Event::Kind::kSocket: net::on_event(event.index, event.generation); break;
      case Event::Kind::kStalled:
        if (Entity& entity = world->entities[event.index];
            entity.state == Entity::State::kRunnable && entity.place < 0)
          list(entity);
        break;
    }
  }
}

void wake_pollers() {
  for (int i = 1; i < world->entity_count; ++i) {
    Entity& entity = world->entities[i];
    if (entity.state != Entity::State::kWaiting || entity.wait != Wait::kSockets ||
        !world->processes[entity.process].dirty)
      continue;
    if (net::any_ready(entity.items, entity.item_count)) make_runnable(entity, false);
  }
  for (int i = 0; i < world->process_count; ++i) world->processes[i].dirty = false;
}

/// The next thread to run; the driver, with a request, if there is none.
Entity& pick() {
  for (;;) {
    run_due();
    if (world->network_changed) {
      world->network_changed = false;
      wake_pollers();
    }
    if (world->now > world->parameters.faults.stall_for + 4000 * kSecond ||
        world->points > world->limit_points) {
      world->request = {DriverRequest::Kind::kLimit, self->process};
      return world->entities[kDriver];
    }
    if (world->runnable_count > 0) {
      Entity& entity = world->entities[world->runnable[world->random.below(
          static_cast<std::uint64_t>(world->runnable_count))]];
      const Time stalled = world->processes[entity.process].stalled_until;
      if (stalled <= world->now) return entity;
      unlist(entity);
      add_event(stalled, Event::Kind::kStalled, index_of(entity), 0);
      continue;
    }
    if (world->event_count == 0) {
      world->request = {DriverRequest::Kind::kDeadlock, -1};
      return world->entities[kDriver];
    }
    world->now = std::max(world->now, world->events[0].at);
  }
}

void hand_to(Entity& next) {
  if (&next == self) return;
  ++world->switches;
  note("switch", index_of(next), world->runnable_count);
  // release: the next thread sees what this one did to the world; pairs with wait_for_baton.
  next.go.store(1, std::memory_order_release);
  raw(SYS_futex, &next.go, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace

Entity* add_entity(int process) {
  for (int i = 1; i < world->most_entities; ++i) {
    Entity& entity = world->entities[i];
    if (entity.state != Entity::State::kFree) continue;
    const std::uint32_t generation = entity.generation + 1;
    PollItem* const items = entity.items;
    entity.go.store(0, std::memory_order_relaxed);  // relaxed: only the baton's holder is here.
    entity.state = Entity::State::kRunnable;
    entity.wait = Wait::kNone;
    entity.process = process;
    entity.generation = generation;
    entity.items = items;
    entity.thread = 0;
    world->entity_count = std::max(world->entity_count, i + 1);
    list(entity);
    return &entity;
  }
  return nullptr;
}

void drop_entity(Entity& entity) {
  unlist(entity);
  ++entity.generation;
  entity.state = Entity::State::kFree;
}

void suspend(Entity& entity) {
  unlist(entity);
  entity.state = Entity::State::kWaiting;
  entity.wait = Wait::kNone;
}

void note(const char* what, std::int64_t a, std::int64_t b) {
  std::uint64_t word = 0xcbf29ce484222325;
  for (const char* c = what; *c != 0; ++c)
    word = (word ^ static_cast<unsigned char>(*c)) * 0x100000001b3;
  const int who = self == nullptr ? kDriver : index_of(*self);
  for (const std::uint64_t value : {word, world->now, static_cast<std::uint64_t>(who),
                                    static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)}) {
    world->hash = (world->hash ^ value) * 0xff51afd7ed558ccd;
    world->hash ^= world->hash >> 32;
  }
  if (!world->trace) return;
  char line[160];
  const int rank = self == nullptr || self->process < 0 ? -1 : own_process().rank;
  const int length =
      std::snprintf(line, sizeof(line), "%12.6f ms  rank %2d thread %2d  %-14s %lld %lld\n",
                    static_cast<double>(world->now) / 1e6, rank, who, what,
                    static_cast<long long>(a), static_cast<long long>(b));
  raw(SYS_write, 2, line, std::min<long>(length, sizeof(line) - 1));
}

void point(const char* what) {
  world->now += side_by_side((40 + world->random.below(200)) * slowness());
  ++world->points;
  note(what);
  faults::at_point();
  faults::preempt();
  if (world->random.one_in(static_cast<std::uint64_t>(world->parameters.switch_one_in))) yield();
}

void yield() {
  Entity& next = pick();
  if (&next == self) return;
  hand_to(next);
  wait_for_baton();
}

bool wait_until(Wait wait, Time until) {
  unlist(*self);
  self->state = Entity::State::kWaiting;
  self->wait = wait;
  self->timed_out = false;
  ++self->generation;
  if (until != kNever) {
    const Time most = static_cast<Time>(world->parameters.timeout_ms) * kMilli / kNapsInDeadline;
    const Time longer = std::min({kMostSlack, most, world->points / kManyPoints * kMoreSlack});
    const Time slack = std::max(world->parameters.slack, longer);
    add_event(std::max(until, world->now + 1) + world->random.below(slack + 1), Event::Kind::kTimer,
              index_of(*self), self->generation);
  }
  yield();
  return !self->timed_out;
}

void make_runnable(Entity& entity, bool timed_out) {
  if (entity.state != Entity::State::kWaiting) return;
  entity.state = Entity::State::kRunnable;
  entity.wait = Wait::kNone;
  entity.timed_out = timed_out;
  list(entity);
}

int wake_key(std::uint64_t first, std::uint64_t second, int most) {
  int woken = 0;
  const int count = world->entity_count;
  const int start =
      most < count ? static_cast<int>(world->random.below(static_cast<std::uint64_t>(count))) : 0;
  for (int i = 0; i < count && woken < most; ++i) {
    Entity& entity = world->entities[(start + i) % count];
    if (entity.state != Entity::State::kWaiting || entity.wait != Wait::kKey ||
        entity.key[0] != first || entity.key[1] != second)
      continue;
    make_runnable(entity, false);
    ++woken;
  }
  return woken;
}

void real_change() {
  for (int i = 1; i < world->entity_count; ++i) {
    Entity& entity = world->entities[i];
    if (entity.state == Entity::State::kWaiting && entity.wait == Wait::kSockets &&
        entity.polls_real)
      make_runnable(entity, false);
  }
}

void add_event(Time at, Event::Kind kind, int index, std::uint32_t generation) {
  if (world->event_count == world->most_events) {
    static const char kFull[] = "virtual: too many events\n";
    raw(SYS_write, 2, kFull, sizeof(kFull) - 1);
    raw(SYS_exit_group, 70);
  }
  world->events[world->event_count++] = {at, world->order++, kind, index, generation};
  std::push_heap(world->events, world->events + world->event_count, later);
}

void ask_driver(DriverRequest::Kind kind, int process) {
  world->request = {kind, process};
  hand_to(world->entities[kDriver]);
  wait_for_baton();
}

void run_others() { yield(); }

void wait_for_baton() {
  // acquire: pairs with the release in hand_to.
  while (self->go.load(std::memory_order_acquire) == 0) {
    if (index_of(*self) != kDriver) {
      raw(SYS_futex, &self->go, FUTEX_WAIT, 0, nullptr, nullptr, 0);
      continue;
    }
    const timespec span{0, kDriverLooksNs};
    raw(SYS_futex, &self->go, FUTEX_WAIT, 0, &span, nullptr, 0);
    // acquire: as above.
    if (self->go.load(std::memory_order_acquire) == 0 && faults::baton_is_lost()) return;
  }
  self->go.store(0, std::memory_order_relaxed);  // relaxed: only its thread waits for it.
}

void leave_baton() { hand_to(pick()); }

void leave_to_driver() {
  world->request = {DriverRequest::Kind::kExit, self->process};
  hand_to(world->entities[kDriver]);
}

void blame(int rank) {
  note("blamed", rank);
  world->faulty[rank / 32] |= 1U << (rank % 32);
  world->fault_at = std::min(world->fault_at, world->now);
}
bool is_blamed(int rank) {
  return rank >= 0 && (world->faulty[rank / 32] >> (rank % 32) & 1U) != 0;
}

}  // namespace tutti::virt
