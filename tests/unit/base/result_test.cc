// What a program gets that asks a success for its error: a line, not a null pointer.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "support/catch.h"
#include "tutti/result.h"

namespace tutti {
namespace {

/// The exit code of a child that does that; -1 if a signal ended it.
template <class Act>
int exit_code_of(Act&& act) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (freopen("/dev/null", "w", stderr) == nullptr) _exit(3);
    act();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Not inlined: GCC 12 takes the error that there is not for one that was never set.
[[gnu::noinline]] Result<int> one() { return 1; }

TEST_CASE("to ask a success for its error ends the program with 1") {
  const Status good = ok();
  const Result<int> value = one();
  CHECK(exit_code_of([&] { (void)good.error(); }) == 1);
  CHECK(exit_code_of([&] { (void)Status(ok()).error(); }) == 1);
  CHECK(exit_code_of([&] { (void)value.error(); }) == 1);
}

}  // namespace
}  // namespace tutti
