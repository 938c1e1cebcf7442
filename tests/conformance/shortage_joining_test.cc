// Memory runs out while ranks join, or while an error is made: all ranks learn it, and nothing is
// thrown.
#include <memory>
#include <thread>
#include <vector>

#include "base/folder.h"
#include "base/wall.h"
#include "bootstrap/sockets.h"
#include "support/catch.h"
#include "support/shortage.h"
#include "tutti/communicator.h"

namespace tutti::test {
namespace {

TEST_CASE("an error that finds no memory keeps its code and its ranks") {
  static_assert(sizeof(Status) == sizeof(void*));
  std::vector<Status> made(3);
  const std::string longer(100, 'a');
  {
    Error errors[] = {{Code::kTimeout, longer, Rank{4095}, Rank{0}},
                      {Code::kInternal, longer},
                      {Code::kPeerFailed, longer, Rank{1}, Rank{2}}};
    const Shortage shortage(1, Failing::kAllFromThenOn);
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = std::move(errors[i]);
    const Error& shown = made[0].error();  // Another one is looked at meanwhile.
    if (shown.code != Code::kTimeout || made[1].error().code != Code::kInternal ||
        shown.code != Code::kTimeout)
      made.clear();
  }
  REQUIRE(made.size() == 3);
  for (const Status& status : made) {
    CHECK_FALSE(status);
    CHECK(status.error().what == "out of memory");
  }
  CHECK(made[0].error().rank == Rank{4095});
  CHECK(made[0].error().peer == Rank{0});
  CHECK(made[1].error().rank == Rank{-1});
  CHECK(made[1].error().peer == Rank{-1});
  // With memory again a status keeps what its owner adds, wherever it goes.
  made[2].error().what += longer;
  for (int others = 0; others < 20; ++others) (void)std::as_const(made[others % 2]).error();
  const Status moved = std::move(made[2]);
  CHECK(made[2]);
  CHECK(moved.error().to_string() == "rank 1: peer failed: out of memory" + longer);
  made[0] = std::move(made[1]);
  CHECK(made[0].error().code == Code::kInternal);
}

// libstdc++'s iterators end the process.
TEST_CASE("memory that runs out while a folder is read is an error") {
  const std::string folder = "/proc/self";
  Status read;
  bool struck = true;
  for (long n = 1; struck; ++n) {
    INFO("allocation " << n);
    {
      const Shortage shortage(n, Failing::kOne);
      read = walled("a folder", [&]() -> Status {
        TUTTI_TRY([[maybe_unused]] const auto names, names_in(folder));
        return ok();
      });
      struck = shortage.has_struck();
    }
    CHECK(bool(read) == !struck);
    REQUIRE(n < 1000);
  }
}

TEST_CASE("memory that runs out where ranks are threads ends all of them") {
  Settings settings;
  settings.timeout = kLimit;
  for (const Failing which : {Failing::kOne, Failing::kAllFromThenOn}) {
    bool struck = true;
    for (long n = 1; struck; n = next(n, which)) {
      INFO("allocation " << n << (which == Failing::kOne ? "" : " and all later ones"));
      const auto begin = std::chrono::steady_clock::now();
      bool thrown = false, made = true;
      try {
        const Shortage shortage(n, which);
        made = bool(Communicator::in_process(3, settings));
        struck = shortage.has_struck();
      } catch (const std::exception&) {
        thrown = true;
      }
      CHECK_FALSE(thrown);
      if (which == Failing::kAllFromThenOn && struck) CHECK_FALSE(made);
      REQUIRE(std::chrono::steady_clock::now() - begin < kToldWithin);
      REQUIRE(n < 5000);
    }
  }
}

/// Two ranks meet, one of which lacks memory; `theirs` is the rendezvous of the other one. Returns
/// whether there were as many allocations.
bool join_with_failure(std::shared_ptr<Rendezvous> mine, Rendezvous& theirs, Rank me, long n,
                       Failing which) {
  Settings settings;
  settings.transport = "shared_memory";
  settings.timeout = kLimit;
  Status other;
  const auto begin = std::chrono::steady_clock::now();
  std::thread second([&] {
    auto made = Communicator::create(theirs, Rank{1 - me.value}, 2, settings);
    other = made ? made->barrier() : Status(std::move(made.error()));
  });
  Status own;
  bool struck = false, thrown = false;
  try {
    const Shortage shortage(n, which);
    auto made = Communicator::create(*mine, me, 2, settings);
    if (!made) mine.reset();  // Without memory it may be all that this rank can do.
    struck = shortage.has_struck();
    end_shortage();
    own = made ? made->barrier() : Status(std::move(made.error()));
  } catch (const std::exception&) {
    thrown = true;
    (void)theirs.fail({Code::kAborted, "thrown"});
  }
  second.join();
  INFO("allocation " << n << "; this rank: " << text(own) << "; the other: " << text(other));
  CHECK_FALSE(thrown);
  if (!own) CHECK_FALSE(other);
  if (!other) CHECK(other.error().code != Code::kTimeout);
  REQUIRE(std::chrono::steady_clock::now() - begin < kToldWithin);
  return struck;
}

TEST_CASE("memory that runs out while joining is told to the others") {
  for (const Failing which : {Failing::kOne, Failing::kAllFromThenOn}) {
    INFO((which == Failing::kOne ? "one fails" : "all fail from one on"));
    bool struck = true;
    long n = 0;
    while (struck) {
      n = next(n, which);
      const auto meeting = memory_rendezvous();
      struck = join_with_failure(meeting, *meeting, Rank{0}, n, which);
    }
    CHECK(n < 5000);
  }
}

TEST_CASE("memory that runs out at a client of a store is told to the others") {
  int port = 0;
  {
    const auto listening =
        bootstrap::listen_at("127.0.0.1", 0, Deadline::after(std::chrono::seconds(10)));
    REQUIRE(listening);
    port = listening->port;
  }
  bool struck = true;
  for (long n = 1; struck; n = next(n, Failing::kAllFromThenOn)) {
    auto host = tcp_rendezvous("127.0.0.1", port, Rank{0}, Deadline::after(kLimit), "secret");
    REQUIRE(host);
    auto client = tcp_rendezvous("127.0.0.1", port, Rank{1}, Deadline::after(kLimit), "secret");
    REQUIRE(client);
    struck = join_with_failure(*std::move(client), **host, Rank{1}, n, Failing::kAllFromThenOn);
    REQUIRE(n < 5000);
  }
}

}  // namespace
}  // namespace tutti::test
