// The handshake of TCP connections: a peer that knows the secret gets in, no other does.
#include <algorithm>
#include <random>

#include "base/net/handshake.h"
#include "support/catch.h"

namespace tutti::tcp {
namespace {

Secret secret_of(std::byte fill) {
  Secret secret;
  secret.fill(fill);
  return secret;
}
const Secret kOurs = secret_of(std::byte{1}), kOther = secret_of(std::byte{2});

Handshake connector(const Secret& secret, int from, int to, int index = 0) {
  auto one = Handshake::connector(secret, {.from = from, .to = to, .index = index});
  REQUIRE(one);
  return *std::move(one);
}
Handshake acceptor(const Secret& secret, int me) {
  auto one = Handshake::acceptor(secret, me);
  REQUIRE(one);
  return *std::move(one);
}

/// Moves at most `piece` bytes; how many there were.
Result<std::size_t> move(Handshake& from, Handshake& to, std::size_t piece) {
  const auto all = from.to_send();
  const std::size_t count = std::min({piece, all.size(), to.wanted()});
  const std::vector<std::byte> bytes(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
  from.sent(count);
  TUTTI_RETURN_IF_ERROR(to.take(bytes));
  return count;
}

/// Until nothing moves any more; the first error.
Status talk(Handshake& a, Handshake& b, std::size_t piece) {
  for (std::size_t moved = 1; moved != 0;) {
    TUTTI_TRY(const std::size_t there, move(a, b, piece));
    if (b.proven()) b.welcome();
    TUTTI_TRY(const std::size_t back, move(b, a, piece));
    moved = there + back;
  }
  return ok();
}

TEST_CASE("two who know the secret meet, whatever the pieces of the stream") {
  for (std::size_t piece = 1; piece <= 100; ++piece) {
    Handshake a = connector(kOurs, 7, 3, 2), b = acceptor(kOurs, 3);
    REQUIRE(talk(a, b, piece));
    CHECK(a.done());
    CHECK(b.done());
    CHECK(b.hello().from == 7);
    CHECK(b.hello().index == 2);
    CHECK(a.wanted() == 0);
    CHECK(b.wanted() == 0);
  }
}

TEST_CASE("who does not know the secret gets nowhere") {
  Handshake a = connector(kOther, 7, 3), b = acceptor(kOurs, 3);
  const Status met = talk(a, b, 1000);
  REQUIRE_FALSE(met);
  CHECK(met.error().what.find("another job") != std::string::npos);
  CHECK_FALSE(a.committed());

  // The job's number travels in the clear, so an unauthenticated peer can have it. It helps neither
  // side.
  const auto forged = [](bool as_connector) {
    auto hello = Hello{.from = 7, .to = 3};
    hello.job = job_of(kOurs);
    const auto bytes = encode(hello);
    Handshake server = acceptor(kOurs, 3);
    REQUIRE(server.take(bytes));
    REQUIRE(server.to_send().size() == kAnswerBytes);
    if (as_connector) {
      server.sent(kAnswerBytes);
      const Status proved = server.take(std::array<std::byte, kHashBytes>{});
      REQUIRE_FALSE(proved);
      return proved.error().what;
    }
    // An unauthenticated peer's server that was given an answer made for another hello.
    Handshake client = connector(kOurs, 7, 3);
    client.sent(kHelloBytes);
    const std::vector<std::byte> answer(server.to_send().begin(), server.to_send().end());
    const Status believed = client.take(answer);
    REQUIRE_FALSE(believed);
    return believed.error().what;
  };
  CHECK(forged(true) == "it does not know this job's secret");
  CHECK(forged(false) == "it does not know this job's secret");
}

TEST_CASE("a stranger can't use a rank against itself or against another one") {
  // Reflection: rank 3 connects, and the unauthenticated peer sends what it gets back to rank 3's
  // own listener.
  Handshake client = connector(kOurs, 3, 1), listener = acceptor(kOurs, 3);
  const std::vector<std::byte> hello(client.to_send().begin(), client.to_send().end());
  const Status reflected = listener.take(hello);
  REQUIRE_FALSE(reflected);
  CHECK(reflected.error().what == "it is rank 3 and looks for rank 1");
  // The same with a hello that names the ranks the other way round: the hash is of another hello.
  Handshake victim = connector(kOurs, 3, 1), other_listener = acceptor(kOurs, 3);
  auto turned = Hello{.from = 1, .to = 3};
  turned.job = job_of(kOurs);
  turned.nonce = victim.hello().nonce;
  REQUIRE(other_listener.take(encode(turned)));
  victim.sent(kHelloBytes);
  const std::vector<std::byte> answer(other_listener.to_send().begin(),
                                      other_listener.to_send().end());
  CHECK_FALSE(victim.take(answer));
  // An acceptor's hash is no connector's: sent back as a proof it is refused.
  other_listener.sent(kAnswerBytes);
  CHECK_FALSE(other_listener.take(std::span(answer).last(kHashBytes)));
  // A proof is good once.
  Handshake a = connector(kOurs, 7, 3), b = acceptor(kOurs, 3), c = acceptor(kOurs, 3);
  const std::vector<std::byte> first(a.to_send().begin(), a.to_send().end());
  REQUIRE(move(a, b, 1000));
  REQUIRE(move(b, a, 1000));
  const std::vector<std::byte> proof(a.to_send().begin(), a.to_send().end());
  REQUIRE(b.take(proof));
  CHECK(b.proven());
  REQUIRE(c.take(first));
  c.sent(kAnswerBytes);
  CHECK_FALSE(c.take(proof));
}

TEST_CASE("one changed bit anywhere ends the handshake") {
  // The messages in order, with their sizes: hello, answer, proof, welcome.
  constexpr std::array<std::size_t, 4> kSizes{kHelloBytes, kAnswerBytes, kHashBytes, kHashBytes};
  std::mt19937 random(Catch::rngSeed());
  for (std::size_t message = 0; message < kSizes.size(); ++message) {
    for (std::size_t at = 0; at < kSizes[message]; ++at) {
      const int bit = static_cast<int>(random() % 8);
      INFO("message " << message << ", byte " << at << ", bit " << bit);
      Handshake a = connector(kOurs, 7, 3, 1), b = acceptor(kOurs, 3);
      bool refused = false;
      for (std::size_t step = 0; step < kSizes.size() && !refused; ++step) {
        Handshake& from = step % 2 == 0 ? a : b;
        Handshake& to = step % 2 == 0 ? b : a;
        std::vector<std::byte> bytes(from.to_send().begin(), from.to_send().end());
        REQUIRE(bytes.size() == kSizes[step]);
        from.sent(bytes.size());
        if (step == message) bytes[at] ^= std::byte{1} << bit;
        refused = !to.take(bytes);
        if (b.proven()) b.welcome();
      }
      CHECK(refused);
      // Only the welcome comes after both have proved themselves.
      CHECK_FALSE(a.done());
      if (message < 3) CHECK_FALSE(b.done());
    }
  }
}

TEST_CASE("another version is told from a stranger, on both sides") {
  Handshake b = acceptor(kOurs, 3);
  auto hello = Hello{.version = 9, .from = 7, .to = 3};
  const Status met = b.take(encode(hello));
  REQUIRE_FALSE(met);
  CHECK(met.error().code == Code::kMismatch);
  CHECK(met.error().what.find("version 9") != std::string::npos);
  REQUIRE(b.to_send().size() == kAnswerBytes);  // Says our version, and nothing else.
  auto answer = std::vector<std::byte>(b.to_send().begin(), b.to_send().end());
  CHECK(std::all_of(answer.end() - kHashBytes, answer.end(),
                    [](std::byte byte) { return byte == std::byte{}; }));
  Handshake a = connector(kOurs, 7, 3);
  a.sent(kHelloBytes);
  answer[8] = std::byte{8};
  const Status told = a.take(answer);
  REQUIRE_FALSE(told);
  CHECK(told.error().code == Code::kMismatch);
  CHECK(told.error().what.find("version 8") != std::string::npos);
}

TEST_CASE("strangers of all kinds are told what they are") {
  const auto said = [](std::string_view text) {
    Handshake b = acceptor(kOurs, 3);
    std::array<std::byte, kHelloBytes> bytes{};
    for (std::size_t i = 0; i < std::min(text.size(), bytes.size()); ++i)
      bytes[i] = static_cast<std::byte>(text[i]);
    const Status met = b.take(bytes);
    return met ? "believed" : met.error().what;
  };
  CHECK(said("GET / HTTP/1.1\r\nHost: rank3\r\n\r\n") == "it does not speak Tutti's protocol");
  CHECK(said("") == "it does not speak Tutti's protocol");
  // The right magic and version, and then a negative rank.
  CHECK(said(std::string("tutti-tc\1\0\0\0\xff\xff\xff\xff", 16)) ==
        "it does not speak Tutti's protocol");
}

}  // namespace
}  // namespace tutti::tcp
