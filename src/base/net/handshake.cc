#include "base/net/handshake.h"

#include <sodium.h>

#include <algorithm>
#include <string_view>

#include "base/bytes.h"
#include "base/check.h"

namespace tutti::tcp {
namespace {

constexpr std::string_view kAcceptor = "acceptor", kConnector = "connector", kWelcome = "welcome";

static_assert(std::tuple_size_v<Secret> == crypto_generichash_KEYBYTES);
static_assert(kHashBytes == crypto_generichash_BYTES && kHashBytes == crypto_verify_32_BYTES);

const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

bool sodium_ready() {
  static const bool ready = sodium_init() >= 0;
  return ready;
}

/// One keyed hash over some pieces, each of a fixed size but the word, which comes first and is
/// told from the others by its length.
std::array<std::byte, kHashBytes> keyed_hash(
    const Secret& key, std::string_view word,
    std::initializer_list<std::span<const std::byte>> pieces) {
  crypto_generichash_state state;
  std::array<std::byte, kHashBytes> hash{};
  const std::array<std::byte, 1> length{static_cast<std::byte>(word.size())};
  crypto_generichash_init(&state, raw(key.data()), key.size(), hash.size());
  crypto_generichash_update(&state, raw(length.data()), length.size());
  crypto_generichash_update(&state, raw(bytes_of(word).data()), word.size());
  for (const auto piece : pieces)
    crypto_generichash_update(&state, raw(piece.data()), piece.size());
  crypto_generichash_final(&state, raw(hash.data()), hash.size());
  return hash;
}

Error unauthenticated(const std::string& what) { return {Code::kPeerFailed, what}; }

}  // namespace

Result<std::array<std::byte, 32>> random_bytes() {
  if (!sodium_ready()) return Error{Code::kSystem, "tcp: the system gives no random bytes"};
  std::array<std::byte, 32> bytes{};
  randombytes_buf(bytes.data(), bytes.size());
  return bytes;
}

Secret derive_secret(std::string_view use, std::string_view secret, std::string_view name) {
  TUTTI_CHECK(sodium_ready());
  crypto_generichash_state state;
  Secret derived{};
  crypto_generichash_init(&state, nullptr, 0, derived.size());
  for (const std::string_view text : {use, secret, name}) {
    // The length goes before each text, so that different lists of texts never give the same bytes.
    std::array<std::byte, 8> length{};
    ByteWriter(length).number(static_cast<std::uint64_t>(text.size()));
    crypto_generichash_update(&state, raw(length.data()), length.size());
    crypto_generichash_update(&state, raw(bytes_of(text).data()), text.size());
  }
  crypto_generichash_final(&state, raw(derived.data()), derived.size());
  return derived;
}

std::uint64_t job_of(const Secret& secret) {
  const auto hash = keyed_hash(secret, "job", {});
  return ByteReader(hash).number<std::uint64_t>();
}

std::array<std::byte, kHelloBytes> encode(const Hello& hello, const Protocol& protocol) {
  std::array<std::byte, kHelloBytes> bytes{};
  ByteWriter writer(bytes);
  writer.copy(bytes_of(protocol.magic));
  writer.number(hello.version);
  writer.number(static_cast<std::uint32_t>(hello.from));
  writer.number(static_cast<std::uint32_t>(hello.to));
  writer.number(static_cast<std::uint32_t>(hello.index));
  writer.number(hello.job);
  writer.copy(hello.nonce);
  return bytes;
}

std::optional<Hello> parse_hello(std::span<const std::byte, kHelloBytes> bytes,
                                 const Protocol& protocol) {
  ByteReader reader(bytes);
  const auto magic = bytes_of(protocol.magic);
  if (!std::ranges::equal(reader.take(magic.size()), magic)) return std::nullopt;
  Hello hello;
  hello.version = reader.number<std::uint32_t>();
  hello.from = static_cast<int>(reader.number<std::uint32_t>());
  hello.to = static_cast<int>(reader.number<std::uint32_t>());
  hello.index = static_cast<int>(reader.number<std::uint32_t>());
  hello.job = reader.number<std::uint64_t>();
  std::ranges::copy(reader.take(hello.nonce.size()), hello.nonce.begin());
  if (hello.version != protocol.version) return hello;
  if (hello.from < 0 || hello.to < 0 || hello.index < 0) return std::nullopt;
  return hello;
}

Result<Handshake> Handshake::connector(const Secret& secret, Hello hello,
                                       const Protocol& protocol) {
  hello.version = protocol.version;
  TUTTI_TRY(hello.nonce, random_bytes());
  hello.job = job_of(secret);
  Handshake one(secret, hello.from, State::kWantsAnswer, protocol);
  one.hello_ = hello;
  one.say(encode(hello, protocol));
  one.expect(State::kWantsAnswer, kAnswerBytes);
  return one;
}

Result<Handshake> Handshake::acceptor(const Secret& secret, int me, const Protocol& protocol) {
  Handshake one(secret, me, State::kWantsHello, protocol);
  TUTTI_TRY(one.answer_nonce_, random_bytes());
  one.expect(State::kWantsHello, kHelloBytes);
  return one;
}

Handshake::Hash Handshake::hash(std::string_view word) const {
  return keyed_hash(secret_, word, {encode(hello_, protocol_), answer_nonce_});
}

Secret Handshake::session_key(std::string_view word) const {
  TUTTI_CHECK(done());
  return hash(word);
}

Error Handshake::other_version(std::uint32_t theirs) const {
  return {Code::kMismatch,
          "it speaks version " + std::to_string(theirs) + " of the protocol, this rank version " +
              std::to_string(protocol_.version) + ": all ranks need the same Tutti"};
}

bool Handshake::is_hash(std::string_view word, std::span<const std::byte> bytes) const {
  const Hash mine = hash(word);
  // The same time wherever the two differ.
  return bytes.size() == mine.size() && crypto_verify_32(raw(mine.data()), raw(bytes.data())) == 0;
}

void Handshake::expect(State state, std::size_t bytes) {
  state_ = state;
  incoming_ = bytes;
  received_ = 0;
}

void Handshake::say(std::span<const std::byte> bytes) {
  // The other side spoke, so it has all that was said before.
  std::ranges::copy(bytes, outgoing_.begin());
  outgoing_bytes_ = bytes.size();
  sent_ = 0;
}

void Handshake::sent(std::size_t bytes) {
  TUTTI_CHECK(bytes <= outgoing_bytes_ - sent_);
  sent_ += bytes;
}

Status Handshake::take(std::span<const std::byte> bytes) {
  TUTTI_CHECK(bytes.size() <= wanted());
  if (bytes.empty()) return ok();
  // A peer that answers before the question is complete is guessing.
  if (!to_send().empty()) return unauthenticated("it spoke out of turn");
  std::ranges::copy(bytes, buffer_.begin() + static_cast<std::ptrdiff_t>(received_));
  received_ += bytes.size();
  if (received_ < incoming_) return ok();
  return take_message(std::span(buffer_).first(incoming_));
}

Status Handshake::take_message(std::span<const std::byte> message) {
  switch (state_) {
    case State::kWantsHello: return take_hello(message);
    case State::kWantsAnswer: return take_answer(message);
    case State::kWantsProof:
      if (!is_hash(kConnector, message))
        return unauthenticated("it does not know this job's secret");
      expect(State::kProven, 0);
      return ok();
    case State::kWantsWelcome:
      if (!is_hash(kWelcome, message)) return unauthenticated("its welcome is not genuine");
      expect(State::kDone, 0);
      return ok();
    case State::kProven:
    case State::kDone: break;
  }
  return unauthenticated("it spoke out of turn");
}

Status Handshake::take_hello(std::span<const std::byte> message) {
  const auto hello = parse_hello(message.first<kHelloBytes>(), protocol_);
  if (!hello) return unauthenticated("it does not speak Tutti's protocol");
  hello_ = *hello;
  // Told apart before anything is proved, so that an honest mistake gets an honest message; a
  // wrong guess of these costs an unauthenticated peer its connection.
  std::array<std::byte, kAnswerBytes> answer{};
  ByteWriter writer(answer);
  writer.copy(bytes_of(protocol_.magic));
  writer.number(protocol_.version);
  writer.number(std::uint32_t{0});
  writer.copy(answer_nonce_);
  if (hello->version != protocol_.version) {
    say(answer);  // Without a hash: the other side only learns the version.
    return other_version(hello->version);
  }
  if (hello->job != job_of(secret_)) return unauthenticated("it belongs to another job");
  if (hello->to != me_ || hello->from == me_)
    return unauthenticated("it is rank " + std::to_string(hello->from) + " and looks for rank " +
                           std::to_string(hello->to));
  writer.copy(hash(kAcceptor));
  say(answer);
  expect(State::kWantsProof, kHashBytes);
  return ok();
}

Status Handshake::take_answer(std::span<const std::byte> message) {
  ByteReader reader(message);
  const auto magic = bytes_of(protocol_.magic);
  if (!std::ranges::equal(reader.take(magic.size()), magic))
    return unauthenticated("something else than Tutti is there");
  const auto version = reader.number<std::uint32_t>();
  if (version != protocol_.version) return other_version(version);
  if (reader.number<std::uint32_t>() != 0)
    return unauthenticated("something else than Tutti is there");
  std::ranges::copy(reader.take(answer_nonce_.size()), answer_nonce_.begin());
  if (!is_hash(kAcceptor, reader.take(kHashBytes)))
    return unauthenticated("it does not know this job's secret");
  say(hash(kConnector));
  expect(State::kWantsWelcome, kHashBytes);
  return ok();
}

void Handshake::welcome() {
  TUTTI_CHECK(state_ == State::kProven);
  say(hash(kWelcome));
  expect(State::kDone, 0);
}

}  // namespace tutti::tcp
