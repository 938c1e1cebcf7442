// Threads, what they lock and wait for, and processes.
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>

#include "virtual/kernel/faults.h"
#include "virtual/kernel/files.h"
#include "virtual/kernel/raw.h"
#include "virtual/kernel/real.h"
#include "virtual/kernel/scheduler.h"

namespace tutti::virt {
namespace {

/// Keys of threads that wait for a lock, a condition or the end of a thread: of one process only.
enum class About : std::uint64_t { kMutex = 1, kCondition = 2, kThread = 3 };

void key_for(About about, const void* address, std::uint64_t key[2]) {
  key[0] = static_cast<std::uint64_t>(self->process) << 48 | static_cast<std::uint64_t>(about);
  key[1] = reinterpret_cast<std::uintptr_t>(address);
}

bool wait_for(About about, const void* address, Time until) {
  key_for(about, address, self->key);
  return wait_until(Wait::kKey, until);
}

void wake(About about, const void* address, int most) {
  std::uint64_t key[2];
  key_for(about, address, key);
  (void)wake_key(key[0], key[1], most);
}

int lock(pthread_mutex_t* mutex, Time until) {
  for (;;) {
    const int result = TUTTI_REAL(pthread_mutex_trylock)(mutex);
    if (result != EBUSY) return result;
    if (!wait_for(About::kMutex, mutex, until)) return ETIMEDOUT;
  }
}

int unlock(pthread_mutex_t* mutex) {
  const int result = TUTTI_REAL(pthread_mutex_unlock)(mutex);
  wake(About::kMutex, mutex, 1);
  return result;
}

int wait_on(pthread_cond_t* condition, pthread_mutex_t* mutex, Time until) {
  point("cond");
  key_for(About::kCondition, condition, self->key);
  const std::uint64_t key[2] = {self->key[0], self->key[1]};
  (void)unlock(mutex);
  self->key[0] = key[0];
  self->key[1] = key[1];
  const bool woken = wait_until(Wait::kKey, until);
  (void)lock(mutex, kNever);
  return woken ? 0 : ETIMEDOUT;
}

// Threads.

struct Start {
  void* (*body)(void*);
  void* argument;
  Entity* entity;
};

/// Runs as the last of the thread's destructors of thread locals.
void end_of_thread(void* entity) {
  auto& mine = *static_cast<Entity*>(entity);
  note("thread ends", index_of(mine));
  const void* const thread = reinterpret_cast<const void*>(mine.thread);
  wake(About::kThread, thread, INT_MAX);
  drop_entity(mine);
  leave_baton();
  self = nullptr;
}

pthread_key_t end_key() {
  static const pthread_key_t key = [] {
    pthread_key_t made{};
    if (pthread_key_create(&made, end_of_thread) != 0) std::abort();
    return made;
  }();
  return key;
}

void* run_thread(void* argument) {
  const Start start = *static_cast<Start*>(argument);
  std::free(argument);  // NOLINT(cppcoreguidelines-no-malloc): made in pthread_create.
  self = start.entity;
  wait_for_baton();
  pthread_setspecific(end_key(), start.entity);
  return start.body(start.argument);
}

Entity* find_thread(pthread_t thread) {
  for (int i = 1; i < world->entity_count; ++i) {
    Entity& entity = world->entities[i];
    if (entity.state != Entity::State::kFree && entity.process == self->process &&
        entity.thread == static_cast<std::uint64_t>(thread))
      return &entity;
  }
  return nullptr;
}

// Forks.

Entity* forked = nullptr;  // The child's first thread, while its parent forks.

/// The first of the child's handlers, before those of the library: it waits for its turn.
void in_child() {
  if (forked == nullptr) return;
  self = forked;
  forked = nullptr;
  wait_for_baton();
}

/// Before all constructors of the library, so that in_child comes before its handlers.
[[gnu::constructor(101)]] void hold_children() { (void)pthread_atfork(nullptr, nullptr, in_child); }

int new_process() {
  if (world->process_count == world->most_processes) return -1;
  const int index = world->process_count++;
  Process& process = world->processes[index];
  std::int32_t* const descriptors = process.descriptors;
  process = own_process();
  process.descriptors = descriptors;
  process.parent = self->process;
  process.pid = 0;
  process.rank = -1;
  process.finished = process.alive = false;
  process.random ^= 0x5851f42d4c957f2d;
  files::copy_all(own_process(), process);
  return index;
}

}  // namespace
}  // namespace tutti::virt

using namespace tutti::virt;  // NOLINT(google-build-using-namespace): the C library's names follow.

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  if (!active()) return TUTTI_REAL(pthread_mutex_lock)(mutex);
  point("lock");
  return lock(mutex, kNever);
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  if (!active()) return TUTTI_REAL(pthread_mutex_unlock)(mutex);
  return unlock(mutex);
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  if (!active()) return TUTTI_REAL(pthread_cond_wait)(condition, mutex);
  return wait_on(condition, mutex, kNever);
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  if (!active()) return TUTTI_REAL(pthread_cond_timedwait)(condition, mutex, until);
  return wait_on(condition, mutex, to_virtual(CLOCK_REALTIME, *until));
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  if (!active()) return TUTTI_REAL(pthread_cond_clockwait)(condition, mutex, clock, until);
  return wait_on(condition, mutex, to_virtual(clock, *until));
}

int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  if (!active()) return TUTTI_REAL(pthread_cond_signal)(condition);
  wake(About::kCondition, condition, 1);
  return 0;
}

int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  if (!active()) return TUTTI_REAL(pthread_cond_broadcast)(condition);
  wake(About::kCondition, condition, INT_MAX);
  return 0;
}

int pthread_create(pthread_t* __restrict thread, const pthread_attr_t* __restrict attributes,
                   void* (*body)(void*), void* __restrict argument) noexcept {
  if (!active()) return TUTTI_REAL(pthread_create)(thread, attributes, body, argument);
  point("thread");
  if (faults::refuses("refuse thread")) return EAGAIN;
  Entity* const entity = add_entity(self->process);
  // NOLINTNEXTLINE(cppcoreguidelines-no-malloc): freed in run_thread, past all operators of tests.
  auto* const start = static_cast<Start*>(std::malloc(sizeof(Start)));
  if (entity == nullptr || start == nullptr) return EAGAIN;
  *start = {body, argument, entity};
  const int result = TUTTI_REAL(pthread_create)(thread, attributes, run_thread, start);
  if (result != 0)
    drop_entity(*entity);
  else
    entity->thread = static_cast<std::uint64_t>(*thread);
  return result;
}

int pthread_join(pthread_t thread, void** result) {
  if (active()) {
    point("join");
    while (find_thread(thread) != nullptr)
      (void)wait_for(About::kThread, reinterpret_cast<const void*>(thread), kNever);
  }
  return TUTTI_REAL(pthread_join)(thread, result);
}

pid_t fork() noexcept {
  if (!active()) return TUTTI_REAL(fork)();
  point("fork");
  const int process = new_process();
  Entity* const entity = process < 0 ? nullptr : add_entity(process);
  if (entity == nullptr) {
    errno = EAGAIN;
    return -1;
  }
  suspend(*entity);
  forked = entity;
  const pid_t pid = TUTTI_REAL(fork)();
  if (pid == 0) return 0;  // With the baton, since in_child.
  forked = nullptr;
  world->processes[process].pid = pid;
  world->processes[process].alive = pid > 0;
  own_process().forked_at = world->now;
  make_runnable(*entity, false);
  if (pid < 0) drop_entity(*entity);
  return pid < 0 ? pid : virtual_pid(process);
}

void _exit(int code) {
  if (active()) {
    note("exit", code);
    own_process().exiting = true;
    leave_to_driver();
  }
  raw(SYS_exit_group, code);
  __builtin_unreachable();
}

}  // extern "C"
