// The TCP store against strangers, and the bytes on the wire.
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <random>
#include <thread>

#include "bootstrap/limits.h"
#include "bootstrap/sockets.h"
#include "bootstrap/tcp_server.h"
#include "bootstrap/wire.h"
#include "support/catch.h"
#include "tutti/rendezvous.h"

namespace tutti::bootstrap {
namespace {

using namespace std::chrono_literals;
using wire::Kind;

int free_port() {
  const auto listening = listen_at("127.0.0.1", 0, Deadline::after(10s));
  return listening ? listening->port : 0;
}

/// Rank 0's store, and somebody who proves that it still works.
class Served {
 public:
  Served() {
    auto made = tcp_rendezvous("127.0.0.1", port, Rank{0}, Deadline::after(10s));
    if (made) host_ = *std::move(made);
    REQUIRE(host_);
  }
  void still_works() {
    const auto client = tcp_rendezvous("127.0.0.1", port, Rank{1}, Deadline::after(10s));
    REQUIRE(client);
    const std::array<std::byte, 3> value{std::byte{1}, std::byte{2}, std::byte{3}};
    REQUIRE((*client)->put("proof", value));
    const auto got = host_->get("proof", Deadline::after(10s));
    REQUIRE(got);
    CHECK(*got == Bytes(value.begin(), value.end()));
  }
  const int port = free_port();

 private:
  std::unique_ptr<Rendezvous> host_;
};

/// A socket to the store, for saying whatever one likes.
class Stranger {
 public:
  explicit Stranger(int port) {
    auto socket =
        connect_to(ipv4_address({htonl(INADDR_LOOPBACK)}, static_cast<std::uint16_t>(port)),
                   Deadline::after(10s));
    REQUIRE(socket);
    socket_ = *std::move(socket);
  }
  /// False once the other side has closed.
  bool say(std::span<const std::byte> bytes) {
    return static_cast<bool>(send_all(socket_.get(), bytes, Deadline::after(10s)));
  }
  bool hears_hello() {
    std::array<std::byte, wire::kHelloBytes> theirs{};
    return receive_all(socket_.get(), theirs, Deadline::after(10s)) && wire::parse_hello(theirs);
  }
  bool says_hello() { return say(wire::encode(wire::Hello{})) && hears_hello(); }
  /// The kind of the next answer.
  Kind hears() {
    std::array<std::byte, wire::kLengthBytes + 1> head{};
    REQUIRE(receive_all(socket_.get(), head, Deadline::after(10s)));
    Bytes rest(static_cast<std::size_t>(head[0]) + 256 * static_cast<std::size_t>(head[1]) - 1);
    REQUIRE(receive_all(socket_.get(), rest, Deadline::after(10s)));
    return static_cast<Kind>(head.back());
  }
  void joins() {
    REQUIRE(says_hello());
    REQUIRE(say(wire::encode({.kind = Kind::kJoin})));
    REQUIRE(hears() == Kind::kDone);
  }
  /// Whether the store closes the connection.
  bool is_thrown_out() {
    std::array<std::byte, 4096> rest{};
    for (;;) {
      const auto got = receive_some(socket_.get(), rest, Deadline::after(10s));
      if (!got) return got.error().code == Code::kPeerFailed;
    }
  }

 private:
  Fd socket_;
};

Bytes random_bytes(std::mt19937_64& random, std::size_t count) {
  Bytes bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random() & 0xff);
  return bytes;
}

Bytes with_length(std::uint32_t length, const Bytes& rest) {
  Bytes bytes(4 + rest.size());
  for (std::size_t i = 0; i < 4; ++i) bytes[i] = static_cast<std::byte>((length >> (8 * i)) & 0xff);
  std::copy(rest.begin(), rest.end(), bytes.begin() + 4);
  return bytes;
}

TEST_CASE("garbage closes that connection only") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  Served served;
  for (int round = 0; round < 50; ++round) {
    Stranger before_hello(served.port), before_join(served.port), inside(served.port);
    before_hello.say(random_bytes(random, wire::kHelloBytes + random() % 1000));
    CHECK(before_hello.is_thrown_out());
    REQUIRE(before_join.says_hello());
    before_join.say(random_bytes(random, 64));
    CHECK(before_join.is_thrown_out());
    inside.joins();
    // A kind that does not exist, in a frame that is whole.
    Bytes frame = random_bytes(random, 1 + random() % 300);
    frame[0] = static_cast<std::byte>(64 + random() % 128);
    inside.say(with_length(static_cast<std::uint32_t>(frame.size()), frame));
    CHECK(inside.is_thrown_out());
  }
  served.still_works();
}

TEST_CASE("lengths out of bounds close the connection before anything is stored") {
  Served served;
  for (const std::uint32_t length :
       {0U, 0xffffffffU, 0x80000000U, static_cast<std::uint32_t>(wire::kMostFrameBytes + 1)}) {
    Stranger inside(served.port);
    inside.joins();
    inside.say(with_length(length, {}));
    CHECK(inside.is_thrown_out());
  }
  // Before it has joined, a client has nothing long to say.
  Stranger outside(served.port);
  REQUIRE(outside.says_hello());
  outside.say(with_length(wire::kMostJoinBytes + 1, {}));
  CHECK(outside.is_thrown_out());
  // Lengths inside a frame that point past its end.
  Stranger inside(served.port);
  inside.joins();
  inside.say(with_length(3, {static_cast<std::byte>(Kind::kPut), std::byte{0xff}, std::byte{0}}));
  CHECK(inside.is_thrown_out());
  served.still_works();
}

TEST_CASE("who does not know the secret, or speaks another version, is not let in") {
  Served served;
  Stranger wrong_secret(served.port);
  REQUIRE(wrong_secret.says_hello());
  wire::Message join{.kind = Kind::kJoin};
  join.secret.fill(std::byte{7});
  REQUIRE(wrong_secret.say(wire::encode(join)));
  CHECK(wrong_secret.hears() == Kind::kRefused);
  CHECK(wrong_secret.is_thrown_out());
  Stranger no_join(served.port);
  REQUIRE(no_join.says_hello());
  no_join.say(wire::encode({.kind = Kind::kPut, .key = "k"}));
  CHECK(no_join.is_thrown_out());
  Stranger other_version(served.port);
  REQUIRE(other_version.say(wire::encode(wire::Hello{wire::kVersion + 1, 0})));
  CHECK(other_version.is_thrown_out());
  served.still_works();
}

TEST_CASE("who speaks out of turn, answers instead of asking, or leaves, harms nobody") {
  Served served;
  Stranger impatient(served.port);
  impatient.joins();
  REQUIRE(impatient.say(wire::encode({.kind = Kind::kGet, .wait_ms = 60'000, .key = "never"})));
  // Together they would be two requests in a row: the server, which answers in the order in which
  // it is asked, has read the first one once somebody else has got an answer.
  Stranger(served.port).joins();
  impatient.say(wire::encode({.kind = Kind::kGet, .wait_ms = 60'000, .key = "never"}));
  CHECK(impatient.is_thrown_out());
  Stranger answering(served.port);
  answering.joins();
  answering.say(wire::encode({.kind = Kind::kDone}));
  CHECK(answering.is_thrown_out());
  {
    Stranger leaving(served.port);
    leaving.joins();
    REQUIRE(leaving.say(wire::encode({.kind = Kind::kGet, .wait_ms = 60'000, .key = "proof"})));
    Stranger half(served.port);
    half.joins();
    half.say(with_length(1'000'000, Bytes(1000)));  // And then not the rest.
    Stranger silent(served.port);
  }
  served.still_works();
}

TEST_CASE("requests may come in any pieces, and several at once") {
  Served served;
  Stranger slow(served.port);
  Bytes all = wire::encode(wire::Hello{});
  for (const auto& message :
       {wire::encode({.kind = Kind::kJoin}), wire::encode({.kind = Kind::kPut, .key = "k"}),
        wire::encode({.kind = Kind::kGet, .wait_ms = 0, .key = "k"}),
        wire::encode({.kind = Kind::kGet, .wait_ms = 0, .key = "absent"})}) {
    all.insert(all.end(), message.begin(), message.end());
  }
  for (const std::byte& byte : all) REQUIRE(slow.say({&byte, 1}));
  Stranger fast(served.port);
  REQUIRE(fast.say(all));
  for (Stranger* client : {&slow, &fast}) {
    INFO((client == &slow ? "byte by byte" : "all at once"));
    REQUIRE(client->hears_hello());
    CHECK(client->hears() == Kind::kDone);
    CHECK(client->hears() == Kind::kDone);
    CHECK(client->hears() == Kind::kValue);
    CHECK(client->hears() == Kind::kAbsent);
  }
}

TEST_CASE("a client says what it found where the store should be") {
  const auto connect = [](int port) {
    const auto client = tcp_rendezvous("127.0.0.1", port, Rank{1}, Deadline::after(300ms));
    REQUIRE_FALSE(client);
    CHECK(client.error().code == Code::kTimeout);
    return client.error().what;
  };
  // Nobody.
  CHECK_THAT(connect(free_port()),
             Catch::Contains("Connection refused") && Catch::Contains("check that rank 0 runs"));
  // Somebody silent.
  auto silent = listen_at("127.0.0.1", 0, Deadline::after(10s));
  REQUIRE(silent);
  CHECK_THAT(connect(silent->port), Catch::Contains("something else than a Tutti store is there"));
  // An unknown host.
  const auto unknown = tcp_rendezvous("no-such-host.invalid", 1, Rank{1}, Deadline::after(300ms));
  REQUIRE_FALSE(unknown);
  CHECK_THAT(unknown.error().what, Catch::Contains("host 'no-such-host.invalid' is unknown"));
}

TEST_CASE("a store of another version is told at once") {
  auto listening = listen_at("127.0.0.1", 0, Deadline::after(10s));
  REQUIRE(listening);
  std::jthread other([&] {
    if (!wait_for(listening->sockets[0].get(), POLLIN, Deadline::after(10s))) return;
    const Fd client(::accept(listening->sockets[0].get(), nullptr, nullptr));
    const Bytes hello = wire::encode(wire::Hello{wire::kVersion + 6, 1});
    static_cast<void>(send_all(client.get(), hello, Deadline::after(10s)));
    std::array<std::byte, wire::kHelloBytes> theirs{};
    static_cast<void>(receive_all(client.get(), theirs, Deadline::after(10s)));
  });
  const auto client = tcp_rendezvous("127.0.0.1", listening->port, Rank{1}, Deadline::after(5min));
  REQUIRE_FALSE(client);
  CHECK(client.error().code == Code::kMismatch);
  CHECK_THAT(client.error().what, Catch::Contains("speaks version 7 of the protocol, this rank "
                                                  "version 1: all ranks need the same Tutti"));
}

TEST_CASE("rank 0 says who has the port") {
  const auto taken = listen_at("127.0.0.1", 0, Deadline::after(10s));
  REQUIRE(taken);
  const auto host = tcp_rendezvous("127.0.0.1", taken->port, Rank{0}, Deadline::after(100ms));
  REQUIRE_FALSE(host);
  CHECK(host.error().code == Code::kSystem);
  CHECK_THAT(host.error().what, Catch::Contains("127.0.0.1:" + std::to_string(taken->port)) &&
                                    Catch::Contains("Address already in use"));
}

TEST_CASE("when rank 0 goes, those who wait are told; the port is free for the next") {
  const int port = free_port();
  for (int run = 0; run < 3; ++run) {
    auto host = tcp_rendezvous("127.0.0.1", port, Rank{0}, Deadline::after(10s));
    REQUIRE(host);
    const auto client = tcp_rendezvous("127.0.0.1", port, Rank{1}, Deadline::after(10s));
    REQUIRE(client);
    REQUIRE((*host)->put("last words", {}));
    host->reset();
    // What it had put can still be read by those who were there; new ones are not let in.
    CHECK((*client)->get("last words", Deadline::after(10s)));
    CHECK_FALSE(tcp_rendezvous("127.0.0.1", port, Rank{1}, Deadline::after(50ms)));
  }
}

TEST_CASE("messages come out as they went in") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 200; ++i) {
    const std::string key(1 + random() % kMostKeyBytes, 'k');
    const Bytes value = random_bytes(random, random() % 5000);
    wire::Secret secret{};
    for (auto& byte : secret) byte = static_cast<std::byte>(random() & 0xff);
    const Error error{static_cast<Code>(1 + random() % 9), std::string(random() % 5000, 'e'),
                      Rank{static_cast<int>(random() % 100) - 1}, Rank{-1}};
    const wire::Message messages[] = {
        {.kind = Kind::kJoin, .secret = secret},
        {.kind = Kind::kPut, .key = key, .value = value},
        {.kind = Kind::kGet, .wait_ms = static_cast<std::uint32_t>(random()), .key = key},
        {.kind = Kind::kFail, .error = error},
        {.kind = Kind::kDone},
        {.kind = Kind::kAbsent},
        {.kind = Kind::kFailed, .error = error},
        {.kind = Kind::kRefused, .text = key},
    };
    for (const wire::Message& message : messages) {
      const Bytes bytes = wire::encode(message);
      wire::FrameReader reader(wire::kMostFrameBytes);
      reader.append(bytes);
      const auto frame = reader.next();
      REQUIRE(frame);
      REQUIRE(frame->has_value());
      const auto parsed = wire::parse(**frame);
      REQUIRE(parsed);
      CHECK(parsed->kind == message.kind);
      CHECK(parsed->secret == message.secret);
      CHECK(parsed->wait_ms == message.wait_ms);
      CHECK(parsed->key == message.key);
      CHECK(std::equal(parsed->value.begin(), parsed->value.end(), message.value.begin(),
                       message.value.end()));
      CHECK(parsed->text == message.text);
      CHECK(parsed->error.what == message.error.what.substr(0, kMostErrorBytes));
      CHECK(parsed->error.rank == message.error.rank);
      // A byte less, or one more than its kind has, is no message. (Texts and values have no end.)
      if (message.kind == Kind::kJoin || message.kind == Kind::kGet) {
        CHECK_FALSE(wire::parse((**frame).first((**frame).size() - 1)));
        Bytes longer((**frame).begin(), (**frame).end());
        longer.push_back(std::byte{0});
        CHECK_FALSE(wire::parse(longer));
      }
    }
  }
}

TEST_CASE("an error from outside stays one line") {
  const Error error{Code::kSystem, "two\nlines\r\x1b[31m", Rank{}, Rank{}};
  const Bytes bytes = wire::encode({.kind = Kind::kFailed, .error = error});
  const auto parsed = wire::parse(std::span(bytes).subspan(wire::kLengthBytes));
  REQUIRE(parsed);
  CHECK(parsed->error.what == "two lines  [31m");
}

}  // namespace
}  // namespace tutti::bootstrap
