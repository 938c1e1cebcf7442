// A name service that does not answer costs no more than the deadline.
#include <netdb.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "bootstrap/sockets.h"
#include "support/catch.h"
#include "tutti/rendezvous.h"

namespace {

// Shared with the thread that is left behind; relaxed: only a flag.
std::atomic<bool> released{false};

}  // namespace

/// Instead of the system's: names under .silent get no answer until the test is over.
extern "C" int getaddrinfo(const char* host, const char* /*service*/, const addrinfo* hints,
                           addrinfo** /*found*/) {
  const std::string name = host;
  if ((hints->ai_flags & AI_NUMERICHOST) == 0 && name.ends_with(".silent")) {
    while (!released.load(std::memory_order_relaxed))
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return EAI_NONAME;
}

namespace tutti {
namespace {

using namespace std::chrono_literals;

TEST_CASE("a name service that does not answer costs no more than the deadline") {
  const auto start = std::chrono::steady_clock::now();
  const auto addresses = bootstrap::resolve("node7.silent", 1, Deadline::after(200ms));
  REQUIRE_FALSE(addresses);
  CHECK(addresses.error().code == Code::kTimeout);
  CHECK_THAT(addresses.error().what, Catch::Contains("where host 'node7.silent' is"));
  for (const int rank : {0, 1}) {
    const auto met = tcp_rendezvous("node7.silent", 4711, Rank{rank}, Deadline::after(200ms));
    REQUIRE_FALSE(met);
    CHECK_THAT(met.error().what, Catch::Contains("where host 'node7.silent' is"));
  }
  CHECK(std::chrono::steady_clock::now() - start < 20s);
  released.store(true, std::memory_order_relaxed);
}

}  // namespace
}  // namespace tutti
