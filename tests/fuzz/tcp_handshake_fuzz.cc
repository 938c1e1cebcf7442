// Everything that a stranger can send to a rank over TCP, in any pieces: hello, answer, proof and
// welcome, the endpoint info, the header of a frame.
//
// The first byte sets the size of the pieces of the rest, the second which end reads them. Checked:
// no stranger without the secret passes the handshake, parsing does not depend on the pieces, and
// bytes that parse are the same after they are encoded again.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "base/net/handshake.h"
#include "transport/net/frame.h"
#include "transport/tcp/endpoint_info.h"

namespace {

using namespace tutti;
using namespace tutti::tcp;

void require(bool condition) {
  if (!condition) std::abort();
}

/// Feeds the bytes to one end. It answers as if all it says arrived.
void attack(Handshake end, std::span<const std::byte> bytes, std::size_t piece) {
  while (!bytes.empty() && end.wanted() != 0) {
    end.sent(end.to_send().size());
    const auto part = bytes.first(std::min({piece, bytes.size(), end.wanted()}));
    bytes = bytes.subspan(part.size());
    if (!end.take(part)) return;
  }
  require(!end.done() && !end.proven() && !end.committed());
}

void check_parsers(std::span<const std::byte> bytes) {
  if (bytes.size() >= kHelloBytes) {
    const auto first = bytes.first<kHelloBytes>();
    const auto hello = parse_hello(first);
    if (hello) require(std::ranges::equal(encode(*hello), first));
  }
  if (bytes.size() >= net::kHeaderBytes) {
    const auto first = bytes.first<net::kHeaderBytes>();
    const auto header = net::parse_header(first);
    if (header) {
      require(header->bytes <= net::kMostFrameBytes);
      require(std::ranges::equal(encode(*header), first));
    }
  }
  if (const auto info = parse_endpoint_info(bytes)) {
    require(info->addresses.size() <= kMostAddresses);
    const auto again = encode(*info);
    require(std::ranges::equal(again, bytes));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  static const Secret secret = *random_bytes();
  const std::size_t piece = std::size_t{1} + data[0];
  const auto bytes = std::as_bytes(std::span(data + 2, size - 2));
  if (data[1] % 2 == 0)
    attack(*Handshake::acceptor(secret, 3), bytes, piece);
  else
    attack(*Handshake::connector(secret, {.from = 7, .to = 3}), bytes, piece);
  check_parsers(bytes);
  return 0;
}
