// Every kind of rendezvous keeps the same promises: the verbs, and the exchange over them.
#include <algorithm>
#include <array>
#include <barrier>
#include <latch>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

#include "bootstrap/limits.h"
#include "support/meetings.h"

namespace tutti {
namespace {

using namespace test;
using std::chrono::steady_clock;

Bytes random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random() & 0xff);
  return bytes;
}

/// `body(i, rendezvous)` on a thread for the i-th of these ranks; what each returned, in order. No
/// rank leaves before all are done, and somebody always plays host: a TCP store lives with rank 0.
template <class Body>
auto on_ranks(Meeting& meeting, const std::vector<int>& ranks, Body&& body) {
  using Outcome = decltype(body(std::size_t{0}, std::declval<Rendezvous&>()));
  std::vector<std::optional<Outcome>> outcomes(ranks.size());
  std::vector<std::optional<Result<std::unique_ptr<Rendezvous>>>> joined(ranks.size());
  std::optional<Result<std::unique_ptr<Rendezvous>>> host;
  if (std::find(ranks.begin(), ranks.end(), 0) == ranks.end()) host.emplace(meeting.join(0));
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      auto& mine = joined[i].emplace(meeting.join(ranks[i]));
      if (mine)
        outcomes[i].emplace(body(i, **mine));
      else
        outcomes[i].emplace(std::move(mine.error()));
    });
  }
  threads.clear();
  return outcomes;
}

std::vector<int> ranks_to(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

using Exchanged = Result<std::vector<Bytes>>;

TEST_CASE("exchange gives every rank what all gave, phase after phase") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  const auto given = [&](int phase, int rank) {
    constexpr std::size_t kSizes[] = {0, 1, 55, 4096, 100'001};
    return random_bytes(kSizes[static_cast<std::size_t>(phase + rank) % 5],
                        seed + static_cast<std::uint64_t>(100 * phase + rank));
  };
  for_each_kind([&](Make make) {
    for (const int count : {1, 2, 3, 8}) {
      INFO("ranks " << count);
      const auto meeting = make();
      const auto body = [&](std::size_t i, Rendezvous& rendezvous) -> Result<std::string> {
        for (int phase = 0; phase < 5; ++phase) {
          const int rank = static_cast<int>(i);
          TUTTI_TRY(const auto all,
                    exchange(rendezvous, Rank{rank}, count, "phase " + std::to_string(phase),
                             given(phase, rank), Deadline::after(20s)));
          if (all.size() != static_cast<std::size_t>(count)) return std::string("wrong count");
          for (int other = 0; other < count; ++other) {
            if (all[static_cast<std::size_t>(other)] != given(phase, other))
              return "wrong bytes of rank " + std::to_string(other);
          }
        }
        return std::string();
      };
      for (const auto& outcome : on_ranks(*meeting, ranks_to(count), body)) {
        INFO((*outcome ? **outcome : outcome->error().to_string()));
        CHECK((*outcome && (*outcome)->empty()));
      }
    }
  });
}

/// Exchanges nothing, as these ranks, each believing in its own rank count.
auto exchange_as(Meeting& meeting, const std::vector<int>& ranks, const std::vector<int>& counts,
                 std::chrono::milliseconds span) {
  return on_ranks(meeting, ranks, [&](std::size_t i, Rendezvous& rendezvous) -> Exchanged {
    return exchange(rendezvous, Rank{ranks[i]}, counts[i], "world/hello", {},
                    Deadline::after(span));
  });
}

TEST_CASE("exchange names the ranks that never came, on every rank") {
  struct Absence {
    int count;
    std::vector<int> present;
    const char* named;
  };
  const Absence absences[] = {
      {4, {0, 1}, "ranks 2 and 3 of 4 have not come within 0."},
      {3, {0, 1}, "rank 2 of 3 has not come within 0."},
      {64, {0, 5}, "ranks 1, 2, 3, 4, 6, 7, 8, 9 and 54 more of 64 have not come within 0."},
      {2, {1}, "rank 0 of 2 has not come within 0."},
      {5, {1, 4}, "ranks 0, 2 and 3 of 5 have not come within 0."},
  };
  for_each_kind([&](Make make) {
    for (const auto& absence : absences) {
      const auto meeting = make();
      const std::vector<int> counts(absence.present.size(), absence.count);
      const auto outcomes = exchange_as(*meeting, absence.present, counts, 200ms);
      for (const auto& outcome : outcomes) {
        REQUIRE_FALSE(*outcome);
        CHECK(outcome->error().code == Code::kTimeout);
        CHECK_THAT(outcome->error().what, Catch::StartsWith("joining communicator 'world': ") &&
                                              Catch::Contains(absence.named) &&
                                              Catch::EndsWith("(TUTTI_TIMEOUT_MS)"));
        CHECK(outcome->error().what == (*outcomes[0]).error().what);  // One verdict for all.
      }
    }
  });
}

/// How long `body` takes.
template <class Body>
std::chrono::nanoseconds time_of(Body&& body) {
  const auto start = steady_clock::now();
  body();
  return steady_clock::now() - start;
}

/// What rank 1 gives comes just behind rank 0's deadline.
class TooLate : public Shared {
 public:
  explicit TooLate(std::shared_ptr<Rendezvous> store) : Shared(std::move(store)) {}
  Result<Bytes> get(std::string_view key, Deadline deadline) override {
    if (key != "world/hello/1" || !std::exchange(first_, false)) return Shared::get(key, deadline);
    const Bytes mine(1);
    CHECK(put(key, mine));
    return Error{Code::kTimeout, "too late"};
  }

 private:
  bool first_ = true;
};

TEST_CASE("rank 0 blames the rank that came just behind the deadline, and not itself") {
  TooLate rendezvous(memory_rendezvous());
  const auto outcome =
      exchange(rendezvous, Rank{0}, 2, "world/hello", {}, Deadline{steady_clock::now()});
  REQUIRE_FALSE(outcome);
  INFO(outcome.error().what);
  CHECK(outcome.error().code == Code::kTimeout);
  CHECK(outcome.error().peer.value == 1);
  CHECK_THAT(outcome.error().what, Catch::Contains("rank 1 has come too late"));
}

TEST_CASE("a rank that comes after the others gave up is told at once") {
  for_each_kind([&](Make make) {
    const auto meeting = make();
    auto host = meeting->join(0);
    REQUIRE(host);
    const auto gave_up = exchange(**host, Rank{0}, 2, "world/hello", {}, Deadline::after(100ms));
    REQUIRE_FALSE(gave_up);
    const auto late = meeting->join(1);
    REQUIRE(late);
    CHECK(time_of([&] {
            const auto told =
                exchange(**late, Rank{1}, 2, "world/hello", {}, Deadline::after(5min));
            REQUIRE_FALSE(told);
            CHECK(told.error().what == gave_up.error().what);
          }) < 60s);
  });
}

TEST_CASE("ranks that disagree on the rank count are all told, long before the deadline") {
  struct Disagreement {
    std::vector<int> counts;  // What ranks 0, 1, … believe.
    const char* named;
  };
  const Disagreement disagreements[] = {
      {{2, 3}, "rank 1 counts 3 ranks, rank 0 counts 2"},
      {{4, 2}, "rank 1 counts 2 ranks, rank 0 counts 4"},
      {{4, 4, 3}, "rank 2 counts 3 ranks, rank 0 counts 4"},
  };
  for_each_kind([&](Make make) {
    for (const auto& disagreement : disagreements) {
      const auto meeting = make();
      const int count = static_cast<int>(disagreement.counts.size());
      // Rank 3 of 4 never comes: it is the disagreement that ends the wait.
      const auto outcomes = exchange_as(*meeting, ranks_to(count), disagreement.counts, 5min);
      for (const auto& outcome : outcomes) {
        REQUIRE_FALSE(*outcome);
        CHECK(outcome->error().code == Code::kMismatch);
        CHECK_THAT(outcome->error().what, Catch::Contains(disagreement.named));
      }
    }
    // Rank 0 believes that it is alone, and is content; the other one learns of it.
    const auto meeting = make();
    const auto outcomes = exchange_as(*meeting, {0, 1}, {1, 2}, 5min);
    CHECK(*outcomes[0]);
    REQUIRE_FALSE(*outcomes[1]);
    CHECK(outcomes[1]->error().code == Code::kMismatch);
    CHECK_THAT(outcomes[1]->error().what,
               Catch::Contains("rank 0 counts 1 ranks, rank 1 counts 2"));
  });
}

TEST_CASE("two processes that claim one rank are found out, though another rank is missing") {
  for_each_kind([&](Make make) {
    const auto meeting = make();
    const std::vector<int> ranks{0, 1, 1};
    const auto outcomes =
        on_ranks(*meeting, ranks, [&](std::size_t i, Rendezvous& rendezvous) -> Exchanged {
          if (i == 2) {  // The second claim comes after the first.
            TUTTI_TRY([[maybe_unused]] const auto first,
                      rendezvous.get("world/hello/1", Deadline::after(20s)));
          }
          return exchange(rendezvous, Rank{ranks[i]}, 3, "world/hello", {}, Deadline::after(5min));
        });
    for (const auto& outcome : outcomes) {
      REQUIRE_FALSE(*outcome);
      CHECK(outcome->error().code == Code::kMismatch);
      CHECK_THAT(outcome->error().what,
                 Catch::Contains("says it is rank 1, but process ") && Catch::Contains("before"));
    }
  });
}

TEST_CASE("two processes that claim one rank in the same instant do not both succeed") {
  for_each_kind([&](Make make) {
    const auto meeting = make();
    const auto outcomes = exchange_as(*meeting, {0, 1, 1}, {2, 2, 2}, 5min);
    CHECK((!*outcomes[1] || !*outcomes[2]));
    for (const auto& outcome : outcomes) {
      if (!*outcome) CHECK(outcome->error().code == Code::kMismatch);
    }
  });
}

/// Two processes look before either of them has said that it is rank 0; then both say so.
class Racing : public Shared {
 public:
  Racing(std::shared_ptr<Rendezvous> target, std::barrier<>& looked, std::latch& said,
         std::chrono::milliseconds late)
      : Shared(std::move(target)), looked_(looked), said_(said), late_(late) {}
  Status put(std::string_view key, std::span<const std::byte> value) override {
    auto status = Shared::put(key, value);
    if (key == "world/hello/0") said_.count_down();
    return status;
  }
  Result<Bytes> get(std::string_view key, Deadline deadline) override {
    auto value = Shared::get(key, deadline);
    if (!std::exchange(seen_, true)) {
      looked_.arrive_and_wait();
      std::this_thread::sleep_for(late_);
    }
    return value;
  }

 private:
  std::barrier<>& looked_;
  std::latch& said_;
  std::chrono::milliseconds late_;
  bool seen_ = false;
};

TEST_CASE("two processes that claim rank 0 in the same instant are told, whoever is missing") {
  for (const auto late : {0ms, 200ms}) {
    for (const bool one_comes : {false, true}) {
      INFO("the second says so " << late.count() << " ms later; rank 1 comes: " << one_comes);
      const auto store = memory_rendezvous();
      std::barrier looked(2);
      std::latch said(2);
      std::array<std::optional<Exchanged>, 2> outcomes;
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < 2; ++i) {
        threads.emplace_back([&, i] {
          Racing racing(store, looked, said, i == 0 ? 0ms : late);
          outcomes[i].emplace(
              exchange(racing, Rank{0}, 2, "world/hello", {}, Deadline::after(1min)));
        });
      }
      if (one_comes) {
        said.wait();
        (void)exchange(*store, Rank{1}, 2, "world/hello", {}, Deadline::after(1min));
      }
      threads.clear();
      // With rank 1 there, one of them may end this exchange, but not the next.
      if (!one_comes) CHECK((!*outcomes[0] && !*outcomes[1]));
      outcomes.front() = exchange(*store, Rank{0}, 2, "world/next", {}, Deadline::after(1min));
      for (const auto& outcome : outcomes) {
        if (*outcome) continue;
        CHECK(outcome->error().code == Code::kMismatch);
        CHECK_THAT(outcome->error().what, Catch::Contains("says it is rank 0, but process "));
      }
      REQUIRE_FALSE(*outcomes.front());
    }
  }
}

TEST_CASE(
    "a failure wakes every waiter, early or late, with the whole error; the first one stays") {
  for_each_kind([&](Make make) {
    const auto meeting = make();
    const Error told{Code::kUnsupported, "rank 2 of 3 has no such thing", Rank{2}, Rank{1}};
    const auto outcomes = on_ranks(
        *meeting, ranks_to(3), [&](std::size_t i, Rendezvous& rendezvous) -> Result<Bytes> {
          if (i == 2) {
            TUTTI_RETURN_IF_ERROR(rendezvous.put("there", bytes_of("a value")));
            TUTTI_TRY([[maybe_unused]] const auto value,
                      rendezvous.get("there", Deadline::after(5s)));
            TUTTI_RETURN_IF_ERROR(rendezvous.fail(told));
            TUTTI_RETURN_IF_ERROR(rendezvous.fail({Code::kInternal, "too late"}));
            return rendezvous.get("there", Deadline::after(5min));
          }
          return rendezvous.get("never put", Deadline::after(5min));
        });
    for (const auto& outcome : outcomes) {
      REQUIRE_FALSE(*outcome);
      const Error& error = outcome->error();
      CHECK(error.code == told.code);
      CHECK(error.what == told.what);
      CHECK(error.rank == told.rank);
      CHECK(error.peer == told.peer);
    }
  });
}

TEST_CASE("values of every size come whole, a second put replaces, keys may be any bytes") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::string odd_key = "/../%+ \xc3\xbcnd\n";
  odd_key += '\0';
  const std::string keys[] = {"a", "..", odd_key, std::string(bootstrap::kMostKeyBytes, '/'),
                              std::string(bootstrap::kMostKeyBytes, 'k')};
  for_each_kind([&](Make make) {
    const auto meeting = make();
    const auto mine = meeting->join(0);
    const auto theirs = meeting->join(1);
    REQUIRE(mine);
    REQUIRE(theirs);
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{65'535},
                                   std::size_t{65'537}, bootstrap::kMostValueBytes}) {
      const Bytes value = random_bytes(size, seed + size);
      for (const auto& key : keys) {
        if (size > 100'000 && &key != &keys[0]) continue;
        REQUIRE((*mine)->put(key, value));
        const auto got = (*theirs)->get(key, Deadline::after(20s));
        REQUIRE(got);
        CHECK(*got == value);
      }
    }
  });
}

TEST_CASE("sizes out of bounds are refused, whoever asks, and the rendezvous goes on") {
  for_each_kind([&](Make make) {
    const auto meeting = make();
    const auto host = meeting->join(0);
    const auto guest = meeting->join(1);
    REQUIRE(host);
    REQUIRE(guest);
    const Bytes too_large(bootstrap::kMostValueBytes + 1);
    for (Rendezvous* rendezvous : {host->get(), guest->get()}) {
      const std::string long_key(bootstrap::kMostKeyBytes + 1, 'k');
      CHECK(rendezvous->put("k", too_large).error().code == Code::kInvalidArgument);
      CHECK(rendezvous->put("", {}).error().code == Code::kInvalidArgument);
      CHECK(rendezvous->put(long_key, {}).error().code == Code::kInvalidArgument);
      CHECK(rendezvous->get("", Deadline::after(5s)).error().code == Code::kInvalidArgument);
      CHECK(rendezvous->get(long_key, Deadline::after(5s)).error().code == Code::kInvalidArgument);
      CHECK(rendezvous->put("k", bytes_of("fits")));
    }
  });
}

TEST_CASE("a get whose deadline has passed still looks once") {
  for_each_kind([&](Make make) {
    const auto meeting = make();
    const auto host = meeting->join(0);
    const auto guest = meeting->join(1);
    REQUIRE(host);
    REQUIRE(guest);
    const Deadline passed{steady_clock::now() - 1s};
    for (Rendezvous* rendezvous : {host->get(), guest->get()}) {
      CHECK(rendezvous->get("later", passed).error().code == Code::kTimeout);
    }
    REQUIRE((*guest)->put("later", bytes_of("now")));
    for (Rendezvous* rendezvous : {host->get(), guest->get()}) {
      const auto got = rendezvous->get("later", passed);
      REQUIRE(got);
      CHECK(*got == bytes_of("now"));
    }
  });
}

TEST_CASE("threads of one rank may wait, put and fail on one rendezvous at the same time") {
  for_each_kind([&](Make make) {
    const auto meeting = make();
    const auto host = meeting->join(0);
    const auto guest = meeting->join(1);
    REQUIRE(host);
    REQUIRE(guest);
    constexpr int kThreads = 8;
    std::array<std::optional<Result<Bytes>>, kThreads> got;
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
          got[static_cast<std::size_t>(i)].emplace(
              (*guest)->get("key " + std::to_string(i), Deadline::after(20s)));
        });
        threads.emplace_back([&, i] {
          const auto put = (*guest)->put("key " + std::to_string(kThreads - 1 - i),
                                         bytes_of(std::to_string(kThreads - 1 - i)));
          static_cast<void>(put);  // Seen by the get.
        });
      }
    }
    for (int i = 0; i < kThreads; ++i) {
      const auto& outcome = *got[static_cast<std::size_t>(i)];
      REQUIRE(outcome);
      CHECK(*outcome == bytes_of(std::to_string(i)));
    }
  });
}

TEST_CASE("exchange and the kinds judge their arguments") {
  const auto rendezvous = memory_rendezvous();
  const Deadline soon = Deadline::after(5s);
  const auto code = [&](int rank, int count, const std::string& phase, std::size_t bytes) {
    const auto got = exchange(*rendezvous, Rank{rank}, count, phase, Bytes(bytes), soon);
    return got ? Code::kOk : got.error().code;
  };
  CHECK(code(0, 1, "fine", 0) == Code::kOk);
  CHECK(code(-1, 2, "p", 0) == Code::kInvalidArgument);
  CHECK(code(2, 2, "p", 0) == Code::kInvalidArgument);
  CHECK(code(0, 0, "p", 0) == Code::kInvalidArgument);
  CHECK(code(0, 1 << 20, "p", 0) == Code::kInvalidArgument);
  CHECK(code(0, 1, "", 0) == Code::kInvalidArgument);
  CHECK(code(0, 1, std::string(250, 'p'), 0) == Code::kInvalidArgument);
  CHECK(code(0, 1, "p", bootstrap::kMostValueBytes) == Code::kInvalidArgument);
  CHECK(tcp_rendezvous("", 1, Rank{0}, soon).error().code == Code::kInvalidArgument);
  CHECK(tcp_rendezvous("localhost", 0, Rank{0}, soon).error().code == Code::kInvalidArgument);
  CHECK(tcp_rendezvous("localhost", 65536, Rank{1}, soon).error().code == Code::kInvalidArgument);
  CHECK(tcp_rendezvous("localhost", 1, Rank{-1}, soon).error().code == Code::kInvalidArgument);
  CHECK(file_rendezvous("", "job").error().code == Code::kInvalidArgument);
  CHECK(file_rendezvous("/tmp", "").error().code == Code::kInvalidArgument);
  CHECK(file_rendezvous("/tmp", std::string(65, 'j')).error().code == Code::kInvalidArgument);
  CHECK(unique_id_rendezvous(UniqueId{}, soon).error().code == Code::kInvalidArgument);
}

TEST_CASE("jobs of different names share the port of one process, and see their own store") {
  const int port = free_port("127.0.0.1");
  const auto join = [port](int rank, std::string_view job) {
    return tcp_rendezvous("127.0.0.1", port, Rank{rank}, Deadline::after(60s), "secret", job);
  };
  const auto first = join(0, "first"), second = join(0, "second");
  REQUIRE(first);
  REQUIRE(second);
  REQUIRE((*first)->put("key", Bytes(1)));
  REQUIRE((*second)->put("key", Bytes(2)));
  const auto of_first = join(1, "first"), of_second = join(1, "second");
  REQUIRE(of_first);
  REQUIRE(of_second);
  const auto soon = Deadline::after(10s);
  const auto one = (*of_first)->get("key", soon), two = (*of_second)->get("key", soon);
  REQUIRE(one);
  REQUIRE(two);
  CHECK(one->size() == 1);
  CHECK(two->size() == 2);
}

}  // namespace
}  // namespace tutti
