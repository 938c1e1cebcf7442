// The TCP store against unauthenticated peers, and the bytes on the wire.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <random>
#include <thread>

#include "bootstrap/limits.h"
#include "bootstrap/secure_link.h"
#include "bootstrap/sockets.h"
#include "bootstrap/tcp_server.h"
#include "bootstrap/wire.h"
#include "support/catch.h"
#include "tutti/rendezvous.h"

namespace tutti::bootstrap {
namespace {

using namespace std::chrono_literals;
using wire::Kind;

constexpr const char* kSecret = "what only the ranks of this test know";

int free_port() {
  const auto listening = listen_at("127.0.0.1", 0, Deadline::after(10s));
  return listening ? listening->port : 0;
}

Result<std::unique_ptr<Rendezvous>> meet_at(int port, int rank, Deadline deadline) {
  return tcp_rendezvous("127.0.0.1", port, Rank{rank}, deadline, kSecret);
}

/// Rank 0's store, and a client that proves that it still works.
class Served {
 public:
  Served() {
    auto made = meet_at(port, 0, Deadline::after(10s));
    if (made) host_ = *std::move(made);
    REQUIRE(host_);
  }
  void still_works() {
    const auto client = meet_at(port, 1, Deadline::after(10s));
    REQUIRE(client);
    const std::array<std::byte, 3> value{std::byte{1}, std::byte{2}, std::byte{3}};
    REQUIRE((*client)->put("proof", value));
    const auto got = host_->get("proof", Deadline::after(10s));
    REQUIRE(got);
    CHECK(*got == Bytes(value.begin(), value.end()));
  }
  Rendezvous& host() { return *host_; }
  const int port = free_port();

 private:
  std::unique_ptr<Rendezvous> host_;
};

Fd connect_to_port(int port) {
  auto socket = connect_to(ipv4_address({htonl(INADDR_LOOPBACK)}, static_cast<std::uint16_t>(port)),
                           Deadline::after(10s));
  REQUIRE(socket);
  return *std::move(socket);
}

/// Whether the other side closes the connection, whatever else it says.
bool is_thrown_out_of(int socket) {
  std::array<std::byte, 4096> rest{};
  for (;;) {
    const auto got = receive_some(socket, rest, Deadline::after(10s));
    if (!got) return got.error().code == Code::kPeerFailed;
  }
}

/// A socket to the store, for saying whatever one likes.
class UnknownClient {
 public:
  explicit UnknownClient(int port) : socket_(connect_to_port(port)) {}
  /// False once the other side has closed.
  bool say(std::span<const std::byte> bytes) {
    return static_cast<bool>(send_all(socket_.get(), bytes, Deadline::after(10s)));
  }
  /// The first message of a client that knows that secret, or pretends to.
  bool says_hello(const Secret& secret, const tcp::Protocol& protocol = kStoreProtocol) {
    const auto handshake = tcp::Handshake::connector(secret, {.from = 1}, protocol);
    REQUIRE(handshake);
    return say(handshake->to_send());
  }
  bool is_thrown_out() { return is_thrown_out_of(socket_.get()); }

 private:
  Fd socket_;
};

Secret secret_of_test() { return key_of(kSecret, "tcp_rendezvous"); }

/// A client that knows the secret, and then does what it should not.
class Member {
 public:
  explicit Member(int port)
      : link_(SecureLink::connect(connect_to_port(port), secret_of_test(), kAnyClient,
                                  Deadline::after(10s))) {
    REQUIRE(link_);
  }
  bool say(std::span<const std::byte> bytes) {
    return static_cast<bool>(link_->send(bytes, Deadline::after(10s)));
  }
  /// Not sealed.
  bool shout(std::span<const std::byte> bytes) {
    return static_cast<bool>(send_all(link_->descriptor(), bytes, Deadline::after(10s)));
  }
  /// The kind of the next answer.
  Kind hears() {
    for (;;) {
      const auto frame = reader_.next();
      REQUIRE(frame);
      if (frame->has_value()) return static_cast<Kind>((**frame)[0]);
      Bytes opened;
      REQUIRE(link_->receive(opened, Deadline::after(10s)));
      reader_.append(opened);
    }
  }
  bool is_thrown_out() { return is_thrown_out_of(link_->descriptor()); }

 private:
  Result<SecureLink> link_;
  wire::FrameReader reader_{wire::kMostFrameBytes};
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
    UnknownClient before_hello(served.port), before_proof(served.port);
    before_hello.say(random_bytes(random, tcp::kHelloBytes + random() % 1000));
    CHECK(before_hello.is_thrown_out());
    REQUIRE(before_proof.says_hello(secret_of_test()));
    before_proof.say(random_bytes(random, tcp::kHashBytes));
    CHECK(before_proof.is_thrown_out());
    Member inside(served.port), unsealed(served.port);
    // A kind that does not exist, in a frame that is whole.
    Bytes frame = random_bytes(random, 1 + random() % 300);
    frame[0] = static_cast<std::byte>(64 + random() % 128);
    inside.say(with_length(static_cast<std::uint32_t>(frame.size()), frame));
    CHECK(inside.is_thrown_out());
    unsealed.shout(with_length(100, random_bytes(random, 100 + kTagBytes)));
    CHECK(unsealed.is_thrown_out());
  }
  served.still_works();
}

TEST_CASE("lengths out of bounds close the connection before anything is stored") {
  Served served;
  for (const std::uint32_t length :
       {0U, 0xffffffffU, 0x80000000U, static_cast<std::uint32_t>(wire::kMostFrameBytes + 1)}) {
    Member inside(served.port), unsealed(served.port);
    inside.say(with_length(length, {}));
    CHECK(inside.is_thrown_out());
    unsealed.shout(with_length(length, {}));
    CHECK(unsealed.is_thrown_out());
  }
  // Lengths inside a frame that point past its end.
  Member inside(served.port);
  inside.say(with_length(3, {static_cast<std::byte>(Kind::kPut), std::byte{0xff}, std::byte{0}}));
  CHECK(inside.is_thrown_out());
  served.still_works();
}

TEST_CASE("who does not know the secret, or speaks another version, is not let in") {
  Served served;
  // The name of the job alone is no secret.
  for (const char* const known : {"", "what only the ranks of this test kno"}) {
    const auto link =
        SecureLink::connect(connect_to_port(served.port), key_of(known, "tcp_rendezvous"),
                            kAnyClient, Deadline::after(10s));
    REQUIRE_FALSE(link);
    CHECK_THAT(link.error().what, Catch::Contains("TUTTI_SECRET have to be alike on all ranks"));
  }
  UnknownClient no_proof(served.port);
  REQUIRE(no_proof.says_hello(secret_of_test()));
  no_proof.say(wire::encode({.kind = Kind::kPut, .key = "k", .value = Bytes(100)}));
  CHECK(no_proof.is_thrown_out());
  UnknownClient other_version(served.port);
  REQUIRE(other_version.says_hello(secret_of_test(), {"tutti-st", 9}));
  CHECK(other_version.is_thrown_out());
  CHECK(served.host().get("k", Deadline::after(0s)).error().code == Code::kTimeout);
  served.still_works();
}

/// Between a client and the store: what each said.
class Recorder {
 public:
  explicit Recorder(int store) : listening_(listen_at("127.0.0.1", 0, Deadline::after(10s))) {
    REQUIRE(listening_);
    thread_ = std::jthread([this, store](const std::stop_token& stop) { relay(store, stop); });
  }
  int port() const { return listening_->port; }
  /// Once the client has closed its connection.
  void wait() { thread_.join(); }
  Bytes to_store, to_client;

 private:
  static bool move(int from, int to, Bytes& said) {
    std::array<std::byte, 4096> buffer{};
    const ssize_t got = ::recv(from, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN;
    const auto bytes = std::span(buffer).first(static_cast<std::size_t>(got));
    said.insert(said.end(), bytes.begin(), bytes.end());
    return got > 0 && send_all(to, bytes, Deadline::after(10s));
  }
  void relay(int store, const std::stop_token& stop) {
    if (!wait_for(listening_->sockets[0].get(), POLLIN, Deadline::after(10s))) return;
    const Fd client(::accept(listening_->sockets[0].get(), nullptr, nullptr));
    const Fd server = connect_to_port(store);
    while (!stop.stop_requested() && move(client.get(), server.get(), to_store) &&
           move(server.get(), client.get(), to_client))
      std::this_thread::sleep_for(1ms);
  }

  Result<Listening> listening_;
  std::jthread thread_;
};

bool contains(const Bytes& bytes, std::span<const std::byte> part) {
  return std::search(bytes.begin(), bytes.end(), part.begin(), part.end()) != bytes.end();
}

TEST_CASE("an eavesdropper reads nothing, and a recorded session can't be replayed") {
  const std::string_view text = "the secret of the mesh";
  const auto value = std::as_bytes(std::span(text.data(), text.size()));
  auto served = std::make_unique<Served>();
  Recorder recorder(served->port);
  {
    const auto client = meet_at(recorder.port(), 1, Deadline::after(10s));
    REQUIRE(client);
    REQUIRE((*client)->put("key of the client", value));
    REQUIRE(served->host().put("key of the host", value));
    REQUIRE((*client)->get("key of the host", Deadline::after(10s)));
  }
  recorder.wait();
  CHECK(recorder.to_store.size() > value.size());
  for (const Bytes& said : {recorder.to_store, recorder.to_client}) {
    CHECK_FALSE(contains(said, value));
    CHECK_FALSE(contains(said, std::as_bytes(std::span(std::string_view("key of")))));
    CHECK_FALSE(contains(said, secret_of_test()));
  }
  const auto replay = [&] {
    UnknownClient whole(served->port);
    whole.say(recorder.to_store);
    CHECK(whole.is_thrown_out());
    UnknownClient reflected(served->port);
    reflected.say(recorder.to_client);
    CHECK(reflected.is_thrown_out());
    served->still_works();
  };
  replay();
  served.reset();
  served = std::make_unique<Served>();  // The next run of a job with the same secret.
  replay();
  CHECK(served->host().get("key of the client", Deadline::after(0s)).error().code ==
        Code::kTimeout);
}

/// Listens in the store's place, sends `words` to each client, and keeps what clients send.
class FakeStore {
 public:
  explicit FakeStore(Bytes words) : listening_(listen_at("127.0.0.1", 0, Deadline::after(10s))) {
    REQUIRE(listening_);
    thread_ = std::jthread([this, words = std::move(words)] {
      if (!wait_for(listening_->sockets[0].get(), POLLIN, Deadline::after(10s))) return;
      const Fd client(::accept(listening_->sockets[0].get(), nullptr, nullptr));
      heard.resize(tcp::kHelloBytes);
      if (!receive_all(client.get(), heard, Deadline::after(10s))) return;
      const Bytes answer = words.empty() ? heard : words;  // Or it reflects what it heard.
      if (!send_all(client.get(), answer, Deadline::after(10s))) return;
      std::array<std::byte, 4096> more{};
      const auto got = receive_some(client.get(), more, Deadline::after(10s));
      if (got) heard.insert(heard.end(), more.begin(), more.begin() + std::ptrdiff_t(*got));
    });
  }
  int port() const { return listening_->port; }
  void wait() { thread_.join(); }
  Bytes heard;

 private:
  Result<Listening> listening_;
  std::jthread thread_;
};

TEST_CASE("a fake store learns nothing, and is refused") {
  std::mt19937_64 random(7);
  Bytes pretends(tcp::kAnswerBytes);  // All but the proof.
  const auto hello = tcp::encode(tcp::Hello{.version = kStoreProtocol.version}, kStoreProtocol);
  std::copy_n(hello.begin(), 12, pretends.begin());
  for (const Bytes& words : {random_bytes(random, tcp::kAnswerBytes), pretends, Bytes{}}) {
    FakeStore fake(words);
    const auto link = SecureLink::connect(connect_to_port(fake.port()), secret_of_test(),
                                          kAnyClient, Deadline::after(2s));
    REQUIRE_FALSE(link);
    CHECK(link.error().code == Code::kPeerFailed);
    fake.wait();
    CHECK(fake.heard.size() == tcp::kHelloBytes);  // Neither a proof nor a request.
    CHECK_FALSE(contains(fake.heard, secret_of_test()));
  }
}

TEST_CASE("who speaks out of turn, answers instead of asking, or leaves, harms nobody") {
  Served served;
  Member impatient(served.port);
  REQUIRE(impatient.say(wire::encode({.kind = Kind::kGet, .wait_ms = 60'000, .key = "never"})));
  // Together they would be two requests in a row: the server, which answers in the order in which
  // it is asked, has read the first one once somebody else has got an answer.
  Member(served.port).say(wire::encode({.kind = Kind::kLeave}));
  impatient.say(wire::encode({.kind = Kind::kGet, .wait_ms = 60'000, .key = "never"}));
  CHECK(impatient.is_thrown_out());
  Member answering(served.port);
  answering.say(wire::encode({.kind = Kind::kDone}));
  CHECK(answering.is_thrown_out());
  {
    Member leaving(served.port);
    REQUIRE(leaving.say(wire::encode({.kind = Kind::kGet, .wait_ms = 60'000, .key = "proof"})));
    Member half(served.port);
    half.say(with_length(1'000'000, Bytes(1000)));  // And then not the rest.
    UnknownClient silent(served.port);
  }
  served.still_works();
}

TEST_CASE("requests may come in any pieces, and several at once") {
  Served served;
  Bytes all;
  for (const auto& message : {wire::encode({.kind = Kind::kPut, .key = "k"}),
                              wire::encode({.kind = Kind::kGet, .wait_ms = 0, .key = "k"}),
                              wire::encode({.kind = Kind::kGet, .wait_ms = 0, .key = "absent"})}) {
    all.insert(all.end(), message.begin(), message.end());
  }
  Member slow(served.port), fast(served.port);
  std::jthread speaks([&] {
    for (const std::byte& byte : all) slow.say({&byte, 1});
  });
  REQUIRE(fast.say(all));
  for (Member* client : {&fast, &slow}) {
    INFO((client == &slow ? "byte by byte" : "all at once"));
    if (client == &slow) speaks.join();
    CHECK(client->hears() == Kind::kDone);
    CHECK(client->hears() == Kind::kValue);
    CHECK(client->hears() == Kind::kAbsent);
  }
}

TEST_CASE("a client says what it found where the store should be") {
  const auto connect = [](int port) {
    const auto client = meet_at(port, 1, Deadline::after(300ms));
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
  CHECK_THAT(connect(silent->port), Catch::Contains("the other end says nothing"));
  // An unknown host.
  const auto unknown = tcp_rendezvous("no-such-host.invalid", 1, Rank{1}, Deadline::after(300ms));
  REQUIRE_FALSE(unknown);
  CHECK_THAT(unknown.error().what, Catch::Contains("host 'no-such-host.invalid' is unknown"));
}

TEST_CASE("a store of another version is told at once") {
  Bytes answer(tcp::kAnswerBytes);
  const auto hello = tcp::encode(tcp::Hello{.version = 7}, kStoreProtocol);
  std::copy_n(hello.begin(), 12, answer.begin());
  FakeStore other(answer);
  const auto client = meet_at(other.port(), 1, Deadline::after(5min));
  REQUIRE_FALSE(client);
  CHECK(client.error().code == Code::kMismatch);
  CHECK_THAT(client.error().what, Catch::Contains("speaks version 7 of the protocol, this rank "
                                                  "version 2: all ranks need the same Tutti"));
}

TEST_CASE("the store listens where it is named, and nowhere else") {
  const int port = free_port();
  const auto host = tcp_rendezvous("127.0.0.2", port, Rank{0}, Deadline::after(10s), kSecret);
  REQUIRE(host);
  CHECK(connect_to(ipv4_address({htonl(0x7f000002)}, static_cast<std::uint16_t>(port)),
                   Deadline::after(10s)));
  for (const char* const elsewhere : {"127.0.0.1", "127.0.0.3"}) {
    in_addr address{};
    inet_pton(AF_INET, elsewhere, &address);
    CHECK_FALSE(
        connect_to(ipv4_address(address, static_cast<std::uint16_t>(port)), Deadline::after(10s)));
  }
}

TEST_CASE("rank 0 says who has the port") {
  const auto taken = listen_at("127.0.0.1", 0, Deadline::after(10s));
  REQUIRE(taken);
  const auto host = meet_at(taken->port, 0, Deadline::after(100ms));
  REQUIRE_FALSE(host);
  CHECK(host.error().code == Code::kSystem);
  CHECK_THAT(host.error().what, Catch::Contains("127.0.0.1:" + std::to_string(taken->port)) &&
                                    Catch::Contains("Address already in use"));
}

TEST_CASE("when rank 0 goes, those who wait are told; the port is free for the next") {
  const int port = free_port();
  for (int run = 0; run < 3; ++run) {
    auto host = meet_at(port, 0, Deadline::after(10s));
    REQUIRE(host);
    const auto client = meet_at(port, 1, Deadline::after(10s));
    REQUIRE(client);
    REQUIRE((*host)->put("last words", {}));
    host->reset();
    // Clients that were there can still read what it had put; new ones are not let in.
    CHECK((*client)->get("last words", Deadline::after(10s)));
    CHECK_FALSE(meet_at(port, 1, Deadline::after(50ms)));
  }
}

TEST_CASE("messages come out as they went in") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 200; ++i) {
    const std::string key(1 + random() % kMostKeyBytes, 'k');
    const Bytes value = random_bytes(random, random() % 5000);
    const Error error{static_cast<Code>(1 + random() % 9), std::string(random() % 5000, 'e'),
                      Rank{static_cast<int>(random() % 100) - 1}, Rank{-1}};
    const wire::Message messages[] = {
        {.kind = Kind::kEnter, .text = key, .rank = Rank{static_cast<int>(random() % 100) - 1}},
        {.kind = Kind::kLeave},
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
      CHECK(parsed->rank == message.rank);
      CHECK(parsed->wait_ms == message.wait_ms);
      CHECK(parsed->key == message.key);
      CHECK(std::equal(parsed->value.begin(), parsed->value.end(), message.value.begin(),
                       message.value.end()));
      CHECK(parsed->text == message.text);
      CHECK(parsed->error.what == message.error.what.substr(0, kMostErrorBytes));
      CHECK(parsed->error.rank == message.error.rank);
      // A byte less, or one more than its kind has, is no message. (Texts and values have no end.)
      if (message.kind == Kind::kLeave || message.kind == Kind::kGet) {
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
