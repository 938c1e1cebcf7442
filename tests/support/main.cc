// The main function of every Catch2 test.
#define CATCH_CONFIG_MAIN
#include <cstdio>
#include <cstdlib>

#include "support/catch.h"
#include "support/sample.h"

namespace {

// UCX writes jumps to functions of its own over mmap and munmap, to hear of memory that goes. Under
// a sanitizer these are the sanitizer's, which is then told of no mapping any more: the thread
// sanitizer compares what is mapped with accesses to a stack that was there before. Nobody here has
// memory that UCX keeps registered.
[[maybe_unused]] const int without_hooks =
    tutti::test::kSanitized ? setenv("UCX_MEM_EVENTS", "n", 0) : 0;

// Said at the start, so that a run that is killed can be repeated too.
struct SaysSeed : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testRunStarting(const Catch::TestRunInfo& run) override {
    std::fprintf(stderr, "%s: --rng-seed %u repeats this run\n", run.name.c_str(),
                 Catch::rngSeed());
  }
};
CATCH_REGISTER_LISTENER(SaysSeed)

}  // namespace
