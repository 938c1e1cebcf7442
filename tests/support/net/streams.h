// File: support/net/streams.h: connections over loopback, and loads of frames that have to arrive
// over them in order and in place.
#pragma once
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/net/socket_address.h"
#include "support/catch.h"
#include "transport/net/rails.h"
#include "transport/tcp/stream.h"

namespace tutti::tcp {

/// Both ends of some connections between ranks 0 and 1, over loopback.
struct Pair {
  std::vector<Connection> ends[2];
};

inline Pair connect(int connections, int buffer_bytes = 0) {
  Pair pair;
  for (int index = 0; index < connections; ++index) {
    const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    SocketAddress address = ipv4_address({htonl(INADDR_LOOPBACK)}, 0);
    REQUIRE(::bind(listener.get(), address.get(), address.length) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    address = own_end(listener.get());
    Fd there(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (buffer_bytes != 0) {
      for (const int socket : {listener.get(), there.get()}) {
        setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(buffer_bytes));
        setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof(buffer_bytes));
      }
    }
    set_options(there.get(), std::chrono::seconds(5), std::chrono::seconds(5));
    REQUIRE(::connect(there.get(), address.get(), address.length) == 0);
    Fd here(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    for (int rank = 0; rank < 2; ++rank) {
      Fd& socket = rank == 0 ? here : there;
      REQUIRE(fcntl(socket.get(), F_SETFL, O_NONBLOCK) == 0);
      Connection& one = pair.ends[rank].emplace_back();
      one.peer = 1 - rank;
      one.index = index;
      one.where = rank == 0 ? "rank 1 (host1) over lo" : "rank 0 (host0) over lo";
      one.silence_ms = 5000;
      one.socket = std::move(socket);
    }
  }
  return pair;
}

/// Memory into which frames are placed by their position; remembers what arrived. Short frames of
/// odd kinds share one place, which is free again once its frame has arrived.
class Memory : public FrameSink {
 public:
  explicit Memory(std::size_t bytes) : memory(bytes) {}
  Result<std::optional<std::byte*>> place(const FrameHeader& header) override {
    ++asked;
    if (closed) return std::optional<std::byte*>{};
    if (header.position + header.bytes > memory.size())
      return Error{Code::kMismatch, "a frame outside of the memory"};
    if (!takes_turns(header)) return std::optional(memory.data() + header.position);
    if (sharer && *sharer != header.position) return std::optional<std::byte*>{};
    sharer = header.position;
    return std::optional(shared.data());
  }
  Status arrived(const FrameHeader& header) override {
    headers.push_back(header);
    if (takes_turns(header)) {
      std::copy_n(shared.data(), header.bytes, memory.data() + header.position);
      sharer.reset();
    }
    return ok();
  }
  bool takes_turns(const FrameHeader& header) const override {
    return header.kind % 2 == 1 && header.bytes != 0 && header.bytes <= shared.size();
  }
  std::vector<std::byte> memory;
  std::vector<FrameHeader> headers;
  std::array<std::byte, net::Rails::kKeptBytes> shared{};
  std::optional<std::uint64_t> sharer;  // The position of the frame that has it.
  bool closed = false;                  // There is no room for now.
  int asked = 0;
};

/// A list of payloads, one behind the other in one memory.
struct Load {
  std::vector<std::byte> memory;
  std::vector<std::size_t> sizes;
};

inline Load random_load(std::uint32_t seed, int frames, std::size_t most) {
  std::mt19937 random(seed);
  constexpr std::array<std::size_t, 13> kEdges{0,
                                               1,
                                               8,
                                               Stream::kCopiedBytes - 1,
                                               Stream::kCopiedBytes,
                                               Stream::kCopiedBytes + 1,
                                               4071,
                                               4072,
                                               4073,
                                               Stream::kStagingBytes,
                                               4099,
                                               65'536,
                                               65'537};
  Load load;
  for (int i = 0; i < frames; ++i) {
    const std::size_t size = random() % 3 == 0 ? random() % most : kEdges[random() % kEdges.size()];
    load.sizes.push_back(size);
  }
  load.memory.resize(std::accumulate(load.sizes.begin(), load.sizes.end(), std::size_t{1}));
  for (std::byte& byte : load.memory) byte = static_cast<std::byte>(random());
  return load;
}

/// Queues frames of a load as long as there is room. Payloads come in two pieces, from memory that
/// is spoilt as soon as the carrier holds it no longer.
struct Sender {
  const Load& load;
  std::size_t next = 0, position = 0;
  std::vector<std::byte> live = load.memory;
  std::size_t spoilt = 0, spoilt_bytes = 0;  // Frames, and where they end.
  void fill(net::Carrier& carrier) {
    for (; next < load.sizes.size() && carrier.held() < net::Carrier::kMostQueued; ++next) {
      const std::size_t size = load.sizes[next];
      const auto payload = std::span(std::as_const(live)).subspan(position, size);
      const std::array<Piece, 2> pieces{payload.first(size / 3), payload.subspan(size / 3)};
      carrier.send({.bytes = static_cast<std::uint32_t>(size),
                    .kind = static_cast<std::uint16_t>(1 + next % 100),
                    .channel = static_cast<std::uint32_t>(next),
                    .position = position},
                   pieces);
      position += size;
    }
    for (; spoilt + carrier.held() < next; spoilt_bytes += load.sizes[spoilt++])
      std::ranges::fill(std::span(live).subspan(spoilt_bytes, load.sizes[spoilt]), std::byte{0xee});
  }
  bool done() const { return next == load.sizes.size(); }
};

/// The error in the frames that arrived; empty: none.
inline std::string check(const Load& sent, const Memory& got) {
  if (got.headers.size() != sent.sizes.size()) return "frames are missing";
  std::size_t position = 0;
  for (std::size_t i = 0; i < sent.sizes.size(); ++i) {
    const FrameHeader& header = got.headers[i];
    if (header.channel != i) return "frame " + std::to_string(i) + " arrived out of order";
    if (header.bytes != sent.sizes[i] || header.position != position || header.kind != 1 + i % 100)
      return "the header of frame " + std::to_string(i) + " has changed";
    position += sent.sizes[i];
  }
  const auto end = sent.memory.begin() + static_cast<std::ptrdiff_t>(position);
  if (!std::equal(sent.memory.begin(), end, got.memory.begin())) return "payloads differ";
  return "";
}

/// Both sides send all of their load, and take turns in which they move. `meanwhile` is called in
/// each of them.
inline std::string exchange(net::Carrier& a, net::Carrier& b, const Load& from_a,
                            const Load& from_b, const std::function<void()>& meanwhile = {}) {
  Memory at_a(from_b.memory.size()), at_b(from_a.memory.size());
  Sender sender_a{from_a}, sender_b{from_b};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(200);
  while (!sender_a.done() || !sender_b.done() || a.pending() != 0 || b.pending() != 0 ||
         at_a.headers.size() != from_b.sizes.size() || at_b.headers.size() != from_a.sizes.size()) {
    sender_a.fill(a);
    sender_b.fill(b);
    const auto moved_a = a.progress(at_a);
    if (!moved_a) return moved_a.error().what;
    const auto moved_b = b.progress(at_b);
    if (!moved_b) return moved_b.error().what;
    if (meanwhile) meanwhile();
    if (std::chrono::steady_clock::now() > end) return "it does not come to an end";
  }
  const std::string wrong = check(from_a, at_b);
  return wrong.empty() ? check(from_b, at_a) : wrong;
}

/// One end as carriers. `seen`, if given, gets the streams among them.
inline std::unique_ptr<net::Rails> rails_of(std::vector<Connection> end, std::size_t spread_bytes,
                                            std::vector<Stream*>* seen = nullptr,
                                            std::unique_ptr<net::Renewal> renewal = nullptr) {
  std::vector<std::unique_ptr<net::Carrier>> carriers;
  for (Connection& one : end) {
    auto stream = std::make_unique<Stream>(std::move(one));
    if (seen != nullptr) seen->push_back(stream.get());
    carriers.push_back(std::move(stream));
  }
  return std::make_unique<net::Rails>(std::move(carriers), spread_bytes, 0, std::move(renewal));
}

/// With what lies in the kernel, in both directions.
inline void reset(Stream& end) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(end.descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  end.abandon();
}

/// The first error of progress().
inline std::string first_error(net::Carrier& carrier, FrameSink& sink) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
  while (std::chrono::steady_clock::now() < end) {
    auto moved = carrier.progress(sink);
    if (!moved) return moved.error().what;
  }
  return "no error";
}

}  // namespace tutti::tcp
