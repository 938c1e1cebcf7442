// Frames over TCP: all of them arrive, in order, right where they belong, whatever their sizes; and
// whatever goes wrong has a name.
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <random>

#include "base/socket_address.h"
#include "support/catch.h"
#include "transport/tcp/bundle.h"

namespace tutti::tcp {
namespace {

/// Both ends of some connections between ranks 0 and 1, over loopback.
struct Pair {
  std::vector<Connection> ends[2];
};

Pair connect(int connections, int buffer_bytes = 0) {
  Pair pair;
  for (int index = 0; index < connections; ++index) {
    const Fd door(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    SocketAddress address = ipv4_address({htonl(INADDR_LOOPBACK)}, 0);
    REQUIRE(::bind(door.get(), address.get(), address.length) == 0);
    REQUIRE(::listen(door.get(), 1) == 0);
    address = own_end(door.get());
    Fd there(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (buffer_bytes != 0) {
      for (const int socket : {door.get(), there.get()}) {
        setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(buffer_bytes));
        setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof(buffer_bytes));
      }
    }
    set_options(there.get(), std::chrono::seconds(5));
    REQUIRE(::connect(there.get(), address.get(), address.length) == 0);
    Fd here(::accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC));
    for (int rank = 0; rank < 2; ++rank) {
      Fd& socket = rank == 0 ? here : there;
      REQUIRE(fcntl(socket.get(), F_SETFL, O_NONBLOCK) == 0);
      Connection& one = pair.ends[rank].emplace_back();
      one.peer = 1 - rank;
      one.index = index;
      one.where = rank == 0 ? "rank 1 (host1) over lo" : "rank 0 (host0) over lo";
      one.silence_ms = 5000;
      one.socket = std::move(socket);
    }
  }
  return pair;
}

/// Memory into which frames are placed by their position; remembers what arrived.
class Memory : public FrameSink {
 public:
  explicit Memory(std::size_t bytes) : memory(bytes) {}
  Result<std::optional<std::byte*>> place(const FrameHeader& header) override {
    ++asked;
    if (closed) return std::optional<std::byte*>{};
    if (header.position + header.bytes > memory.size())
      return Error{Code::kMismatch, "a frame outside of the memory"};
    return std::optional(memory.data() + header.position);
  }
  Status arrived(const FrameHeader& header) override {
    headers.push_back(header);
    return ok();
  }
  std::vector<std::byte> memory;
  std::vector<FrameHeader> headers;
  bool closed = false;  // There is no room for now.
  int asked = 0;
};

/// A list of payloads, one behind the other in one memory.
struct Load {
  std::vector<std::byte> memory;
  std::vector<std::size_t> sizes;
};

Load random_load(std::uint32_t seed, int frames, std::size_t most) {
  std::mt19937 random(seed);
  constexpr std::array<std::size_t, 13> kEdges{0,
                                               1,
                                               8,
                                               Stream::kCopiedBytes - 1,
                                               Stream::kCopiedBytes,
                                               Stream::kCopiedBytes + 1,
                                               4071,
                                               4072,
                                               4073,
                                               Stream::kStagingBytes,
                                               4099,
                                               65'536,
                                               65'537};
  Load load;
  for (int i = 0; i < frames; ++i) {
    const std::size_t size = random() % 3 == 0 ? random() % most : kEdges[random() % kEdges.size()];
    load.sizes.push_back(size);
  }
  load.memory.resize(std::accumulate(load.sizes.begin(), load.sizes.end(), std::size_t{1}));
  for (std::byte& byte : load.memory) byte = static_cast<std::byte>(random());
  return load;
}

/// Queues frames of a load as long as there is room. Payloads come in two pieces.
struct Sender {
  const Load& load;
  std::size_t next = 0, position = 0;
  void fill(Bundle& bundle) {
    for (; next < load.sizes.size() && bundle.room(load.sizes[next]); ++next) {
      const std::size_t size = load.sizes[next];
      const auto payload = std::span(load.memory).subspan(position, size);
      const std::array<Piece, 2> pieces{payload.first(size / 3), payload.subspan(size / 3)};
      bundle.send({.bytes = static_cast<std::uint32_t>(size),
                   .kind = static_cast<std::uint16_t>(1 + next % 100),
                   .channel = static_cast<std::uint32_t>(next),
                   .position = position},
                  pieces);
      position += size;
    }
  }
  bool done() const { return next == load.sizes.size(); }
};

/// What is wrong with what arrived; empty: nothing.
std::string check(const Load& sent, const Memory& got) {
  if (got.headers.size() != sent.sizes.size()) return "frames are missing";
  std::size_t position = 0;
  for (std::size_t i = 0; i < sent.sizes.size(); ++i) {
    const FrameHeader& header = got.headers[i];
    if (header.channel != i) return "frame " + std::to_string(i) + " arrived out of order";
    if (header.bytes != sent.sizes[i] || header.position != position || header.kind != 1 + i % 100)
      return "the header of frame " + std::to_string(i) + " has changed";
    position += sent.sizes[i];
  }
  const auto end = sent.memory.begin() + static_cast<std::ptrdiff_t>(position);
  if (!std::equal(sent.memory.begin(), end, got.memory.begin())) return "payloads differ";
  return "";
}

/// Both sides send all of their load, and take turns in which they move.
std::string exchange(Bundle& a, Bundle& b, const Load& from_a, const Load& from_b) {
  Memory at_a(from_b.memory.size()), at_b(from_a.memory.size());
  Sender sender_a{from_a}, sender_b{from_b};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(200);
  while (!sender_a.done() || !sender_b.done() || a.pending() != 0 || b.pending() != 0 ||
         at_a.headers.size() != from_b.sizes.size() || at_b.headers.size() != from_a.sizes.size()) {
    sender_a.fill(a);
    sender_b.fill(b);
    const auto moved_a = a.progress(at_a);
    if (!moved_a) return moved_a.error().what;
    const auto moved_b = b.progress(at_b);
    if (!moved_b) return moved_b.error().what;
    if (std::chrono::steady_clock::now() > end) return "it does not come to an end";
  }
  const std::string wrong = check(from_a, at_b);
  return wrong.empty() ? check(from_b, at_a) : wrong;
}

TEST_CASE("frames of all sizes arrive in order and in place, both ways at once") {
  const std::uint32_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  for (const int connections : {1, 2, 5}) {
    for (const std::size_t spread : {std::size_t{0}, std::size_t{4096}, std::size_t{1} << 30}) {
      for (const std::size_t zero_copy : {std::size_t{0}, std::size_t{10'000}}) {
        INFO(connections << " connections, spread from " << spread << ", zero copy from "
                         << zero_copy);
        // Small buffers, so that frames are cut everywhere. Much smaller ones, and it is the
        // receiver's delayed acknowledgements that one waits for.
        Pair pair = connect(connections, 65'536);
        const BundleOptions options{.spread_bytes = spread, .zero_copy_bytes = zero_copy};
        Bundle a(std::move(pair.ends[0]), options), b(std::move(pair.ends[1]), options);
        CHECK(exchange(a, b, random_load(seed, 200, 200'000), random_load(seed + 1, 200, 50'000)) ==
              "");
        CHECK(a.released() == 200);
      }
    }
  }
}

TEST_CASE("the largest frame goes through, and many small ones do") {
  Pair pair = connect(2);
  Bundle a(std::move(pair.ends[0])), b(std::move(pair.ends[1]));
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
  Bundle a(std::move(pair.ends[0])), b(std::move(pair.ends[1]));
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
  CHECK_FALSE(a.room(10'000));
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
  Bundle a(std::move(pair.ends[0])), b(std::move(pair.ends[1]));
  Memory none(0), at_b(1 << 20);
  std::vector<std::byte> payload(1 << 20, std::byte{1});
  a.send({.bytes = 1 << 20, .kind = 1}, payload);
  a.send({.bytes = 8, .kind = 2}, std::span(payload).first(8));
  for (int round = 0; round < 100; ++round) REQUIRE(a.progress(none));
  CHECK(a.queued() == 2);
  CHECK(a.released() == 0);  // Nobody reads, and it is more than the buffers hold.
  while (at_b.headers.size() != 2) {
    REQUIRE(a.progress(none));
    REQUIRE(b.progress(at_b));
  }
  CHECK(at_b.headers.size() == 2);
  CHECK(a.released() == 2);
  CHECK(at_b.memory == payload);
}

TEST_CASE("zero copy is given up where the kernel copies all the same") {
  // Loopback hands over the sender's pages only if nobody looks; the kernel copies, and says so.
  Pair pair = connect(1);
  Bundle a(std::move(pair.ends[0]), {.zero_copy_bytes = 1000}), b(std::move(pair.ends[1]));
  Load load, nothing;
  load.sizes.assign(300, 20'000);
  load.memory.resize(6'000'000, std::byte{1});
  CHECK(a.streams().front().asks_zero_copy());
  CHECK(exchange(a, b, load, nothing) == "");
  CHECK(a.streams().front().zero_copies() > 0);
  CHECK_FALSE(a.streams().front().asks_zero_copy());
}

// What goes wrong.

/// The first error of progress().
Error error_of(Bundle& bundle, FrameSink& sink) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
  while (std::chrono::steady_clock::now() < end) {
    auto moved = bundle.progress(sink);
    if (!moved) return std::move(moved.error());
  }
  return {Code::kOk, "no error"};
}

TEST_CASE("a peer that ends is named, with host, interface and operation") {
  Pair pair = connect(2);
  Bundle a(std::move(pair.ends[0]));
  pair.ends[1].clear();
  Memory sink(0);
  const Error error = error_of(a, sink);
  CHECK(error.code == Code::kPeerFailed);
  CHECK(error.peer == Rank{1});
  CHECK(error.what ==
        "tcp: rank 1 (host1) over lo: the peer closed the connection: its process has ended while "
        "receiving");
}

TEST_CASE("a peer that is killed in the middle of a frame is an error, not a wait") {
  Pair pair = connect(1, 16'384);
  const pid_t child = fork();
  if (child == 0) {
    pair.ends[0].clear();
    Bundle b(std::move(pair.ends[1]));
    Memory none(0);
    const std::vector<std::byte> payload(1 << 20);
    b.send({.bytes = 1 << 20, .kind = 1}, payload);
    for (;;) (void)b.progress(none);
  }
  pair.ends[1].clear();
  Bundle a(std::move(pair.ends[0]));
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
    Bundle a(std::move(pair.ends[0]));
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
  CHECK(said([](auto& bytes) { bytes[16] = std::byte{99}; }) == "a frame outside of the memory");
  CHECK(said([](auto& bytes) { bytes[15] = std::byte{0xff}; }).find("a frame came twice") !=
        std::string::npos);
}

}  // namespace
}  // namespace tutti::tcp
