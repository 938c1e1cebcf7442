// Frames over TCP: all of them arrive, in order, right where they belong, whatever their sizes; and
// whatever goes wrong has a name.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <random>
#include <thread>

#include "support/catch.h"
#include "support/net/streams.h"

namespace tutti::tcp {
namespace {

TEST_CASE("frames of all sizes arrive in order and in place, both ways at once") {
  const std::uint32_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  // Small buffers, so that frames are cut everywhere. Much smaller ones, and it is the receiver's
  // delayed acknowledgements that one waits for.
  Pair pair = connect(1, 65'536);
  Stream a(std::move(pair.ends[0][0])), b(std::move(pair.ends[1][0]));
  CHECK(exchange(a, b, random_load(seed, 200, 200'000), random_load(seed + 1, 200, 50'000)) == "");
  CHECK(a.pending() == 0);
}

TEST_CASE("the largest frame goes through, and many small ones do") {
  Pair pair = connect(1);
  Stream a(std::move(pair.ends[0][0])), b(std::move(pair.ends[1][0]));
  Load large, small;
  large.memory.resize(kMostFrameBytes, std::byte{3});
  large.sizes = {kMostFrameBytes};
  small.memory.resize(8, std::byte{4});
  small.sizes.assign(1, 8);
  CHECK(exchange(a, b, large, small) == "");
  Load many;
  many.sizes.assign(20'000, 8);
  many.memory.resize(160'000, std::byte{5});
  CHECK(exchange(a, b, many, many) == "");
}

TEST_CASE("a sink without room stops the sender, and nothing is lost") {
  Pair pair = connect(1, 16'384);
  Stream a(std::move(pair.ends[0][0])), b(std::move(pair.ends[1][0]));
  Load load;
  load.sizes.assign(400, 10'000);
  load.memory.resize(4'000'000, std::byte{1});
  std::mt19937 random(Catch::rngSeed());
  for (std::byte& byte : load.memory) byte = static_cast<std::byte>(random());
  Memory at_a(0), at_b(load.memory.size());
  at_b.closed = true;
  Sender sender{load};
  for (int round = 0; round < 2000; ++round) {
    sender.fill(a);
    REQUIRE(a.progress(at_a));
    REQUIRE(b.progress(at_b));
  }
  CHECK(a.pending() == Stream::kMostQueued);  // Nothing else holds what was not taken.
  CHECK(sender.next < 350);
  CHECK(at_b.headers.empty());
  CHECK(at_b.asked > 0);
  at_b.closed = false;
  while (at_b.headers.size() != load.sizes.size()) {
    sender.fill(a);
    REQUIRE(a.progress(at_a));
    REQUIRE(b.progress(at_b));
  }
  CHECK(check(load, at_b) == "");
}

TEST_CASE("memory is in use until its frame is released, in order") {
  Pair pair = connect(1, 16'384);
  Stream a(std::move(pair.ends[0][0])), b(std::move(pair.ends[1][0]));
  Memory none(0), at_b(1 << 20);
  std::vector<std::byte> payload(1 << 20, std::byte{1});
  a.send({.bytes = 1 << 20, .kind = 1}, payload);
  a.send({.bytes = 8, .kind = 2}, std::span(payload).first(8));
  for (int round = 0; round < 100; ++round) REQUIRE(a.progress(none));
  CHECK(a.pending() == 2);  // Nobody reads, and it is more than the buffers hold.
  while (at_b.headers.size() != 2) {
    REQUIRE(a.progress(none));
    REQUIRE(b.progress(at_b));
  }
  CHECK(at_b.headers.size() == 2);
  CHECK(a.pending() == 0);
  CHECK(at_b.memory == payload);
}

// What goes wrong.

/// The first error of progress().
Error error_of(net::Carrier& carrier, FrameSink& sink) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
  while (std::chrono::steady_clock::now() < end) {
    auto moved = carrier.progress(sink);
    if (!moved) return std::move(moved.error());
  }
  return {Code::kOk, "no error"};
}

TEST_CASE("a peer that ends is named, with host, interface and operation") {
  Pair pair = connect(1);
  Stream a(std::move(pair.ends[0][0]));
  pair.ends[1].clear();
  Memory sink(0);
  const Error error = error_of(a, sink);
  CHECK(error.code == Code::kPeerFailed);
  CHECK(error.peer == Rank{1});
  CHECK(error.what ==
        "tcp: rank 1 (host1) over lo: the peer closed the connection: its process has ended while "
        "receiving");
}

TEST_CASE("what a peer sent before it went is received, though it takes nothing any more") {
  Pair pair = connect(1);
  Stream a(std::move(pair.ends[0][0]));
  const std::array<std::byte, 8> payload{};
  {
    Stream b(std::move(pair.ends[1][0]));
    Memory none(0);
    b.send({.bytes = 8, .kind = 1}, payload);
    while (b.pending() != 0) REQUIRE(b.progress(none));
  }
  // The first of these is answered by a reset, the next are refused.
  for (int i = 0; i < 10; ++i) {
    a.send({.bytes = 8, .kind = 1}, payload);
    REQUIRE(a.flush());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  Memory at_a(8);
  REQUIRE(a.progress(at_a));
  CHECK(at_a.headers.size() == 1);
  CHECK(error_of(a, at_a).what.find("its process has ended") != std::string::npos);
}

TEST_CASE("a peer that is killed in the middle of a frame is an error, not a wait") {
  Pair pair = connect(1, 16'384);
  const pid_t child = fork();
  if (child == 0) {
    pair.ends[0].clear();
    Stream b(std::move(pair.ends[1][0]));
    Memory none(0);
    const std::vector<std::byte> payload(1 << 20);
    b.send({.bytes = 1 << 20, .kind = 1}, payload);
    for (;;) (void)b.progress(none);
  }
  pair.ends[1].clear();
  Stream a(std::move(pair.ends[0][0]));
  Memory at_a(1 << 20);
  while (at_a.asked == 0) REQUIRE(a.progress(at_a));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const Error error = error_of(a, at_a);
  CHECK(error.code == Code::kPeerFailed);
  CHECK(error.what.find("tcp: rank 1 (host1) over lo: ") == 0);
  CHECK(error.what.find("its process has ended") != std::string::npos);
  CHECK(at_a.headers.empty());
}

TEST_CASE("bytes that are no frame are an error that says so") {
  const auto said = [](const std::function<void(std::array<std::byte, kHeaderBytes>&)>& change) {
    Pair pair = connect(1);
    Stream a(std::move(pair.ends[0][0]));
    Memory sink(100);
    auto bytes = encode(FrameHeader{.bytes = 8, .kind = 1});
    change(bytes);
    const int raw = pair.ends[1].front().socket.get();
    REQUIRE(::send(raw, bytes.data(), bytes.size(), MSG_NOSIGNAL) == kHeaderBytes);
    const Error error = error_of(a, sink);
    CHECK(sink.headers.empty());
    return error.what;
  };
  const std::string corrupt = "tcp: rank 1 (host1) over lo: what came is no frame";
  CHECK(said([](auto& bytes) { bytes[3] = std::byte{0xff}; }).find(corrupt) == 0);  // Too long.
  CHECK(said([](auto& bytes) { bytes[4] = std::byte{0}; }).find(corrupt) == 0);     // No kind.
  CHECK(said([](auto& bytes) { bytes[6] = std::byte{1}; }).find(corrupt) == 0);     // Not a zero.
  CHECK(said([](auto& bytes) { bytes[28] = std::byte{99}; }) == "a frame outside of the memory");
}

}  // namespace
}  // namespace tutti::tcp
