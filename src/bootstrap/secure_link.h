// File: bootstrap/secure_link.h: the encrypted connection between a store and a client.
//
// Both ends first prove that they know the job's secret (base/net/handshake.h). Then each end sends
// records. A record is sealed with its number and with a key of this connection and direction
// (ChaCha20-Poly1305, RFC 8439), so that nobody else can read, change, repeat, reorder or add one.
//
//   record   length u32 · so many bytes, encrypted · tag (16); the length is authenticated, too
//
// Not thread-safe.
#pragma once
#include <memory>

#include "base/fork.h"
#include "base/net/handshake.h"
#include "bootstrap/sockets.h"

namespace tutti::bootstrap {

using tcp::Secret;

/// Version 2. Lower versions sent the secret instead of proving that they knew it.
inline constexpr tcp::Protocol kStoreProtocol{"tutti-st", 2};
/// The store's number in a handshake; clients have other numbers.
inline constexpr int kStoreEnd = 0;
/// The number of a client that does not say which rank it is.
inline constexpr int kAnyClient = 1 << 30;

inline constexpr std::size_t kMostRecordBytes = std::size_t{16} << 10;
inline constexpr std::size_t kTagBytes = 16;

/// The key of the handshake for the job of this name, derived from `secret`. If the secret is
/// empty, any process that knows the name can derive the key.
Secret key_of(std::string_view secret, std::string_view job);

/// Keys of one connection, by direction.
struct SessionKeys {
  Secret to_store{}, to_client{};
  static SessionKeys of(const tcp::Handshake& handshake) {
    return {handshake.session_key("to store"), handshake.session_key("to client")};
  }
};

class Sealer {
 public:
  explicit Sealer(const Secret& key) : key_(key) {}
  /// Appends the record of at most kMostRecordBytes bytes.
  void seal(std::span<const std::byte> bytes, Bytes& into);

 private:
  Secret key_;
  std::uint64_t number_ = 0;  // The next record's.
};

class Opener {
 public:
  explicit Opener(const Secret& key) : key_(key) {}
  void append(std::span<const std::byte> bytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
  /// Appends the contents of all whole records. kPeerFailed: somebody has changed one.
  Status open_all(Bytes& into);

 private:
  Secret key_;
  std::uint64_t number_ = 0;
  Bytes buffer_;  // At most one record and the bytes of one append.
};

/// A client's end of a connection.
class SecureLink {
 public:
  /// Proves to the store that this end knows the secret, and requires the same proof from it.
  /// kPeerFailed says what is there instead; kMismatch: a store of another version.
  static Result<SecureLink> connect(Fd socket, const Secret& secret, int client, Deadline deadline);

  Status send(std::span<const std::byte> bytes, Deadline deadline);
  /// Waits for at least one byte, and appends what has come.
  Status receive(Bytes& into, Deadline deadline);
  int descriptor() const { return socket_->fd.get(); }

 private:
  /// It does not move, and forked children have no copy of it.
  struct Socket {
    explicit Socket(Fd socket) : fd(std::move(socket)) {}
    Fd fd;
    ClosedInChild closed_in_child{fd};
  };
  SecureLink(Fd socket, const SessionKeys& keys)
      : socket_(std::make_unique<Socket>(std::move(socket))),
        sealer_(keys.to_store),
        opener_(keys.to_client) {}

  std::unique_ptr<Socket> socket_;
  Sealer sealer_;
  Opener opener_;
};

}  // namespace tutti::bootstrap
