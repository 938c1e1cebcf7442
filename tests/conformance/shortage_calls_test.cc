// Memory runs out at any moment of a call, or of what a window is asked: that is an error, on all
// ranks, and nothing is thrown.
#include <array>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "support/shortage.h"
#include "support/transports.h"
#include "tutti/communicator.h"
#include "tutti/window.h"

namespace tutti::test {
namespace {

constexpr auto kF32 = DataType::kFloat32;

/// A rank's buffers, which are not of the library.
struct Buffers {
  std::vector<float> in = std::vector<float>(90'000, 1), out = std::vector<float>(180'000);
};
/// What a rank does, in one of these tests. Allocates nothing by itself.
using Part = std::function<Status(Communicator&, Buffers&)>;

/// A failure of the part ends the communicator; or else the communicator may go on.
enum class After { kEnded, kAny };

/// Both ranks do their part; rank 0 with its nth allocation failing. Returns whether there were as
/// many.
bool try_with_failure(const Settings& settings, long n, Failing which, After after,
                      const Part& part) {
  auto comms = Communicator::in_process(2, settings);
  if (!comms) FAIL(comms.error().to_string());
  Status other, other_later;
  Buffers buffers[2];
  std::chrono::steady_clock::duration took{};
  std::thread second([&] {
    const auto begin = std::chrono::steady_clock::now();
    other = part((*comms)[1], buffers[1]);
    other_later = (*comms)[1].barrier();
    took = std::chrono::steady_clock::now() - begin;
  });
  Status own;
  bool struck = false, thrown = false;
  try {
    const Shortage shortage(n, which);
    own = part((*comms)[0], buffers[0]);
    struck = shortage.has_struck();
  } catch (const std::exception&) {
    thrown = true;
  }
  if (thrown) (*comms)[0].abort("thrown");
  const Status later = (*comms)[0].barrier();
  second.join();
  INFO("allocation " << n << "; rank 0: " << text(own) << "; rank 1: " << text(other));
  INFO("then, rank 0: " << text(later) << "; rank 1: " << text(other_later));
  CHECK_FALSE(thrown);
  if (!own) {
    CHECK(own.error().what.find("out of memory") != std::string::npos);
    CHECK_FALSE(other);
    if (after == After::kEnded) CHECK_FALSE(later);
  }
  CHECK(bool(later) == bool(other_later));
  if (!later) CHECK(later.error().code != Code::kTimeout);
  if (!other) REQUIRE(other.error().code != Code::kTimeout);
  REQUIRE(took < kToldWithin);
  return struck;
}

/// The allocations of the part, one after another. Beyond the first 100 one in eight is
/// tried, by Catch's seed: there are up to 1,000, and each try begins with a new communicator.
void every_allocation(const Settings& settings, After after, const Part& part) {
  constexpr long kEach = 100, kLongestStep = 15;
  std::mt19937 random(Catch::rngSeed());
  std::uniform_int_distribution<long> step(1, kLongestStep);
  for (const Failing which : {Failing::kOne, Failing::kAllFromThenOn}) {
    INFO((which == Failing::kOne ? "one fails" : "all fail from one on"));
    long n = 1;
    // A failure takes UCX a second: it closes its connections one after another.
    const bool slow = settings.transport == "ucx";
    while (try_with_failure(settings, n, which, after, part)) {
      const long usual = which == Failing::kOne && n >= kEach ? n + step(random) : next(n, which);
      n = slow ? n + 53 : usual;
    }
    INFO(n - 1 << " allocations");
    CHECK(n > 10);
    CHECK(n < 5000);
  }
}

Status all_kinds_of_calls(Communicator& comm, Buffers& buffers) {
  auto& [in, out] = buffers;
  const Rank other{1 - comm.rank().value};
  TUTTI_RETURN_IF_ERROR(comm.all_reduce(in.data(), out.data(), 10, kF32, ReduceOp::kSum));
  TUTTI_RETURN_IF_ERROR(comm.all_reduce(in.data(), out.data(), in.size(), kF32, ReduceOp::kSum));
  TUTTI_RETURN_IF_ERROR(comm.all_gather(in.data(), out.data(), in.size(), kF32));
  const std::array<std::size_t, 2> counts{30'000, 50'000};
  const Blocks blocks{counts, {}};
  TUTTI_RETURN_IF_ERROR(comm.all_gather_v(in.data(), out.data(), blocks, kF32));
  TUTTI_RETURN_IF_ERROR(comm.call({.collective = Collective::kBroadcast,
                                   .input = in.data(),
                                   .output = out.data(),
                                   .count = in.size(),
                                   .type = kF32,
                                   .algorithm = "binomial"}));
  if (comm.rank().value == 0) {
    TUTTI_RETURN_IF_ERROR(comm.send(in.data(), in.size(), kF32, other));
  } else {
    TUTTI_RETURN_IF_ERROR(comm.recv(out.data(), in.size(), kF32, other));
  }
  Group group;
  TUTTI_RETURN_IF_ERROR(comm.send(in.data(), 100, kF32, other));
  TUTTI_RETURN_IF_ERROR(comm.recv(out.data(), 100, kF32, other));
  return group.end();
}

TEST_CASE("memory that runs out in a call ends it on all ranks") {
  for (const Transport* transport : transports_here()) {
    Settings settings;
    settings.transport = transport->name;
    settings.timeout = kLimit;
    INFO(transport->name);
    every_allocation(settings, After::kEnded, all_kinds_of_calls);
  }
}

/// What a rank asks of another's window: rank 0, with its nth allocation failing. Returns whether
/// there were as many.
bool ask_with_failure(long n, Failing which) {
  Settings settings;
  settings.transport = "tcp";  // Others copy.
  settings.timeout = kLimit;
  auto comms = Communicator::in_process(2, settings).value();
  Status other;
  std::thread second([&] {
    auto window = Window::create(comms[1], 4096).value();
    other = window.signal(Rank{0});
    if (other) other = window.wait_signal(Rank{0});
    if (other) other = window.close();
  });
  auto window = Window::create(comms[0], 4096).value();
  std::vector<std::byte> data(200);
  const auto ask = [&]() -> Status {
    TUTTI_RETURN_IF_ERROR(window.put(data.data(), data.size(), Rank{1}, 0));
    TUTTI_RETURN_IF_ERROR(window.get(data.data(), data.size(), Rank{1}, 0));
    TUTTI_TRY([[maybe_unused]] const auto before, window.fetch_add(1, Rank{1}, 0));
    return window.flush(Rank{1});
  };
  Status own = window.wait_signal(Rank{1});
  bool struck = false;
  if (own) {
    const Shortage shortage(n, which);
    own = ask();
    struck = shortage.has_struck();
  }
  if (own) own = window.signal(Rank{1});
  const Status later = own ? window.close() : window.flush(Rank{1});
  second.join();
  INFO("allocation " << n << "; rank 0: " << text(own) << ", then " << text(later)
                     << "; rank 1: " << text(other));
  CHECK(bool(own) == bool(other));
  CHECK(bool(own) == bool(later));
  if (!own) CHECK(own.error().what.find("out of memory") != std::string::npos);
  if (!other) REQUIRE(other.error().code != Code::kTimeout);
  return struck;
}

TEST_CASE("memory that runs out where a window is asked ends it on all ranks") {
  for (const Failing which : {Failing::kOne, Failing::kAllFromThenOn}) {
    INFO((which == Failing::kOne ? "one fails" : "all fail from one on"));
    long n = 1;
    while (ask_with_failure(n, which)) n += which == Failing::kOne ? 1 : 4;
    CHECK(n > 10);
    CHECK(n < 1000);
  }
}

TEST_CASE("memory that runs out in a split ends it on all ranks") {
  Settings settings;
  settings.transport = "shared_memory";
  settings.timeout = kLimit;
  every_allocation(settings, After::kAny, [](Communicator& comm, Buffers&) -> Status {
    TUTTI_TRY(auto part, comm.split(0, 0));
    return part.barrier();
  });
}

}  // namespace
}  // namespace tutti::test
