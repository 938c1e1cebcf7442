// File: virtual/kernel/scheduler.h: which thread runs next, and what time it is.
//
// A simulated thread runs until it has to wait, or until the seed takes the baton from it at a
// *point*: every call of the C library that the simulator replaces is one. The thread that gives
// the baton up chooses the next one itself, and wakes it by a futex of the real kernel. If no
// thread can run, time jumps to the next event; if there is none either, the run is a deadlock.
#pragma once
#include <cstdint>

#include "virtual/kernel/world.h"

namespace tutti::virt {

inline constexpr int kDriver = 0;  // The driver's entity.

/// Makes a thread known, which can run at once. Null: there are too many.
Entity* add_entity(int process);
void drop_entity(Entity& entity);
/// Until make_runnable.
void suspend(Entity& entity);
inline int index_of(const Entity& entity) { return static_cast<int>(&entity - world->entities); }

/// An event of the simulated run: into the hash that two runs of a seed have in common, and onto
/// the standard error stream if the run is traced.
void note(const char* what, std::int64_t a = 0, std::int64_t b = 0);

/// A call that may take time, and after which another thread may run; faults happen here.
void point(const char* what);
/// The same for a thread that has nothing to do until others have run.
void yield();

/// Waits by `entity->wait`, which the caller has filled in, at most until `until`. False: it was
/// too long.
bool wait_until(Wait wait, Time until);
/// Wakes up to `most` threads that wait for this key; which, says the seed. How many it were.
int wake_key(std::uint64_t first, std::uint64_t second, int most);
void make_runnable(Entity& entity, bool timed_out);
/// Threads that poll objects of the real kernel look again.
void real_change();

void add_event(Time at, Event::Kind kind, int index, std::uint32_t generation);

/// Gives the baton to the driver, with a request.
void ask_driver(DriverRequest::Kind kind, int process);
/// Gives the baton to whichever thread is next. The driver calls it; it returns with the baton.
void run_others();
/// Waits for the baton: what a new thread does first.
void wait_for_baton();
/// The baton goes on, and this thread does not want it back.
void leave_baton();

/// The same at the end of a process: the driver gets the baton, and waits for that end.
void leave_to_driver();

/// Marks a rank as one that errors may name.
void blame(int rank);
bool is_blamed(int rank);

}  // namespace tutti::virt
