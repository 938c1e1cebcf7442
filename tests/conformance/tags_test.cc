// Messages with tags: what comes before a receive asks for its tag is kept, up to a limit, and a
// receive whose tag does not come ends at its deadline, whatever else comes.
#include <array>
#include <cstdint>
#include <limits>
#include <thread>

#include "support/catch.h"
#include "support/cluster.h"
#include "support/transports.h"
#include "transport/transport.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

std::string text_of(const Status& status) { return status ? "" : status.error().to_string(); }

/// Bytes of message `tag` from rank 0.
std::byte byte_of(int tag, std::size_t at) {
  return static_cast<std::byte>(at * 31 + static_cast<std::size_t>(tag));
}

/// Rank 0 sends so many bytes with each tag in turn, each time before it goes on; rank 1 takes them
/// from the last tag to the first, by rank or from any.
std::string backwards(Communicator& comm, int tags, std::size_t bytes, bool mapped, bool any) {
  Memory memory(bytes, mapped, 0);
  for (int i = 0; i < tags; ++i) {
    if (comm.rank() == Rank{0}) {
      for (std::size_t at = 0; at < bytes; ++at) memory.data()[at] = byte_of(i, at);
      const Status sent = comm.send(memory.data(), bytes, DataType::kUint8, Rank{1}, Tag{i});
      if (!sent) return text_of(sent);
      continue;
    }
    const int tag = tags - 1 - i;
    Rank from{0};
    Status got;
    if (any) {
      auto work = comm.start_recv_any(memory.data(), bytes, DataType::kUint8, from = {}, Tag{tag});
      if (!work) return work.error().to_string();
      got = work->wait();
    } else {
      got = comm.recv(memory.data(), bytes, DataType::kUint8, Rank{0}, Tag{tag});
    }
    if (!got) return text_of(got);
    if (from != Rank{0}) return "it came from rank " + std::to_string(from.value);
    for (std::size_t at = 0; at < bytes; ++at) {
      if (memory.data()[at] != byte_of(tag, at))
        return "tag " + std::to_string(tag) + " differs at " + std::to_string(at);
    }
  }
  return text_of(comm.barrier());
}

TEST_CASE("messages are received by tag, also against the order in which they were sent") {
  for (const Transport* transport : transports_here()) {
    Settings settings;
    settings.transport = transport->name;
    settings.timeout = 20s;
    auto comms = Communicator::in_process(2, settings);
    REQUIRE(comms);
    for (const std::size_t bytes : {0, 8, 5000, 300'000}) {
      for (const bool mapped : {false, true}) {
        for (const bool any : {false, true}) {
          INFO(transport->name << ", " << bytes << " bytes, mapped " << mapped << ", any " << any);
          CHECK(on_all_ranks(*comms, [&](Communicator& comm) {
                  return backwards(comm, 9, bytes, mapped, any);
                }) == "");
        }
      }
    }
    leave(*comms);
  }
}

/// Communicators of two ranks.
std::vector<Communicator> pair_of(std::chrono::milliseconds timeout,
                                  std::size_t unexpected_bytes = std::size_t{1} << 20) {
  Settings settings;
  settings.timeout = timeout;
  settings.unexpected_bytes = unexpected_bytes;
  auto comms = Communicator::in_process(2, settings);
  REQUIRE(comms);
  return *std::move(comms);
}

TEST_CASE("a receive whose tag does not come ends at its deadline, and names the tags that came") {
  auto comms = pair_of(300ms);
  std::array<int, 4> values{};
  std::string error;
  CHECK(on_all_ranks(comms, [&](Communicator& comm) -> std::string {
          if (comm.rank() == Rank{1}) {
            // Something comes all the time: the other tag's time does not go on by that.
            for (int i = 0; i < 40; ++i) {
              std::this_thread::sleep_for(50ms);
              if (!comm.send(&i, 1, DataType::kInt32, Rank{0}, Tag{5 + i % 2})) return "";
            }
            return "it was never told";
          }
          const Status got = comm.recv(values.data(), 1, DataType::kInt32, Rank{1}, Tag{9});
          if (got) return "something came";
          error = got.error().to_string();
          return "";
        }) == "");
  CHECK_THAT(error, Catch::StartsWith("rank 0: timeout: recv of 1 int32 from rank 1 with tag 9: "
                                      "waited 300 ms for rank 1,"));
  CHECK_THAT(error,
             Catch::Contains("; rank 1 has sent messages with tags 5, 6, which no receive asks "
                             "for"));
}

TEST_CASE("messages of a tag may take long in all, as each has its own time") {
  auto comms = pair_of(400ms);
  CHECK(on_all_ranks(comms, [&](Communicator& comm) -> std::string {
          constexpr int kMessages = 10;
          std::array<int, kMessages> values{};
          std::vector<Work> works;
          for (int i = 0; i < kMessages; ++i) {
            if (comm.rank() == Rank{1}) {
              std::this_thread::sleep_for(80ms);
              // The earlier one of each two is of the tag that was asked for last.
              const Tag tag{4 - i % 2};
              const Status sent = comm.send(&i, 1, DataType::kInt32, Rank{0}, tag);
              if (!sent) return text_of(sent);
              continue;
            }
            const auto at = static_cast<std::size_t>(i);
            auto work = comm.start_recv(&values[at], 1, DataType::kInt32, Rank{1}, Tag{3 + i % 2});
            if (!work) return work.error().to_string();
            works.push_back(*work);
          }
          for (Work& work : works) {
            if (const Status status = work.wait(); !status) return text_of(status);
          }
          for (int i = 0; i < kMessages && !works.empty(); ++i) {
            const int sent = i % 2 == 0 ? i + 1 : i - 1;
            if (values[static_cast<std::size_t>(i)] != sent) return "another message came";
          }
          return "";
        }) == "");
}

TEST_CASE("what is more than may be kept waits at its sender, and the error says so") {
  for (const std::size_t limit : {0, 1000}) {
    auto comms = pair_of(300ms, limit);
    std::array<std::byte, 600> data{};
    std::string error;
    (void)on_all_ranks(comms, [&](Communicator& comm) -> std::string {
      std::array<std::byte, 600> own{};
      if (comm.rank() == Rank{1}) {
        for (const int tag : {1, 2, 3})
          (void)comm.send(own.data(), own.size(), DataType::kUint8, Rank{0}, Tag{tag});
        std::this_thread::sleep_for(600ms);
        return "";
      }
      const Status got = comm.recv(data.data(), data.size(), DataType::kUint8, Rank{1}, Tag{3});
      if (!got) error = got.error().to_string();
      return "";
    });
    const std::string tag = limit == 0 ? "1" : "2", bytes = std::to_string(limit);
    CHECK_THAT(error, Catch::Contains("; its next message has tag " + tag +
                                      ", and this rank keeps no "
                                      "more than " +
                                      bytes +
                                      " bytes that no receive asks for "
                                      "(TUTTI_UNEXPECTED_BYTES)"));
  }
}

TEST_CASE("what was kept makes room again once it is received") {
  auto comms = pair_of(20s, 1000);
  CHECK(on_all_ranks(comms, [](Communicator& comm) -> std::string {
          for (int round = 0; round < 20; ++round) {
            if (auto wrong = backwards(comm, 2, 900, false, false); !wrong.empty()) return wrong;
          }
          return "";
        }) == "");
  leave(comms);
}

TEST_CASE("a kept message that does not fit its receive is an error, as any other") {
  auto comms = pair_of(20s);
  std::string error;
  (void)on_all_ranks(comms, [&](Communicator& comm) -> std::string {
    std::array<float, 3> data{};
    if (comm.rank() == Rank{0}) {
      (void)comm.send(data.data(), 3, DataType::kFloat32, Rank{1}, Tag{4});
      (void)comm.send(data.data(), 1, DataType::kFloat32, Rank{1}, Tag{6});
      return "";
    }
    if (const Status got = comm.recv(data.data(), 1, DataType::kFloat32, Rank{0}, Tag{6}); !got)
      return text_of(got);
    const Status got = comm.recv(data.data(), 2, DataType::kFloat32, Rank{0}, Tag{4});
    if (!got) error = got.error().to_string();
    return "";
  });
  CHECK_THAT(error, Catch::StartsWith("rank 1: mismatch: recv of 2 float32 from rank 0 with tag 4: "
                                      "rank 0 sends 3 float32 instead"));
}

TEST_CASE("bad tags are refused, and messages to oneself go by tag") {
  auto comms = pair_of(20s);
  Communicator& comm = comms[0];
  int value = 1;
  const Status bad = comm.send(&value, 1, DataType::kInt32, Rank{1}, Tag{-1});
  CHECK(text_of(bad) ==
        "rank 0: invalid argument: send: the tag -1 is negative; tags are 0 to "
        "2147483647");
  const std::array<int, 2> sent{10, 20};
  std::array<int, 2> got{};
  Group group;
  for (const int i : {0, 1})
    CHECK(comm.send(&sent[static_cast<std::size_t>(i)], 1, DataType::kInt32, Rank{0}, Tag{i}));
  for (const int i : {1, 0})
    CHECK(comm.recv(&got[static_cast<std::size_t>(i)], 1, DataType::kInt32, Rank{0}, Tag{i}));
  REQUIRE(group.end());
  CHECK(got == sent);
  Group lone;
  CHECK(comm.send(&sent[0], 1, DataType::kInt32, Rank{0}, Tag{1}));
  CHECK(comm.recv(got.data(), 1, DataType::kInt32, Rank{0}, Tag{2}));
  CHECK_THAT(text_of(lone.end()),
             Catch::Contains("send of 1 int32 to rank 0 with tag 1: a message to "
                             "oneself needs its other half"));
}

}  // namespace
}  // namespace tutti::test
