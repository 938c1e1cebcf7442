#include "transport/net/mirror.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "base/check.h"

namespace tutti::net {
namespace {

enum Kind : std::uint16_t { kLines = 1, kPacket, kBlocks, kSlot, kCounter, kAbort };

/// A call record as it travels, a whole line: what follows it keeps its alignment.
struct alignas(kCacheLine) RecordImage {
  std::uint64_t number = 0, what = 0, count = 0;
  std::uint64_t lines = 0;
};
struct AbortImage {
  std::int32_t code = 0, rank = -1;
  std::array<char, 240> text{};
};

// Frames for one peer that may wait in its queues; below what a carrier takes.
constexpr std::size_t kMostPending = Carrier::kMostQueued - 16;
// No system call waits for a network and for a futex that ranks of this host would wake.
constexpr std::chrono::microseconds kNearNap{50};
// How long a rank that leaves waits for its last words to be acknowledged.
constexpr std::chrono::milliseconds kLastWords{1000};

}  // namespace

/// What is exchanged with one rank.
class Mirror::Peer final : public FrameSink {
 public:
  Peer(const Region& region, int me, int rank, Carrier& carrier);

  /// Queues what has changed; true if anything had.
  bool offer(const std::vector<Published>& published, std::uint64_t count);
  bool exchange();
  bool pending(std::uint64_t published_count) const;
  void say_abort(const Error& error);
  Carrier& carrier() const { return carrier_; }

  std::optional<Error> failure;

 private:
  struct Sent {
    const std::atomic<std::uint64_t>* value;
    std::uint64_t last = 0;
  };
  struct Outgoing {
    Ring ring;
    std::uint64_t next = 0;
  };
  struct Incoming {
    Ring ring;
    const Counter* tail;  // This rank's.
  };

  bool full() const { return carrier_.pending() >= kMostPending; }
  void offer_call(const Published& call);
  Result<std::optional<std::byte*>> place(const FrameHeader& header) override;
  std::byte* destination(const FrameHeader& header);
  Status arrived(const FrameHeader& header) override;
  Status take_lines(const FrameHeader& header);
  Status take_abort() const;
  Error nonsense(const FrameHeader& header) const;

  Region region_;
  int me_, rank_;
  Carrier& carrier_;
  // The same lists in the same order on both sides.
  std::vector<Sent> counters_;
  std::vector<std::atomic<std::uint64_t>*> counters_in_;
  std::vector<Outgoing> rings_;
  std::vector<Incoming> rings_in_;
  std::uint64_t calls_ = 0;  // Published calls that were queued.
  std::array<RecordImage, kCalls> records_{};
  // Where lines lie until they are complete.
  struct alignas(kCacheLine) Staged {
    RecordImage record;
    std::array<std::byte, kCallLines * sizeof(CallLine)> lines{};
  } staged_;
  AbortImage abort_out_, abort_in_;
  bool staging_ = false;
};

Mirror::Peer::Peer(const Region& region, int me, int rank, Carrier& carrier)
    : region_(region), me_(me), rank_(rank), carrier_(carrier) {
  const Ring to = region.messages(me, rank), from = region.messages(rank, me);
  const auto counter = [this](Counter& mine, Counter& theirs) {
    counters_.push_back({&mine.value});
    counters_in_.push_back(&theirs.value);
  };
  counter(region.finished(me), region.finished(rank));
  counter(*from.tails, *to.tails);
  rings_.push_back({to});
  rings_in_.push_back({from, from.tails});
  for (std::uint32_t i = 0; i < region.config().lanes; ++i) {
    const int lane = static_cast<int>(i);
    const Ring out = region.channel(me, rank, lane), in = region.channel(rank, me, lane);
    const Ring mine = region.multicast(me, lane), theirs = region.multicast(rank, lane);
    counter(*in.tails, *out.tails);
    counter(theirs.tails[me], mine.tails[rank]);
    counter(region.signal(me, rank, lane), region.signal(rank, me, lane));
    rings_.push_back({out});
    rings_.push_back({mine});
    rings_in_.push_back({in, in.tails});
    rings_in_.push_back({theirs, &theirs.tails[me]});
  }
}

void Mirror::Peer::offer_call(const Published& call) {
  const std::uint64_t number = call.call;
  if (call.packet_bytes != 0) {
    carrier_.send({.bytes = call.packet_bytes, .kind = kPacket, .position = number},
                  Piece(region_.packet(me_, number), call.packet_bytes));
  }
  if (call.blocks) {
    const std::size_t bytes = region_.config().rank_count * sizeof(BlockView);
    carrier_.send(
        {.bytes = static_cast<std::uint32_t>(bytes), .kind = kBlocks, .position = number},
        std::as_bytes(std::span(region_.blocks(me_, number), region_.config().rank_count)));
  }
  const CallRecord& record = region_.record(me_);
  RecordImage& image = records_[calls_ % kCalls];
  // relaxed: this thread wrote them.
  image = {record.number.load(std::memory_order_relaxed),
           record.what.load(std::memory_order_relaxed),
           record.count.load(std::memory_order_relaxed), call.lines};
  const std::size_t bytes = call.lines * sizeof(CallLine);
  const std::array pieces{
      std::as_bytes(std::span(&image, 1)),
      Piece(reinterpret_cast<const std::byte*>(region_.lines(me_, number)), bytes)};
  carrier_.send({.bytes = static_cast<std::uint32_t>(sizeof(image) + bytes),
                 .kind = kLines,
                 .position = number},
                pieces);
}

bool Mirror::Peer::offer(const std::vector<Published>& published, std::uint64_t count) {
  bool moved = false;
  for (; calls_ != count && !full(); ++calls_) {
    offer_call(published[calls_ % published.size()]);
    moved = true;
  }
  for (std::size_t i = 0; i < rings_.size(); ++i) {
    Outgoing& at = rings_[i];
    // relaxed: this thread wrote it.
    const std::uint64_t head = at.ring.head->value.load(std::memory_order_relaxed);
    for (; at.next != head && !full(); ++at.next) {
      const std::uint32_t bytes = at.ring.used[at.next % at.ring.slot_count];
      carrier_.send({.bytes = bytes,
                     .kind = kSlot,
                     .channel = static_cast<std::uint32_t>(i),
                     .position = at.next},
                    Piece(at.ring.slot(at.next), bytes));
      moved = true;
    }
  }
  for (std::size_t i = 0; i < counters_.size() && !full(); ++i) {
    Sent& at = counters_[i];
    const std::uint64_t value = at.value->load(std::memory_order_relaxed);  // As above.
    if (value == at.last) continue;
    at.last = value;
    carrier_.send({.kind = kCounter, .channel = static_cast<std::uint32_t>(i), .position = value},
                  Piece());
    moved = true;
  }
  return moved;
}

bool Mirror::Peer::pending(std::uint64_t published_count) const {
  if (failure) return false;
  if (calls_ != published_count || carrier_.pending() != 0) return true;
  const auto differs = [](const Sent& at) {
    return at.value->load(std::memory_order_relaxed) != at.last;
  };
  const auto unsent = [](const Outgoing& at) {
    return at.ring.head->value.load(std::memory_order_relaxed) != at.next;
  };
  return std::any_of(counters_.begin(), counters_.end(), differs) ||
         std::any_of(rings_.begin(), rings_.end(), unsent);
}

bool Mirror::Peer::exchange() {
  const auto moved = carrier_.progress(*this);
  if (moved) return *moved;
  failure = moved.error();
  return true;
}

void Mirror::Peer::say_abort(const Error& error) {
  if (failure || carrier_.pending() >= Carrier::kMostQueued - 1) return;
  abort_out_.code = static_cast<std::int32_t>(error.code);
  abort_out_.rank = error.peer.value;
  const std::size_t length = std::min(error.what.size(), abort_out_.text.size() - 1);
  std::memcpy(abort_out_.text.data(), error.what.data(), length);
  carrier_.send({.bytes = sizeof(AbortImage), .kind = kAbort},
                std::as_bytes(std::span(&abort_out_, 1)));
}

Error Mirror::Peer::nonsense(const FrameHeader& header) const {
  return {Code::kPeerFailed,
          fmt::format("{}: a frame of kind {}, channel {}, position {} and {} bytes makes no "
                      "sense here: the stream is corrupt",
                      carrier_.where(), header.kind, header.channel, header.position, header.bytes),
          Rank{me_}, Rank{rank_}};
}

Result<std::optional<std::byte*>> Mirror::Peer::place(const FrameHeader& header) {
  if (header.kind == kLines && staging_) return std::optional<std::byte*>{};
  std::byte* const to = destination(header);
  if (to == nullptr) return nonsense(header);
  staging_ = staging_ || header.kind == kLines;
  return std::optional(to);
}

/// Null if the frame makes no sense.
std::byte* Mirror::Peer::destination(const FrameHeader& header) {
  const RegionConfig& config = region_.config();
  switch (header.kind) {
    case kLines:
      if (header.bytes < sizeof(RecordImage) + sizeof(CallLine) || header.bytes > sizeof(Staged))
        return nullptr;
      return reinterpret_cast<std::byte*>(&staged_);
    case kPacket:
      return header.bytes <= config.packet_bytes ? region_.packet(rank_, header.position) : nullptr;
    case kBlocks:
      if (header.bytes != config.rank_count * sizeof(BlockView)) return nullptr;
      return reinterpret_cast<std::byte*>(region_.blocks(rank_, header.position));
    case kSlot: {
      if (header.channel >= rings_in_.size()) return nullptr;
      const Incoming& at = rings_in_[header.channel];
      // Free, and not yet announced. relaxed: this thread wrote both.
      const std::uint64_t head = at.ring.head->value.load(std::memory_order_relaxed);
      const std::uint64_t tail = at.tail->value.load(std::memory_order_relaxed);
      const bool free = header.position >= head && header.position - tail < at.ring.slot_count;
      return free && header.bytes <= at.ring.slot_bytes ? at.ring.slot(header.position) : nullptr;
    }
    case kCounter:
      if (header.bytes != 0 || header.channel >= counters_in_.size()) return nullptr;
      return reinterpret_cast<std::byte*>(&staged_);  // Nothing is written.
    case kAbort:
      if (header.bytes != sizeof(AbortImage)) return nullptr;
      return reinterpret_cast<std::byte*>(&abort_in_);
    default: return nullptr;
  }
}

Status Mirror::Peer::arrived(const FrameHeader& header) {
  switch (header.kind) {
    case kLines: return take_lines(header);
    case kSlot: {
      const Incoming& at = rings_in_[header.channel];
      if (at.ring.head->value.load(std::memory_order_relaxed) != header.position)
        return nonsense(header);
      // release: as if the peer had committed it.
      at.ring.head->value.store(header.position + 1, std::memory_order_release);
      return ok();
    }
    case kCounter:
      // release: as if the peer had stored it.
      counters_in_[header.channel]->store(header.position, std::memory_order_release);
      return ok();
    case kAbort: return take_abort();
    default: return ok();
  }
}

Status Mirror::Peer::take_lines(const FrameHeader& header) {
  staging_ = false;
  const RecordImage& image = staged_.record;
  const std::size_t lines = (header.bytes - sizeof(RecordImage)) / sizeof(CallLine);
  if (image.lines != lines || header.bytes != sizeof(RecordImage) + lines * sizeof(CallLine))
    return nonsense(header);
  CallRecord& record = region_.record(rank_);
  // relaxed: for messages only, as in HostExecutor::begin.
  record.number.store(image.number, std::memory_order_relaxed);
  record.what.store(image.what, std::memory_order_relaxed);
  record.count.store(image.count, std::memory_order_relaxed);
  CallLine* to = region_.lines(rank_, header.position);
  for (std::size_t i = 0; i < lines; ++i) {
    const std::byte* from = staged_.lines.data() + i * sizeof(CallLine);
    std::uint64_t tag = 0;
    std::memcpy(&tag, from, sizeof(tag));
    std::memcpy(to[i].payload.data(), from + sizeof(tag), kLinePayload);
    // release: as if the peer had stored it.
    to[i].tag.store(tag, std::memory_order_release);
  }
  return ok();
}

Status Mirror::Peer::take_abort() const {
  const auto code = static_cast<Code>(abort_in_.code);
  const std::string text(abort_in_.text.data(),
                         strnlen(abort_in_.text.data(), abort_in_.text.size()));
  region_.abort({code, text, Rank{abort_in_.rank}, Rank{abort_in_.rank}});
  return ok();
}

Mirror::Mirror(const Region& region, int me, std::unique_ptr<Network> network, bool near)
    : region_(region),
      me_(me),
      near_(near),
      network_(std::move(network)),
      published_(kCalls),
      ready_(region.config().rank_count) {
  TUTTI_CHECK(region.config().wire != 0);
  for (int rank = 0; rank < static_cast<int>(region.config().rank_count); ++rank) {
    Carrier* const carrier = network_->carrier(rank);
    peers_.push_back(carrier == nullptr ? nullptr
                                        : std::make_unique<Peer>(region, me, rank, *carrier));
  }
}

Mirror::~Mirror() {
  for (const auto& peer : peers_) {
    if (peer != nullptr && !peer->failure) peer->carrier().leave();
  }
  const auto last = std::chrono::steady_clock::now() + kLastWords;
  for (const auto& peer : peers_) {
    while (peer != nullptr && !peer->failure && !peer->carrier().left() &&
           std::chrono::steady_clock::now() < last)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void Mirror::publish(const Published& what) {
  published_[published_count_ % published_.size()] = what;
  ++published_count_;
  progress();  // At once: others wait for this.
}

void Mirror::say_abort() {
  abort_said_ = true;
  const Error error = region_.abort_error();
  for (const auto& peer : peers_) {
    if (peer != nullptr) peer->say_abort(error);
  }
}

bool Mirror::progress() {
  bool moved = false;
  if (region_.aborted() && !abort_said_) say_abort();
  for (const auto& peer : peers_) {
    if (peer != nullptr && !peer->failure)
      moved = peer->offer(published_, published_count_) || moved;
  }
  network_->look(ready_);
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const Peer* const peer = peers_[rank].get();
    if (peer == nullptr || peer->failure) continue;
    if (ready_[rank] || peer->carrier().pending() != 0)
      moved = exchange(static_cast<int>(rank)) || moved;
    ready_[rank] = false;
  }
  return moved;
}

bool Mirror::exchange(int rank) {
  Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  const bool moved = peer.exchange();
  if (peer.failure) network_->forget(rank);  // What has ended is always ready.
  return moved;
}

bool Mirror::pending() const {
  return std::any_of(peers_.begin(), peers_.end(), [this](const auto& peer) {
    return peer != nullptr && peer->pending(published_count_);
  });
}

void Mirror::sleep(std::chrono::nanoseconds longest) {
  network_->sleep(near_ ? std::min<std::chrono::nanoseconds>(longest, kNearNap) : longest);
}

const std::optional<Error>& Mirror::failure(int peer) const {
  static const std::optional<Error> kNone;
  const auto& at = peers_[static_cast<std::size_t>(peer)];
  return at == nullptr ? kNone : at->failure;
}

}  // namespace tutti::net
