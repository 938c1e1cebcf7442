// The frame parser and the sealed records of the TCP store against any bytes, in any pieces.
//
// The corpus has a frame of each kind (bootstrap/wire.h), frames with wrong lengths, and two sealed
// records (bootstrap/secure_link.h). Write a new seed when a kind is added or changes.
//
// The first byte says how the rest is cut into pieces. What is checked: the same frames come out
// whatever the pieces, a frame is never longer than allowed, and a message that parses says the
// same after another round of encoding and parsing.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "bootstrap/secure_link.h"
#include "bootstrap/wire.h"

namespace {

using namespace tutti;
using namespace tutti::bootstrap;

constexpr std::size_t kMost = 4096;  // Small, so that the bound is met.

void require(bool condition) {
  if (!condition) std::abort();
}

bool same(const wire::Message& a, const wire::Message& b) {
  return a.kind == b.kind && a.rank == b.rank && a.wait_ms == b.wait_ms && a.key == b.key &&
         std::equal(a.value.begin(), a.value.end(), b.value.begin(), b.value.end()) &&
         a.text == b.text && a.error.code == b.error.code && a.error.what == b.error.what &&
         a.error.rank == b.error.rank && a.error.peer == b.error.peer;
}

void check_round_trip(const wire::Message& message) {
  // A value travels beside its message, a refusal's text is cut.
  if (message.kind == wire::Kind::kValue || message.text.size() > kMostErrorBytes) return;
  const Bytes bytes = wire::encode(message);
  const auto again = wire::parse(std::span(bytes).subspan(wire::kLengthBytes));
  require(again && same(message, *again));
}

/// All frames of the stream, fed `piece` bytes at a time; the last one is empty after an error.
std::vector<Bytes> frames_of(std::span<const std::byte> stream, std::size_t piece) {
  wire::FrameReader reader(kMost);
  std::vector<Bytes> frames;
  while (!stream.empty()) {
    const auto part = stream.first(std::min(piece, stream.size()));
    stream = stream.subspan(part.size());
    reader.append(part);
    for (;;) {
      const auto frame = reader.next();
      if (!frame) {
        frames.emplace_back();
        return frames;
      }
      if (!frame->has_value()) break;
      require(!(**frame).empty() && (**frame).size() <= kMost);
      if (const auto message = wire::parse(**frame)) check_round_trip(*message);
      frames.emplace_back((**frame).begin(), (**frame).end());
    }
    require(reader.pending() <= kMost + wire::kLengthBytes + piece);
  }
  return frames;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t piece = std::size_t{1} + data[0];
  const auto stream = std::as_bytes(std::span(data + 1, size - 1));
  require(frames_of(stream, piece) == frames_of(stream, stream.size() + 1));
  // No record opens unless it was sealed with the key.
  Opener opener(Secret{});
  Bytes opened;
  bool strange = false;
  for (auto rest = stream; !rest.empty() && !strange;) {
    const auto part = rest.first(std::min(piece, rest.size()));
    rest = rest.subspan(part.size());
    opener.append(part);
    strange = !opener.open_all(opened);
  }
  require(opened.empty());
  return 0;
}
