#include "transport/verbs/card.h"

#include <algorithm>
#include <limits>

#include "base/bytes.h"

namespace tutti::verbs {
namespace {

constexpr std::uint8_t kError = 0, kCard = 1;
constexpr std::size_t kMostCardBytes =
    1 + 3 * (1 + kMostCardText) + 16 + 2 + 1 + 1 + std::size_t{4} * 20;
static_assert(kMostCardText <= std::numeric_limits<std::uint8_t>::max());

void write_text(ByteWriter& writer, const std::string& text) {
  const auto length = std::min(text.size(), kMostCardText);
  writer.number(static_cast<std::uint8_t>(length));
  writer.copy(std::as_bytes(std::span(text).first(length)));
}

/// A byte that is no printable ASCII becomes "?".
std::string to_text(std::span<const std::byte> bytes) {
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  return text;
}

std::string read_text(ByteReader& reader) {
  return to_text(reader.take(reader.number<std::uint8_t>()));
}

void write_memory(ByteWriter& writer, const RemoteMemory& memory) {
  writer.number(memory.address);
  writer.number(memory.bytes);
  writer.number(memory.key);
}

RemoteMemory read_memory(ByteReader& reader) {
  RemoteMemory memory;
  memory.address = reader.number<std::uint64_t>();
  memory.bytes = reader.number<std::uint64_t>();
  memory.key = reader.number<std::uint32_t>();
  return memory;
}

}  // namespace

Bytes encode(const Card& card) {
  Bytes bytes(kMostCardBytes);
  ByteWriter writer(bytes);
  writer.number(kCard);
  write_text(writer, card.host);
  write_text(writer, card.device);
  write_text(writer, card.address);
  writer.copy(std::as_bytes(std::span(card.gid)));
  writer.number(card.lid);
  writer.number(static_cast<std::uint8_t>(card.layer));
  writer.number(card.mtu);
  write_memory(writer, card.near);
  write_memory(writer, card.image);
  write_memory(writer, card.records);
  write_memory(writer, card.apart);
  bytes.resize(bytes.size() - writer.room());
  return bytes;
}

Bytes encode(const Error& error) {
  const auto length = std::min(error.what.size(), kMostErrorText);
  Bytes bytes(2 + length);
  ByteWriter writer(bytes);
  writer.number(kError);
  writer.number(static_cast<std::uint8_t>(error.code));
  writer.copy(std::as_bytes(std::span(error.what).first(length)));
  return bytes;
}

Result<Card> parse_card(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto kind = reader.number<std::uint8_t>();
  if (bytes.size() > 2 && bytes.size() <= 2 + kMostErrorText && kind == kError) {
    const auto code = reader.number<std::uint8_t>();
    const bool known = code > 0 && code <= static_cast<std::uint8_t>(Code::kInternal);
    return Error{known ? static_cast<Code>(code) : Code::kMismatch, to_text(reader.take_rest())};
  }
  Card card;
  card.host = read_text(reader);
  card.device = read_text(reader);
  card.address = read_text(reader);
  const auto gid = reader.take(card.gid.size());
  std::ranges::copy(gid, reinterpret_cast<std::byte*>(card.gid.data()));
  card.lid = reader.number<std::uint16_t>();
  const auto layer = reader.number<std::uint8_t>();
  card.mtu = reader.number<std::uint8_t>();
  card.near = read_memory(reader);
  card.image = read_memory(reader);
  card.records = read_memory(reader);
  card.apart = read_memory(reader);
  const bool sound = kind == kCard && reader.whole() && (layer == kInfiniBand || layer == kRoce) &&
                     card.mtu >= IBV_MTU_256 && card.mtu <= IBV_MTU_4096;
  if (!sound) return Error{Code::kMismatch, "verbs: it speaks another version"};
  card.layer = static_cast<LinkLayer>(layer);
  return card;
}

}  // namespace tutti::verbs
