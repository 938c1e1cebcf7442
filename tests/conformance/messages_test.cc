// Messages between ranks: every transport, all sizes, mapped and not, in any order, among
// collectives, in groups and started; and what happens when the two ends do not fit together.
#include <unistd.h>

#include <array>
#include <deque>
#include <optional>
#include <thread>

#include "support/catch.h"
#include "support/cluster.h"
#include "support/transports.h"
#include "transport/transport.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

/// The data of the `index`-th message from one rank to another.
Buffer content(int from, int to, std::size_t index, std::size_t bytes) {
  std::mt19937_64 random(static_cast<std::uint64_t>(from * 1000 + to) * 1000003 + index);
  Buffer data(bytes);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random());
  return data;
}

struct Planned {
  bool sends;
  int peer;
  std::size_t index, bytes;
  Tag tag;
};

/// What one rank of many does: messages from everybody to everybody, itself included, in an order
/// of its own that keeps the order of each direction and tag.
std::vector<Planned> schedule(int me, int ranks, std::size_t each, std::uint64_t seed) {
  constexpr std::size_t kMost[] = {1, 9, 300, 5000, 70000, 400000};
  constexpr int kTags[] = {0, 7, INT32_MAX};
  std::vector<std::vector<Planned>> queues;
  for (int peer = 0; peer < ranks; ++peer) {
    for (const bool sends : {true, false}) {
      const auto [from, to] = sends ? std::pair(me, peer) : std::pair(peer, me);
      std::mt19937_64 sizes(seed + static_cast<std::uint64_t>(from * 64 + to));
      std::array<std::vector<Planned>, std::size(kTags)> by_tag;
      for (std::size_t i = 0; i < each; ++i) {
        const std::size_t bytes = sizes() % kMost[sizes() % std::size(kMost)];
        const std::size_t tag = sizes() % std::size(kTags);
        by_tag[tag].push_back({sends, peer, i, bytes, Tag{kTags[tag]}});
      }
      for (auto& queue : by_tag) {
        std::reverse(queue.begin(), queue.end());
        queues.push_back(std::move(queue));
      }
    }
  }
  std::mt19937_64 order(seed * 31 + static_cast<std::uint64_t>(me));
  std::vector<Planned> all;
  while (!queues.empty()) {
    const std::size_t pick = order() % queues.size();
    if (queues[pick].empty()) {
      queues.erase(queues.begin() + static_cast<std::ptrdiff_t>(pick));
      continue;
    }
    all.push_back(queues[pick].back());
    queues[pick].pop_back();
  }
  return all;
}

/// Runs one rank's schedule as a group, or message by message; empty if all that came was right.
std::string exchange(Communicator& comm, std::size_t each, bool grouped, bool mapped,
                     std::uint64_t seed) {
  const int me = comm.rank().value;
  std::deque<Memory> buffers;
  const auto plan = schedule(me, comm.rank_count(), each, seed);
  std::vector<Work> works;
  std::optional<Group> group;
  if (grouped) group.emplace();
  for (const Planned& message : plan) {
    Memory& memory = buffers.emplace_back(message.bytes, mapped, message.index % 8);
    if (!grouped && message.peer == me) continue;
    if (message.sends) {
      const Buffer data = content(me, message.peer, message.index, message.bytes);
      if (!data.empty()) std::memcpy(memory.data(), data.data(), data.size());
    }
    const Rank peer{message.peer};
    auto work =
        message.sends
            ? comm.start_send(memory.data(), message.bytes, DataType::kUint8, peer, message.tag)
            : comm.start_recv(memory.data(), message.bytes, DataType::kUint8, peer, message.tag);
    if (!work) return work.error().to_string();
    works.push_back(*work);
  }
  // Collectives go on beside them.
  if (!grouped) {
    const Case even{.count = 5000, .ranks = comm.rank_count()};
    if (auto wrong = run_case(comm, even, seed); !wrong.empty()) return wrong;
  }
  if (group) {
    if (auto status = group->end(); !status) return status.error().to_string();
  }
  for (Work& work : works) {
    if (auto status = work.wait(); !status) return status.error().to_string();
  }
  auto memory = buffers.begin();
  for (const Planned& message : plan) {
    const std::byte* data = memory++->data();
    if (message.sends || (!grouped && message.peer == me)) continue;
    const Buffer want = content(message.peer, me, message.index, message.bytes);
    if (!want.empty() && std::memcmp(data, want.data(), want.size()) != 0) {
      return "message " + std::to_string(message.index) + " from " + std::to_string(message.peer) +
             " to " + std::to_string(me) + ", " + std::to_string(message.bytes) + " bytes, differs";
    }
  }
  return "";
}

TEST_CASE("messages from all to all, in any order, arrive as they were sent") {
  const std::uint64_t seed = Catch::rngSeed();
  std::mt19937_64 random(seed);
  for (const Transport* transport : transports_here()) {
    for (const int ranks : {1, 2, 3, 6}) {
      INFO(transport->name << ", " << ranks << " ranks, --rng-seed " << seed);
      Settings settings;
      settings.transport = transport->name;
      auto comms = Communicator::in_process(ranks, settings);
      REQUIRE(comms);
      for (int round = 0; round < 8; ++round) {
        const std::uint64_t of_round = random();
        CHECK(on_all_ranks(*comms, [&](Communicator& comm) {
                return exchange(comm, 5, round % 2 == 0, round % 4 < 2, of_round);
              }) == "");
      }
      leave(*comms);
    }
  }
}

TEST_CASE("blocking messages, and collectives that come in another order at the two ends") {
  for (const Transport* transport : transports_here()) {
    Settings settings;
    settings.transport = transport->name;
    auto comms = Communicator::in_process(2, settings);
    REQUIRE(comms);
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{100}, std::size_t{1000}}) {
      CHECK(on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
              const Case even{.count = 3000, .ranks = 2};
              const Buffer data = content(0, 1, 0, bytes);
              Buffer got(bytes);
              if (comm.rank().value == 0) {
                // Small ones leave at once, also before the other end asks for them.
                if (auto sent = comm.send(data.data(), bytes, DataType::kUint8, Rank{1}); !sent)
                  return sent.error().to_string();
                return run_case(comm, even, 1);
              }
              if (auto wrong = run_case(comm, even, 1); !wrong.empty()) return wrong;
              auto received = comm.recv(got.data(), bytes, DataType::kUint8, Rank{0});
              if (!received) return received.error().to_string();
              return got == data ? "" : "another message came";
            }) == "");
    }
  }
}

TEST_CASE("who ends a group of messages carries them out, if nothing else is under way") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    Settings settings;
    settings.transport = transport->name;
    auto comms = Communicator::in_process(2, settings);
    REQUIRE(comms);
    CHECK(on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
            const Rank peer{1 - comm.rank().value};
            const int mine = comm.rank().value;
            int got = -1;
            std::thread::id by;
            Group group;
            auto sent = comm.start_send(&mine, 1, DataType::kInt32, peer);
            if (!sent) return sent.error().to_string();
            sent->then([&](const Status&) { by = std::this_thread::get_id(); });
            if (auto status = comm.recv(&got, 1, DataType::kInt32, peer); !status)
              return status.error().to_string();
            if (auto status = group.end(); !status) return status.error().to_string();
            if (got != peer.value) return "another message came";
            return by == std::this_thread::get_id() ? "" : "another thread did it";
          }) == "");
  }
}

/// How errors name the process of a rank that is a thread of this one.
std::string place_of(int rank) {
  char host[256] = {};
  (void)gethostname(host, sizeof(host) - 1);
  return " (rank " + std::to_string(rank) + " is pid " + std::to_string(getpid()) + " on " + host +
         ")";
}

TEST_CASE("two ends that do not fit together are an error on both ranks, with both counts") {
  for (const Transport* transport : transports_here()) {
    Settings settings;
    settings.transport = transport->name;
    auto comms = Communicator::in_process(2, settings);
    REQUIRE(comms);
    std::array<std::string, 2> errors;
    (void)on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
      std::vector<float> data(100000);
      const auto me = static_cast<std::size_t>(comm.rank().value);
      const Status status = me == 0 ? comm.send(data.data(), 100000, DataType::kFloat32, Rank{1})
                                    : comm.recv(data.data(), 10, DataType::kFloat32, Rank{0});
      if (!status) errors[me] = status.error().to_string();
      return "";
    });
    const std::string what =
        "recv of 10 float32 from rank 0: rank 0 sends 100000 float32 instead; both ends of a "
        "message must name the same count and type" +
        place_of(0);
    CHECK(errors[1] == "rank 1: mismatch: " + what);
    CHECK(errors[0] ==
          "rank 0: mismatch: send of 100000 float32 to rank 1 was ended by rank 1: " + what);
  }
}

TEST_CASE(
    "a message that never comes is named at the deadline, and ends what was started with it") {
  Settings settings;
  settings.timeout = 300ms;
  for (const bool started : {false, true}) {
    auto comms = Communicator::in_process(2, settings);
    REQUIRE(comms);
    std::vector<float> data(10);
    Communicator& comm = (*comms)[0];
    Status status;
    if (started) {
      auto work = comm.start_recv(data.data(), 10, DataType::kFloat32, Rank{1});
      REQUIRE(work);
      status = work->wait();
    } else {
      status = comm.recv(data.data(), 10, DataType::kFloat32, Rank{1});
    }
    REQUIRE(!status);
    CHECK(status.error().to_string() ==
          "rank 0: timeout: recv of 10 float32 from rank 1: waited 300 ms for rank 1, which has "
          "made no collective call yet; TUTTI_TIMEOUT_MS sets the limit" +
              place_of(1));
    CHECK(!comm.barrier());
  }
}

/// Rank 0 receives from any rank, and the first message of rank 1 by that rank's name. Each of the
/// others sends `each` messages, with a barrier behind each, as sizes differ.
std::string gather_any(Communicator& comm, std::size_t each) {
  const int me = comm.rank().value, ranks = comm.rank_count();
  for (std::size_t i = 0; i < each; ++i) {
    const std::size_t bytes = 1 + i * i * 997;
    std::vector<Buffer> got(static_cast<std::size_t>(ranks), Buffer(bytes));
    std::vector<Rank> from(got.size());
    std::vector<Work> works;
    if (me != 0) {
      got[0] = content(me, 0, i, bytes);
      auto sent = comm.start_send(got[0].data(), bytes, DataType::kUint8, Rank{0});
      if (!sent) return sent.error().to_string();
      works.push_back(*sent);
    }
    for (std::size_t k = 1; me == 0 && k < got.size(); ++k) {
      const bool named = i == 0 && k == 1;
      if (named) from[k] = Rank{1};
      auto work = named ? comm.start_recv(got[k].data(), bytes, DataType::kUint8, Rank{1})
                        : comm.start_recv_any(got[k].data(), bytes, DataType::kUint8, from[k]);
      if (!work) return work.error().to_string();
      works.push_back(*work);
    }
    for (Work& work : works) {
      if (auto status = work.wait(); !status) return status.error().to_string();
    }
    std::vector<bool> heard(got.size(), false);
    for (std::size_t k = 1; me == 0 && k < got.size(); ++k) {
      const int rank = from[k].value;
      if (rank < 1 || rank >= ranks || heard[static_cast<std::size_t>(rank)])
        return "it came from rank " + std::to_string(rank);
      heard[static_cast<std::size_t>(rank)] = true;
      if (got[k] != content(rank, 0, i, bytes)) return "another message came";
    }
    if (auto all = comm.barrier(); !all) return all.error().to_string();
  }
  return "";
}

TEST_CASE("what may come from any rank is received from each that sends, once") {
  for (const Transport* transport : transports_here()) {
    for (const int ranks : {2, 4}) {
      INFO(transport->name << ", " << ranks << " ranks");
      Settings settings;
      settings.transport = transport->name;
      auto comms = Communicator::in_process(ranks, settings);
      REQUIRE(comms);
      CHECK(on_all_ranks(*comms, [](Communicator& comm) { return gather_any(comm, 12); }) == "");
      leave(*comms);
    }
  }
}

/// The error of a receive from any rank, where none sends within 300 ms. Rank 1 is gone if so said.
Error nothing_from_any(int ranks, bool gone) {
  Settings settings;
  settings.timeout = 300ms;
  auto comms = Communicator::in_process(ranks, settings);
  REQUIRE(comms);
  if (gone) const Communicator leaves = std::move((*comms)[1]);
  std::array<float, 10> data{};
  Rank from;
  auto work = (*comms)[0].start_recv_any(data.data(), data.size(), DataType::kFloat32, from);
  REQUIRE(work);
  Status status = work->wait();
  REQUIRE(!status);
  return std::move(status.error());
}

TEST_CASE("a message that no rank sends ends at the deadline") {
  CHECK(nothing_from_any(2, false).to_string() ==
        "rank 0: timeout: recv of 10 float32 from any rank: waited 300 ms, and no rank sent; "
        "TUTTI_TIMEOUT_MS sets the limit");
}

TEST_CASE("a receive from any rank that took too long names a rank that is gone") {
  const Error error = nothing_from_any(3, true);
  // Behind it comes which process rank 1 is.
  CHECK_THAT(error.what,
             Catch::StartsWith("recv of 10 float32 from any rank: waited 300 ms, and no rank sent; "
                               "rank 1 left before this call: it destroyed its communicator after "
                               "no call at all; TUTTI_TIMEOUT_MS sets the limit"));
  CHECK(error.peer == Rank{1});
}

TEST_CASE("bad messages are refused, one clear line each") {
  auto comms = Communicator::in_process(2);
  REQUIRE(comms);
  Communicator& comm = (*comms)[0];
  float data = 0;
  const auto error = [](const Status& status) { return status ? "" : status.error().what; };
  CHECK(error(comm.send(&data, 1, DataType::kFloat32, Rank{2})) ==
        "send: rank 2 is not one of the 2 ranks");
  CHECK(error(comm.recv(nullptr, 1, DataType::kFloat32, Rank{1})) ==
        "recv: the buffer is null, but the count is 1");
  CHECK(error(comm.recv(&data, SIZE_MAX, DataType::kFloat32, Rank{1})) ==
        "recv: 18446744073709551615 elements are more than memory can hold");
  CHECK(error(comm.send(&data, 1, DataType::kFloat32, Rank{0})) ==
        "send: a message to oneself needs its other half in the same group");
  Group group;
  CHECK(comm.send(&data, 1, DataType::kFloat32, Rank{0}));
  CHECK(error(group.end()) ==
        "send of 1 float32 to rank 0: a message to oneself needs its other half in the same group");
}

}  // namespace
}  // namespace tutti::test
