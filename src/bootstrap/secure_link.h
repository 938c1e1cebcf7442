// File: bootstrap/secure_link.h: what a store and its clients say to each other, sealed.
//
// Both ends have proved that they know the job's secret (base/handshake.h). From then on each end
// sends records, each sealed with a key of this connection and this direction and with the number
// of the record (ChaCha20-Poly1305, RFC 8439): nobody else can read, change, repeat, reorder or add
// one.
//
//   record   length u32 · so many bytes, encrypted · tag (16); the length is authenticated, too
//
// Not thread-safe.
#pragma once
#include <optional>

#include "base/handshake.h"
#include "bootstrap/sockets.h"

namespace tutti::bootstrap {

using tcp::Secret;

/// Version 2: versions below showed a secret instead of proving it.
inline constexpr tcp::Protocol kStoreProtocol{"tutti-st", 2};
/// The end that serves, as a handshake names it; clients have another number.
inline constexpr int kStoreEnd = 0;
/// Of a client that does not say which rank it is.
inline constexpr int kAnyClient = 1 << 30;

inline constexpr std::size_t kMostRecordBytes = std::size_t{16} << 10;
inline constexpr std::size_t kTagBytes = 16;

/// The key of the handshake for the job of this name, among those who know `secret`. Without a
/// secret whoever knows the name can derive it.
Secret key_of(std::string_view secret, std::string_view job);

/// Keys of one connection, by direction.
struct SessionKeys {
  Secret to_store{}, to_client{};
  static SessionKeys of(const tcp::Handshake& handshake);
};

class Sealer {
 public:
  explicit Sealer(const Secret& key) : key_(key) {}
  /// Appends the record of at most kMostRecordBytes bytes.
  void seal(std::span<const std::byte> bytes, Bytes& into);

 private:
  Secret key_;
  std::uint64_t number_ = 0;  // Of the next record.
};

class Opener {
 public:
  explicit Opener(const Secret& key) : key_(key) {}
  void append(std::span<const std::byte> bytes);
  /// Appends what the records that are whole hold. kPeerFailed: somebody has changed them.
  Status open_all(Bytes& into);

 private:
  Secret key_;
  std::uint64_t number_ = 0;
  Bytes buffer_;  // At most one record and what one append brought.
};

/// A client's end of a connection.
class SecureLink {
 public:
  /// Proves that this end knows the secret, and has the store prove it. kPeerFailed says what is
  /// there instead; kMismatch: a store of another version.
  static Result<SecureLink> connect(Fd socket, const Secret& secret, int client, Deadline deadline);

  Status send(std::span<const std::byte> bytes, Deadline deadline);
  /// At least one byte, appended.
  Status receive(Bytes& into, Deadline deadline);
  int descriptor() const { return socket_.get(); }

 private:
  SecureLink(Fd socket, const SessionKeys& keys)
      : socket_(std::move(socket)), sealer_(keys.to_store), opener_(keys.to_client) {}

  Fd socket_;
  Sealer sealer_;
  Opener opener_;
};

}  // namespace tutti::bootstrap
