#include "bootstrap/secure_link.h"

#include <sodium.h>

#include <algorithm>
#include <array>

#include "base/bytes.h"

namespace tutti::bootstrap {
namespace {

constexpr std::size_t kLengthBytes = 4;

static_assert(std::tuple_size_v<Secret> == crypto_aead_chacha20poly1305_ietf_KEYBYTES);
static_assert(kTagBytes == crypto_aead_chacha20poly1305_ietf_ABYTES);

using RecordNonce = std::array<std::byte, crypto_aead_chacha20poly1305_ietf_NPUBBYTES>;

const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

/// No key seals two records of one number: a connection would take centuries to come round.
RecordNonce nonce_of(std::uint64_t number) {
  RecordNonce nonce{};
  ByteWriter(nonce).number(number);
  return nonce;
}

Error unauthenticated(const std::string& what) { return {Code::kPeerFailed, what}; }

}  // namespace

Secret key_of(std::string_view secret, std::string_view job) {
  return tcp::derive_secret("store of a job", secret, job);
}

void Sealer::seal(std::span<const std::byte> bytes, Bytes& into) {
  TUTTI_CHECK(!bytes.empty() && bytes.size() <= kMostRecordBytes);
  std::array<std::byte, kLengthBytes> length{};
  ByteWriter(length).number(static_cast<std::uint32_t>(bytes.size()));
  const std::size_t at = into.size();
  into.resize(at + kLengthBytes + bytes.size() + kTagBytes);
  std::ranges::copy(length, into.begin() + static_cast<std::ptrdiff_t>(at));
  const RecordNonce nonce = nonce_of(number_++);
  crypto_aead_chacha20poly1305_ietf_encrypt(
      raw(into.data() + at + kLengthBytes), nullptr, raw(bytes.data()), bytes.size(),
      raw(length.data()), length.size(), nullptr, raw(nonce.data()), raw(key_.data()));
}

Status Opener::open_all(Bytes& into) {
  std::span<const std::byte> rest(buffer_);
  while (rest.size() >= kLengthBytes) {
    const std::size_t length = ByteReader(rest).number<std::uint32_t>();
    if (length == 0 || length > kMostRecordBytes)
      return unauthenticated("rendezvous: a record of " + std::to_string(length) + " bytes came");
    if (rest.size() < kLengthBytes + length + kTagBytes) break;
    const std::size_t at = into.size();
    into.resize(at + length);
    const RecordNonce nonce = nonce_of(number_++);
    if (crypto_aead_chacha20poly1305_ietf_decrypt(
            raw(into.data() + at), nullptr, nullptr, raw(rest.data() + kLengthBytes),
            length + kTagBytes, raw(rest.data()), kLengthBytes, raw(nonce.data()),
            raw(key_.data())) != 0) {
      into.resize(at);
      return unauthenticated("rendezvous: somebody has changed, repeated or added what came");
    }
    rest = rest.subspan(kLengthBytes + length + kTagBytes);
  }
  buffer_.erase(buffer_.begin(), buffer_.end() - static_cast<std::ptrdiff_t>(rest.size()));
  return ok();
}

Result<SecureLink> SecureLink::connect(Fd socket, const Secret& secret, int client,
                                       Deadline deadline) {
  TUTTI_TRY(auto handshake,
            tcp::Handshake::connector(secret, {.from = client, .to = kStoreEnd}, kStoreProtocol));
  bool heard = false;
  while (!handshake.done()) {
    const auto bytes = handshake.to_send();
    const Status sent = send_all(socket.get(), bytes, deadline);
    handshake.sent(bytes.size());
    std::array<std::byte, tcp::kAnswerBytes> buffer{};
    const auto into = std::span(buffer).first(std::min(buffer.size(), handshake.wanted()));
    const auto got = sent ? receive_some(socket.get(), into, deadline)
                          : Result<std::size_t>(std::move(sent.error()));
    if (!got && got.error().code == Code::kTimeout)
      return unauthenticated("the other end says nothing, so it is no Tutti store");
    if (!got) {
      return unauthenticated(
          heard ? "the store closed the connection during the handshake"
                : "the other end closed the connection before it said anything: a "
                  "store of another job (TUTTI_JOB and TUTTI_SECRET have to be alike on "
                  "all ranks), or one with too many unauthenticated peers");
    }
    heard = true;
    TUTTI_RETURN_IF_ERROR(handshake.take(into.first(*got)));
  }
  return SecureLink(std::move(socket), SessionKeys::of(handshake));
}

Status SecureLink::send(std::span<const std::byte> bytes, Deadline deadline) {
  Bytes sealed;
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kMostRecordBytes));
    bytes = bytes.subspan(part.size());
    sealed.clear();
    sealer_.seal(part, sealed);
    TUTTI_RETURN_IF_ERROR(send_all(socket_->fd.get(), sealed, deadline));
  }
  return ok();
}

Status SecureLink::receive(Bytes& into, Deadline deadline) {
  std::array<std::byte, kMostRecordBytes> buffer;
  for (const std::size_t before = into.size(); into.size() == before;) {
    TUTTI_TRY(const std::size_t got, receive_some(socket_->fd.get(), buffer, deadline));
    opener_.append(std::span(buffer).first(got));
    TUTTI_RETURN_IF_ERROR(opener_.open_all(into));
  }
  return ok();
}

}  // namespace tutti::bootstrap
