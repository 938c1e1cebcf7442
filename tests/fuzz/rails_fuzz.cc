// What comes over several connections to one peer (net/rails.h): frames in any order on any of
// them, whole or with those of other rails in between, control frames, rails that break and that
// come back, and a sink without room.
//
// The input (fuzz/frames.h): the first byte says how many rails there are. A frame's mark says what
// is done: its lowest two bits name the rail, the others what comes before the frame, and whether
// it comes as a whole (below). Checked: the sink gets each frame in order and once, those that take
// turns only in the place that they were given, with the payload that they had when they came.
#include <map>
#include <memory>

#include "fuzz/frames.h"
#include "transport/net/rails.h"

namespace {

using namespace tutti;
using namespace tutti::fuzz;

// Bits of a mark.
constexpr std::uint16_t kAhead = 0xff03;  // As net/rails.cc has it.
constexpr std::uint8_t kRail = 3, kSend = 4, kFull = 8, kBreak = 16, kRenew = 32, kLong = 64;
constexpr std::uint8_t kPart = 128;  // The rest of the frame comes before the next one of its rail.

/// What the carriers and the sink of one input share.
struct Attack {
  static constexpr std::size_t kMostRails = 3;
  std::array<const Frame*, kMostRails> next{};
  std::array<bool, kMostRails> broken{};
  bool renews = false;
  bool ahead = false;                   // What comes does not keep the order.
  std::map<std::uint32_t, Frame> came;  // By order; the last one of each.
  Frame arriving;

  std::unique_ptr<net::Carrier> rail(std::size_t which);
};

/// A connection that delivers the frames it is given.
class Rail final : public Deaf {
 public:
  Rail(Attack& attack, std::size_t which)
      : attack_(attack), next_(attack.next[which]), broken_(attack.broken[which]) {}
  Result<bool> progress(net::FrameSink& sink) override {
    if (broken_) return Error{Code::kPeerFailed, "cut"};
    if (next_ == nullptr) return false;
    if (coming_) return end(sink);
    TUTTI_TRY(const auto place, sink.place(next_->header));
    if (!place) return false;
    coming_.emplace(*std::exchange(next_, nullptr), *place);
    fill(coming_->first.header.bytes / 2);
    return (coming_->first.mark & kPart) != 0 ? Result<bool>(true) : end(sink);
  }
  bool ready() const override { return next_ != nullptr || broken_; }
  void abandon() override { coming_.reset(); }

 private:
  /// The first bytes of what is coming.
  void fill(std::size_t bytes) {
    const auto& [frame, to] = *coming_;
    const auto payload = frame.payload.first(std::min(bytes, frame.payload.size()));
    std::fill_n(std::ranges::copy(payload, to).out, bytes - payload.size(), std::byte{});
  }
  Result<bool> end(net::FrameSink& sink) {
    fill(coming_->first.header.bytes);
    const Frame frame = coming_->first;
    coming_.reset();
    attack_.ahead = frame.header.kind == kAhead;
    attack_.arriving = frame;
    if (frame.header.kind < 0xff00) attack_.came[frame.header.order] = frame;
    TUTTI_RETURN_IF_ERROR(sink.arrived(frame.header));
    return true;
  }

  Attack& attack_;
  const Frame*& next_;
  bool& broken_;
  std::optional<std::pair<Frame, std::byte*>> coming_;  // And where it goes.
};

std::unique_ptr<net::Carrier> Attack::rail(std::size_t which) {
  return std::make_unique<Rail>(*this, which);
}

/// One place for short frames of odd kinds, which take turns, and one for all others.
class Sink final : public net::FrameSink {
 public:
  explicit Sink(const Attack& attack) : attack_(attack) {}
  Result<std::optional<std::byte*>> place(const net::FrameHeader& header) override {
    if (full) return std::optional<std::byte*>{};
    if (header.bytes > kMost) return Error{Code::kPeerFailed, "too long"};
    if (!takes_turns(header)) return std::optional(others_.data());
    if (turn_ && *turn_ != header.position) return std::optional<std::byte*>{};
    turn_ = header.position;
    return std::optional(shared_.data());
  }
  Status arrived(const net::FrameHeader& header) override {
    require(header.kind < 0xff00, "a control frame gets through");
    if (attack_.ahead) return require(!takes_turns(header), "a frame is ahead of its turn"), ok();
    require(header.order == count, "a frame out of order, or twice");
    ++count;
    if (!takes_turns(header)) return ok();
    require(turn_ && *turn_ == header.position, "a frame is announced that has no place");
    turn_.reset();
    const auto sent = attack_.came.at(header.order).payload;
    const auto rest = std::span(shared_).first(header.bytes).subspan(sent.size());
    require(std::ranges::equal(sent, std::span(shared_).first(sent.size())) &&
                std::ranges::count(rest, std::byte{}) == std::ssize(rest),
            "a frame has another payload than it came with");
    return ok();
  }
  bool takes_turns(const net::FrameHeader& header) const override {
    return header.kind % 2 == 1 && header.bytes <= shared_.size();
  }
  bool full = false;
  std::uint32_t count = 0;

 private:
  const Attack& attack_;
  static constexpr std::size_t kMost = 4096;
  std::array<std::byte, net::Rails::kKeptBytes> shared_{};
  std::array<std::byte, kMost> others_{};
  std::optional<std::uint64_t> turn_;
};

/// Renewals get messages about a rail, and some of them make no sense.
class Again final : public net::Renewal {
 public:
  explicit Again(Attack& attack) : attack_(attack) {}
  std::unique_ptr<net::Carrier> renew(std::size_t rail) override {
    if (!attack_.renews) return nullptr;
    attack_.broken[rail] = false;
    attack_.next[rail] = nullptr;
    return attack_.rail(rail);
  }
  void drop(std::size_t) override {}
  std::size_t next_message(std::size_t rail,
                           std::span<std::byte, kMostMessageBytes> into) override {
    into[0] = static_cast<std::byte>(rail);
    return ++sent_ % 3;
  }
  bool take_message(std::size_t rail, std::span<const std::byte> bytes) override {
    const Frame& frame = attack_.arriving;
    require(frame.header.channel == rail && bytes.size() == frame.header.bytes &&
                bytes.size() <= kMostMessageBytes,
            "a renewal gets a message that was not sent");
    require(std::ranges::equal(frame.payload, bytes.first(frame.payload.size())),
            "a message has changed");
    return bytes.size() > 1;
  }

 private:
  std::size_t sent_ = 0;
  Attack& attack_;
};

void send_one(net::Rails& rails, bool is_long) {
  static const std::array<std::byte, 2000> payload{};
  if (rails.held() >= net::Carrier::kMostQueued) return;
  const auto bytes = std::span(payload).first(is_long ? payload.size() : 40);
  rails.send({.bytes = static_cast<std::uint32_t>(bytes.size()), .kind = 2}, bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  Attack attack;
  const std::size_t count = 1 + data[0] % Attack::kMostRails;
  std::vector<std::unique_ptr<net::Carrier>> carriers;
  for (std::size_t i = 0; i < count; ++i) carriers.push_back(attack.rail(i));
  net::Rails rails(std::move(carriers), 1024, 0, std::make_unique<Again>(attack));
  Sink sink(attack);
  for (Frames frames(std::as_bytes(std::span(data + 1, size - 1))); frames.front() != nullptr;
       frames.next()) {
    const Frame frame = *frames.front();
    const std::size_t rail = (frame.mark & kRail) % count;
    if ((frame.mark & kSend) != 0) send_one(rails, (frame.mark & kLong) != 0);
    if ((frame.mark & kBreak) != 0) attack.broken[rail] = true;
    attack.renews = (frame.mark & kRenew) != 0;
    sink.full = (frame.mark & kFull) != 0;
    attack.next[rail] = &frame;
    // Each rail has its turn within four looks.
    for (int looks = 0; looks < 5; ++looks) {
      if (!rails.progress(sink)) return 0;
      sink.full = false;
    }
    attack.next = {};  // A lost connection loses it.
    require(rails.alive() >= 1 && rails.held() <= net::Carrier::kMostQueued, "impossible counts");
  }
  return 0;
}
