#include "bootstrap/wire.h"

#include <algorithm>
#include <string>

#include "base/bytes.h"

namespace tutti::bootstrap::wire {
namespace {

template <class Unsigned>
void append_number(Bytes& to, Unsigned value) {
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i)
    to.push_back(static_cast<std::byte>((value >> (8 * i)) & 0xff));
}

void append_text(Bytes& to, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void append_error(Bytes& to, const Error& error) {
  append_number(to, static_cast<std::uint32_t>(error.code));
  append_number(to, static_cast<std::uint32_t>(error.rank.value));
  append_number(to, static_cast<std::uint32_t>(error.peer.value));
  append_text(to, std::string_view(error.what).substr(0, kMostErrorBytes));
}

Error take_error(ByteReader& cursor) {
  Error error;
  const auto code = cursor.number<std::uint32_t>();
  const bool known = code >= static_cast<std::uint32_t>(Code::kInvalidArgument) &&
                     code <= static_cast<std::uint32_t>(kLastCode);
  error.code = known ? static_cast<Code>(code) : Code::kInternal;
  error.rank.value = static_cast<std::int32_t>(cursor.number<std::uint32_t>());
  error.peer.value = static_cast<std::int32_t>(cursor.number<std::uint32_t>());
  error.what = as_text(cursor.take_rest()).substr(0, kMostErrorBytes);
  // It will be printed as one line, whichever peer sent it.
  std::ranges::replace_if(
      error.what, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return error;
}

Error malformed(const std::string& what) { return {Code::kInvalidArgument, what}; }

}  // namespace

Bytes encode(const Message& message) {
  Bytes bytes(kLengthBytes);
  append_number(bytes, static_cast<std::uint8_t>(message.kind));
  std::size_t separate = 0;  // Bytes of the body that are not in this buffer.
  switch (message.kind) {
    case Kind::kGet: append_number(bytes, message.wait_ms); [[fallthrough]];
    case Kind::kPut:
      append_number(bytes, static_cast<std::uint16_t>(message.key.size()));
      append_text(bytes, message.key);
      bytes.insert(bytes.end(), message.value.begin(), message.value.end());
      break;
    case Kind::kFail:
    case Kind::kFailed: append_error(bytes, message.error); break;
    case Kind::kValue: separate = message.value.size(); break;
    case Kind::kEnter:
      append_number(bytes, static_cast<std::uint32_t>(message.rank.value));
      [[fallthrough]];
    case Kind::kRefused: append_text(bytes, message.text.substr(0, kMostErrorBytes)); break;
    case Kind::kLeave:
    case Kind::kDone:
    case Kind::kAbsent: break;
  }
  const std::size_t length = bytes.size() - kLengthBytes + separate;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    bytes[i] = static_cast<std::byte>((length >> (8 * i)) & 0xff);
  return bytes;
}

Result<Message> parse(std::span<const std::byte> frame) {
  ByteReader cursor(frame);
  Message message;
  message.kind = static_cast<Kind>(cursor.number<std::uint8_t>());
  switch (message.kind) {
    case Kind::kGet: message.wait_ms = cursor.number<std::uint32_t>(); [[fallthrough]];
    case Kind::kPut:
      message.key = as_text(cursor.take(cursor.number<std::uint16_t>()));
      if (message.kind == Kind::kPut) message.value = cursor.take_rest();
      if (auto fits = check_sizes(message.key, message.value.size()); !fits) return fits.error();
      break;
    case Kind::kFail:
    case Kind::kFailed: message.error = take_error(cursor); break;
    case Kind::kValue: message.value = cursor.take_rest(); break;
    case Kind::kEnter:
      message.rank.value = static_cast<std::int32_t>(cursor.number<std::uint32_t>());
      [[fallthrough]];
    case Kind::kRefused: message.text = as_text(cursor.take_rest()); break;
    case Kind::kLeave:
    case Kind::kDone:
    case Kind::kAbsent: break;
    default: return malformed("a message of unknown kind");
  }
  if (!cursor.whole()) return malformed("a message that is too short or too long for its kind");
  return message;
}

void FrameReader::append(std::span<const std::byte> bytes) {
  // Frames handed out earlier are done with: close the gap before it grows.
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(read_));
  read_ = 0;
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

Result<std::optional<std::span<const std::byte>>> FrameReader::next() {
  const auto rest = std::span<const std::byte>(buffer_).subspan(read_);
  if (rest.size() < kLengthBytes) return std::optional<std::span<const std::byte>>{};
  const auto length = ByteReader(rest).number<std::uint32_t>();
  if (length == 0 || length > most_) {
    return malformed("a message of " + std::to_string(length) + " bytes; at most " +
                     std::to_string(most_) + " are allowed");
  }
  if (rest.size() < kLengthBytes + length) return std::optional<std::span<const std::byte>>{};
  read_ += kLengthBytes + length;
  return std::optional(rest.subspan(kLengthBytes, length));
}

}  // namespace tutti::bootstrap::wire
