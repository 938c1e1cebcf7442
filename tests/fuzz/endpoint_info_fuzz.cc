// What ranks tell each other through the rendezvous, and the head of a UCX message: endpoint info
// of tcp, verbs and ucx.
//
// The first byte chooses a parser. Checked: texts are printable and bounded, numbers are ones that
// their users take, and what parses is the same after another round of encoding and parsing.
#include "fuzz/frames.h"
#include "transport/tcp/endpoint_info.h"
#include "transport/verbs/endpoint_info.h"
#if __has_include("ucp/api/ucp.h")
#include "transport/ucx/meeting.h"
#include "transport/ucx/message.h"
#endif

namespace {

using namespace tutti;
using tutti::fuzz::require;

bool is_printable(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

void check_tcp(std::span<const std::byte> bytes) {
  const auto info = tcp::parse_endpoint_info(bytes);
  if (!info) return;
  require(is_printable(info->host) && info->host.size() <= tcp::kMostHostBytes, "a host's name");
  require(std::ranges::equal(tcp::encode(*info), bytes), "tcp: another encoding");
  std::vector<tcp::InterfaceAddress> mine = info->addresses;
  if (!mine.empty()) mine.pop_back();
  const auto candidates = tcp::candidates(mine, *info);
  require(candidates.empty() || tcp::rails(candidates) <= candidates.size(), "too many rails");
}

void check_verbs(std::span<const std::byte> bytes) {
  const auto info = verbs::parse_endpoint_info(bytes);
  if (!info) {
    require(is_printable(info.error().what), "an error of several lines");
    require(info.error().code != Code::kOk, "an error that is none");
    return;
  }
  require(is_printable(info->host + info->device + info->address), "a text");
  const auto again = verbs::parse_endpoint_info(verbs::encode(*info));
  require(again && verbs::encode(*again) == verbs::encode(*info), "verbs: another encoding");
}

#if __has_include("ucp/api/ucp.h")
void check_ucx(std::span<const std::byte> bytes) {
  const auto info = ucx::parse_endpoint_info(bytes);
  if (!info) return;
  require(is_printable(info->host) && info->host.size() <= ucx::kMostHostBytes, "a host's name");
  require(!info->address.empty() && info->address.size() <= ucx::kMostAddressBytes, "an address");
  const auto again = ucx::parse_endpoint_info(ucx::encode(*info));
  require(again && ucx::encode(*again) == ucx::encode(*info), "ucx: another encoding");
}

void check_message(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(ucx::Key) + 4) return;
  ucx::Key key{};
  std::ranges::copy(bytes.first(key.size()), key.begin());
  // Among four ranks; with the count of bytes in the message, or with a wrong one.
  for (const std::size_t payload : {std::size_t{0}, std::size_t{64}}) {
    const auto message = ucx::parse_message(bytes, key, payload, 4);
    if (!message) continue;
    require(message->from >= 0 && message->from < 4 && message->header.bytes == payload,
            "a message of nobody");
    require(std::ranges::equal(ucx::encode(*message, key), bytes), "another message");
    key[0] ^= std::byte{1};
    require(!ucx::parse_message(bytes, key, payload, 4), "a stranger's message");
    key[0] ^= std::byte{1};
  }
}
#else
void check_ucx(std::span<const std::byte>) {}
void check_message(std::span<const std::byte>) {}
#endif

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  switch (data[0] % 4) {
    case 0: check_tcp(bytes); break;
    case 1: check_verbs(bytes); break;
    case 2: check_ucx(bytes); break;
    default: check_message(bytes); break;
  }
  return 0;
}
