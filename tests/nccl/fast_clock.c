// A clock that runs FACTOR times as fast, for a program that it is preloaded into: minutes of
// waiting take seconds. Waits until a time of that clock end at that time.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FACTOR = 50, CLOCKS = 2 };  // CLOCK_REALTIME, CLOCK_MONOTONIC.
#define SECOND 1000000000LL

static long long began[CLOCKS];

static long long now(clockid_t clock) {
  struct timespec at;
  syscall(SYS_clock_gettime, clock, &at);
  return at.tv_sec * SECOND + at.tv_nsec;
}

static struct timespec timespec_of(long long nanoseconds) {
  const struct timespec at = {nanoseconds / SECOND, nanoseconds % SECOND};
  return at;
}

__attribute__((constructor)) static void begin(void) {
  for (int clock = 0; clock < CLOCKS; ++clock) began[clock] = now(clock);
}

int clock_gettime(clockid_t clock, struct timespec* at) {
  if (clock < 0 || clock >= CLOCKS) return (int)syscall(SYS_clock_gettime, clock, at);
  *at = timespec_of(began[clock] + (now(clock) - began[clock]) * FACTOR);
  return 0;
}

static struct timespec real_time(clockid_t clock, const struct timespec* at) {
  const long long fast = at->tv_sec * SECOND + at->tv_nsec;
  return timespec_of(began[clock] + (fast - began[clock]) / FACTOR);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  int (*const wait)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*) =
      dlsym(RTLD_NEXT, "pthread_cond_clockwait");
  const struct timespec real = real_time(clock, until);
  return wait(condition, mutex, clock, &real);
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const struct timespec* until) {
  int (*const wait)(pthread_cond_t*, pthread_mutex_t*, const struct timespec*) =
      dlsym(RTLD_NEXT, "pthread_cond_timedwait");
  const struct timespec real = real_time(CLOCK_REALTIME, until);
  return wait(condition, mutex, &real);
}
