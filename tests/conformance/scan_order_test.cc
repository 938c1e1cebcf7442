// In a small scan on one host a rank waits for the ranks below it alone: those above it may come
// whenever they like, as in MPI.
#include <atomic>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/state.h"
#include "support/catch.h"
#include "support/cluster.h"
#include "support/transports.h"
#include "transport/transport.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr int kCalls = 20, kRanks = 4;

/// Ranks make their calls one rank after another, which `turn` counts.
std::string scan_in_turn(Communicator& comm, Collective collective, std::size_t count,
                         std::atomic<int>& turn) {
  const int me = comm.rank().value;
  for (const Deadline end = Deadline::after(20s); turn.load() < me;) {
    if (end.passed()) return "the rank below has not returned";
    std::this_thread::sleep_for(1ms);
  }
  const int summed = summed_ranks(collective, me, kRanks);
  for (int call = 0; call < kCalls; ++call) {
    std::vector<std::int32_t> input(count, (me + 1) * (call + 1)), output(count, -1);
    auto done = comm.call({.collective = collective,
                           .input = input.data(),
                           .output = output.data(),
                           .count = count,
                           .type = DataType::kInt32});
    if (!done) return done.error().to_string();
    const bool gets = has_output(collective, me, 0);
    const std::int32_t wanted = gets ? summed * (summed + 1) / 2 * (call + 1) : -1;
    for (const std::int32_t one : output) {
      if (one != wanted) return "a wrong result";
    }
  }
  turn.fetch_add(1);
  return "";
}

TEST_CASE("a rank of a small scan waits for the ranks below it alone") {
  for (const Transport* transport : transports_here()) {
    Settings settings;
    settings.transport = transport->name;
    settings.timeout = 60s;
    auto comms = Communicator::in_process(kRanks, settings);
    REQUIRE(comms);
    // Between hosts all wait for each other.
    if (Insides::of(comms->front()).executor->team().remote_link == nullptr) {
      for (const Collective collective : {Collective::kScan, Collective::kExclusiveScan}) {
        for (const std::size_t count : {1, 14, 50}) {
          INFO(transport->name << ", " << to_string(collective) << " of " << count);
          std::atomic<int> turn{0};
          CHECK(on_all_ranks(*comms, [&](Communicator& comm) {
                  return scan_in_turn(comm, collective, count, turn);
                }) == "");
        }
      }
    }
    leave(*comms);
  }
}

}  // namespace
}  // namespace tutti::test
