#include "transport/verbs/endpoint_info.h"

#include <algorithm>
#include <limits>

#include "base/bytes.h"

namespace tutti::verbs {
namespace {

constexpr std::uint8_t kError = 0, kEndpointInfo = 1;
constexpr std::size_t kMostEndpointInfoBytes =
    1 + 3 * (1 + kMostEndpointText) + 16 + 2 + 1 + 1 + std::size_t{4} * 20;
static_assert(kMostEndpointText <= std::numeric_limits<std::uint8_t>::max());

void write_text(ByteWriter& writer, const std::string& text) {
  const auto length = std::min(text.size(), kMostEndpointText);
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

Bytes encode(const EndpointInfo& info) {
  Bytes bytes(kMostEndpointInfoBytes);
  ByteWriter writer(bytes);
  writer.number(kEndpointInfo);
  write_text(writer, info.host);
  write_text(writer, info.device);
  write_text(writer, info.address);
  writer.copy(std::as_bytes(std::span(info.gid)));
  writer.number(info.lid);
  writer.number(static_cast<std::uint8_t>(info.layer));
  writer.number(info.mtu);
  write_memory(writer, info.near);
  write_memory(writer, info.replica);
  write_memory(writer, info.records);
  write_memory(writer, info.gpudirect);
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

Result<EndpointInfo> parse_endpoint_info(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto kind = reader.number<std::uint8_t>();
  if (bytes.size() > 2 && bytes.size() <= 2 + kMostErrorText && kind == kError) {
    const auto code = reader.number<std::uint8_t>();
    const bool known = code > 0 && code <= static_cast<std::uint8_t>(Code::kInternal);
    return Error{known ? static_cast<Code>(code) : Code::kMismatch, to_text(reader.take_rest())};
  }
  EndpointInfo info;
  info.host = read_text(reader);
  info.device = read_text(reader);
  info.address = read_text(reader);
  const auto gid = reader.take(info.gid.size());
  std::ranges::copy(gid, reinterpret_cast<std::byte*>(info.gid.data()));
  info.lid = reader.number<std::uint16_t>();
  const auto layer = reader.number<std::uint8_t>();
  info.mtu = reader.number<std::uint8_t>();
  info.near = read_memory(reader);
  info.replica = read_memory(reader);
  info.records = read_memory(reader);
  info.gpudirect = read_memory(reader);
  const bool sound = kind == kEndpointInfo && reader.whole() &&
                     (layer == kInfiniBand || layer == kRoce) && info.mtu >= IBV_MTU_256 &&
                     info.mtu <= IBV_MTU_4096;
  if (!sound) return Error{Code::kMismatch, "verbs: it speaks another version"};
  info.layer = static_cast<LinkLayer>(layer);
  return info;
}

}  // namespace tutti::verbs
