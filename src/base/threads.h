// File: base/threads.h: how the library starts threads of its own.
//
// The kernel gives a signal that is sent to a process to any thread that takes it. A program's
// handlers are to run on the program's threads: on one of ours they would see none of its thread
// locals, interrupt our system calls, and might never come back (longjmp). So ours take none
// (signal(7), pthread_sigmask(3)). What a thread's own fault raises is not held back, so that crash
// reporters see it.
#pragma once
#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace tutti {

/// As long as it lives, the calling thread takes no signals, and threads that it starts inherit
/// that for all their life.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t held;
    sigfillset(&held);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT})
      sigdelset(&held, fault);
    pthread_sigmask(SIG_SETMASK, &held, &before_);
  }
  ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_{};
};

/// A thread that takes none of the program's signals. Any thread may call.
template <class Thread = std::thread, class Body>
Thread start_thread(Body&& body) {
  const SignalsHeld held;
  return Thread(std::forward<Body>(body));
}

}  // namespace tutti
