// Any bytes on a TCP connection after its handshake (tcp/stream.h), in any pieces, with a sink that
// at times has no place.
//
// The first byte sets the size of the pieces, the second how often there is no place. Checked: the
// frames and the error are the same whatever the pieces; no payload is written outside of its
// place; and the place that was named for a frame may move in the middle of it.
#include <fcntl.h>
#include <sys/socket.h>

#include "fuzz/frames.h"
#include "transport/tcp/stream.h"

namespace {

using namespace tutti;
using namespace tutti::fuzz;

/// Notes what arrived.
class Sink final : public net::FrameSink {
 public:
  explicit Sink(std::size_t refuse_one_in) : refuse_one_in_(refuse_one_in) {}
  Result<std::optional<std::byte*>> place(const net::FrameHeader& header) override {
    if (refuse_one_in_ != 0 && ++asked_ % refuse_one_in_ == 0) return std::optional<std::byte*>{};
    if (header.bytes > kMost) return Error{Code::kPeerFailed, "too long", Rank{}, Rank{1}};
    payload.assign(header.bytes, std::byte{});  // A sanitizer knows where it ends.
    return std::optional(payload.data());
  }
  Status arrived(const net::FrameHeader& header) override {
    append(seen, 0, header, payload);
    return ok();
  }
  std::vector<std::byte> payload;
  std::string seen;

 private:
  static constexpr std::size_t kMost = 20'000;
  std::size_t refuse_one_in_, asked_ = 0;
};

/// What comes out: all frames, then the error that ended them.
std::string frames_of(std::span<const std::byte> bytes, std::size_t piece, std::size_t refuse) {
  int ends[2] = {};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return "";
  tcp::Connection connection;
  connection.peer = 1;
  connection.where = "fuzz";
  connection.socket = Fd(ends[0]);
  Fd attacker(ends[1]);
  tcp::Stream stream(std::move(connection));
  Sink sink(refuse);
  for (int idle = 0; idle < 8;) {
    const auto part = bytes.first(std::min(piece, bytes.size()));
    if (!part.empty()) {
      const ssize_t sent = ::send(attacker.get(), part.data(), part.size(), MSG_NOSIGNAL);
      if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else {
      attacker.reset();
    }
    const auto moved = stream.progress(sink);
    if (!moved) {
      require(moved.error().what.find('\n') == std::string::npos, "an error of several lines");
      return sink.seen + moved.error().what;
    }
    if (!*moved) ++idle;  // Waits for what does not come.
    if (!sink.payload.empty()) {
      std::vector<std::byte> elsewhere(sink.payload.size());
      stream.moved(sink.payload, elsewhere.data());
      sink.payload.swap(elsewhere);
    }
  }
  return sink.seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto bytes = std::as_bytes(std::span(data + 2, size - 2));
  const std::size_t piece = std::size_t{1} + 16 * std::size_t{data[0]};
  const std::string whole = frames_of(bytes, 1 << 20, 0);
  require(frames_of(bytes, piece, 2 + data[1] % 8) == whole, "pieces change what comes out");
  return 0;
}
