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
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/wall.h"
#include "tutti/result.h"

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

/// Starts a thread that takes none of the program's signals. kSystem if the system refuses it;
/// `what` names the thread in that error. Any thread may call.
template <class Thread = std::thread, class Body>
Result<Thread> start_thread(std::string_view what, Body&& body) {
  const SignalsHeld held;
  try {
    return Thread(std::forward<Body>(body));
  } catch (const std::exception& refused) {
    return walled(what, [&]() -> Result<Thread> {  // There may be no memory for the text either.
      return Error{
          Code::kSystem,
          std::string(what) + " can't be started: " + refused.what() +
              "; raise the limit of threads (ulimit -u, the cgroup's pids.max) or free memory"};
    });
  }
}

}  // namespace tutti
