// File: base/net/handshake.h: both ends of a connection prove that they know the job's secret.
//
// Nothing that a connection says is believed before that. The secret never travels; each side shows
// a keyed hash (BLAKE2b, libsodium's crypto_generichash) of what both have said, so it is good for
// this one connection only:
//
//   connector -> acceptor   hello    magic (8) · version u32 · from u32 · to u32 · index u32 ·
//                                    job u64 · nonce (32)
//   acceptor -> connector   answer   magic (8) · version u32 · 0 u32 · nonce (32) ·
//                                    H(secret, "acceptor", hello, nonce)
//   connector -> acceptor   proof    H(secret, "connector", hello, both nonces)
//   acceptor -> connector   welcome  H(secret, "welcome", hello, both nonces)
//
// This is the three-pass mutual authentication of ISO/IEC 9798-4 with a fourth message, so that the
// connector knows that it was let in. The words bind each hash to a role, and the hello binds all
// of them to the two ranks, so an answer can't be had by reflecting a hello to its sender (Bird et
// al., "Systematic design of two-party authentication protocols", CRYPTO '91). It does not hide or
// seal what is sent afterwards: an attacker that can change packets on the way is not kept out.
//
// All messages have a constant size and all numbers are little-endian. A `Handshake` is one end as
// a state machine, without a socket: bytes in, bytes out. Not thread-safe.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tutti/result.h"

namespace tutti::tcp {

/// The protocol that a connection speaks. An end that speaks another one is an unauthenticated
/// peer.
struct Protocol {
  std::string_view magic;  // 8 bytes.
  std::uint32_t version = 1;
};
inline constexpr Protocol kMeshProtocol{"tutti-tc", 1};
inline constexpr std::size_t kHelloBytes = 64;
inline constexpr std::size_t kAnswerBytes = 80;
inline constexpr std::size_t kHashBytes = 32;

/// The secret that the ranks of a job share, and no other process knows.
using Secret = std::array<std::byte, 32>;
using Nonce = std::array<std::byte, 32>;
/// Fresh random bytes; for a secret (which one rank makes and the rendezvous carries) or a nonce.
/// kSystem where the system gives none.
Result<std::array<std::byte, 32>> random_bytes();
/// Derives a secret from `secret` and the name of its purpose; texts of any length.
Secret derive_secret(std::string_view use, std::string_view secret, std::string_view name);
/// Names the job of that secret without telling anything about it: it is sent in the clear.
std::uint64_t job_of(const Secret& secret);

/// How a connector describes its connection.
struct Hello {
  std::uint32_t version = kMeshProtocol.version;
  int from = 0, to = 0;  // Ranks: the connector's, and the one that it wants to reach.
  int index = 0;         // Index among the connections between the two.
  std::uint64_t job = 0;
  Nonce nonce{};
};
std::array<std::byte, kHelloBytes> encode(const Hello& hello,
                                          const Protocol& protocol = kMeshProtocol);
/// Empty: not one of ours. In another version, only `version` has a meaning. Ranks and index are
/// not negative.
std::optional<Hello> parse_hello(std::span<const std::byte, kHelloBytes> bytes,
                                 const Protocol& protocol = kMeshProtocol);

/// It has more than 20 functions: both ends' steps stand side by side, so that they can be
/// compared.
class Handshake {
 public:
  /// The end that connects, as `hello` says (its job and nonce are filled in).
  static Result<Handshake> connector(const Secret& secret, Hello hello,
                                     const Protocol& protocol = kMeshProtocol);
  /// The end that accepts, at rank `me`. `from` may be any rank; the caller has to check `hello()`
  /// when it is proven.
  static Result<Handshake> acceptor(const Secret& secret, int me,
                                    const Protocol& protocol = kMeshProtocol);

  /// How many bytes the next message from the other side has, less what has come of it. 0: nothing
  /// is expected. Never read more than this: what comes behind the handshake is not for it.
  std::size_t wanted() const { return incoming_ - received_; }
  /// Takes at most `wanted()` bytes. kMismatch: the other side has another version; kPeerFailed: it
  /// is an unauthenticated peer. After an error the connection is to be dropped.
  Status take(std::span<const std::byte> bytes);
  /// The bytes to send now; `sent` removes them.
  std::span<const std::byte> to_send() const {
    return std::span(outgoing_).first(outgoing_bytes_).subspan(sent_);
  }
  void sent(std::size_t bytes);

  /// Acceptor only: the other side has said a valid hello, for this job.
  bool greeted() const { return state_ != State::kWantsHello; }
  /// Acceptor only: the other side has proved itself and waits for `welcome`.
  bool proven() const { return state_ == State::kProven; }
  void welcome();
  /// Connector: welcomed. Acceptor: welcome said, though perhaps not yet sent. Both sides know each
  /// other.
  bool done() const { return state_ == State::kDone; }
  /// Connector only: the acceptor has proved itself, and our proof is on its way. From now on the
  /// acceptor may count on this connection.
  bool committed() const { return state_ == State::kWantsWelcome || state_ == State::kDone; }
  const Hello& hello() const { return hello_; }
  /// A key that only the two ends know, and that no other connection has. The handshake must be
  /// done. Each `word` gives another key; the handshake's own words must not be used.
  Secret session_key(std::string_view word) const;

 private:
  enum class State { kWantsHello, kWantsAnswer, kWantsProof, kProven, kWantsWelcome, kDone };
  using Hash = std::array<std::byte, kHashBytes>;

  Handshake(const Secret& secret, int me, State state, const Protocol& protocol)
      : protocol_(protocol), secret_(secret), me_(me), state_(state) {}
  Hash hash(std::string_view word) const;
  bool is_hash(std::string_view word, std::span<const std::byte> bytes) const;
  void expect(State state, std::size_t bytes);
  void say(std::span<const std::byte> bytes);
  Status take_message(std::span<const std::byte> message);
  Status take_hello(std::span<const std::byte> message);
  Status take_answer(std::span<const std::byte> message);

  Error other_version(std::uint32_t theirs) const;

  Protocol protocol_;
  Secret secret_;
  int me_ = 0;
  State state_;
  Hello hello_;
  Nonce answer_nonce_{};
  std::array<std::byte, kAnswerBytes> buffer_{};    // The message that is coming in.
  std::array<std::byte, kAnswerBytes> outgoing_{};  // The longest that there is.
  std::size_t incoming_ = 0, received_ = 0, outgoing_bytes_ = 0, sent_ = 0;
};

}  // namespace tutti::tcp
