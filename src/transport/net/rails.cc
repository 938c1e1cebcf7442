#include "transport/net/rails.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

namespace tutti::net {
namespace {

// Kinds of control frames, which rails send to each other and which have no order. Other kinds are
// far below.
enum Kind : std::uint16_t { kAcknowledge = 0xff00, kLost, kConfirmLost, kAhead, kRenewal };
constexpr bool is_own(const FrameHeader& header) { return header.kind >= kAcknowledge; }

/// The frame that has come ahead: its kind is this one's channel.
FrameHeader frame_in(FrameHeader ahead) {
  ahead.kind = static_cast<std::uint16_t>(std::exchange(ahead.channel, 0));
  return ahead;
}

// So many frames that nothing has gone back for are worth one. Well below what a sender keeps.
constexpr std::uint32_t kWorthAdvertising = Carrier::kMostQueued / 4;
// Frames of a rail that are left for control frames.
constexpr std::size_t kLeftFree = Carrier::kMostQueued / 4;
// Every how many looks one of the rails besides the first is looked at, if nothing came there.
constexpr std::size_t kLooksPerTurn = 4;
constexpr std::int64_t kTickMs = 100;

}  // namespace

Rails::Rails(std::vector<std::unique_ptr<Carrier>> carriers, std::size_t spread_bytes,
             std::size_t first, std::unique_ptr<Renewal> renewal)
    : spread_bytes_(spread_bytes),
      first_(first),
      renewal_(std::move(renewal)),
      kept_(kMostQueued),
      early_(kMostQueued) {
  TUTTI_CHECK(first < carriers.size());
  for (auto& carrier : carriers) rails_.push_back({std::move(carrier), {}, 0, false});
  if (renewal_ != nullptr) messages_.resize(rails_.size());
  // Not initialised: pages that are never needed take no memory.
  if (rails_.size() > 1)
    shelf_ = std::make_unique_for_overwrite<std::byte[]>(kMostQueued * kKeptBytes);
}

std::size_t Rails::pick(std::size_t bytes) const {
  std::size_t best = first_;
  if (bytes < spread_bytes_) return best;
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    const Rail& one = rails_[i];
    if (!one.failure && one.carrier->unsent_bytes() < rails_[best].carrier->unsent_bytes())
      best = i;
  }
  return best;
}

void Rails::send(FrameHeader header, std::span<const Piece> pieces) {
  TUTTI_CHECK(held() < kMostQueued && pieces.size() <= kMostPieces && !is_own(header));
  Kept& frame = kept(queued_);
  frame.header = header;
  frame.header.order = static_cast<std::uint32_t>(queued_++);
  frame.count = pieces.size();
  std::ranges::copy(pieces, frame.pieces.begin());
  if (header.bytes <= kKeptBytes && (pieces.empty() || !gpudirect(pieces[0]))) {
    std::byte* end = frame.copy.data();
    for (const Piece piece : pieces) end = std::ranges::copy(piece, end).out;
    frame.pieces[0] = {frame.copy.data(), end};
    frame.count = 1;
  }
  give(frame, pick(header.bytes));
}

void Rails::send_ahead(const FrameHeader& header, Piece payload) {
  TUTTI_CHECK(!is_own(header) && header.channel == 0 && header.bytes == payload.size());
  ahead_.emplace(header, payload);
  give_ahead();
}

/// Nothing to do while nothing waits, or if the rail is full: it moves, and confirmations come.
void Rails::give_ahead() {
  Rail& to = rails_[first_];
  if (!ahead_ || unsettled_ == 0 || to.carrier->pending() >= kMostQueued) return;
  FrameHeader header = ahead_->first;
  header.channel = std::exchange(header.kind, kAhead);
  header.acked = advertise();
  ++to.given;
  to.carrier->send(header, ahead_->second);
}

/// The count that the next frame acknowledges.
std::uint32_t Rails::advertise() {
  long_unadvertised_ = false;
  return advertised_ = expected_;
}

void Rails::give(Kept& frame, std::size_t rail) {
  Rail& to = rails_[rail];
  frame.rail = rail;
  // Besides what is kept, a rail may have frames that were acknowledged over another one
  // meanwhile. And what was sent before goes before: where it belongs may have to be free first.
  frame.waits = any_waits_ || unsettled_ != 0 || to.carrier->pending() >= kMostQueued - kLeftFree;
  any_waits_ = frame.waits;
  if (frame.waits) return;
  frame.header.acked = advertise();
  frame.ticket = to.given++;
  to.carrier->send(frame.header, std::span(frame.pieces).first(frame.count));
}

/// The frames that could not be given, in order.
void Rails::give_waiting() {
  if (unsettled_ != 0 || !std::exchange(any_waits_, false)) return;
  for (std::uint64_t number = acked_; number != queued_; ++number) {
    if (kept(number).waits) give(kept(number), pick(kept(number).header.bytes));
  }
}

/// `about`: a rail. A rail keeps room for all control frames that a sound peer makes us send
/// (kLeftFree): it loses each rail once before it takes a confirmation.
Status Rails::send_control(std::size_t rail, std::uint16_t kind, std::size_t about) {
  Rail& to = rails_[rail];
  if (to.carrier->pending() >= kMostQueued) return corrupt("it takes no confirmations");
  ++to.given;
  to.carrier->send({.kind = kind,
                    .channel = static_cast<std::uint32_t>(about),
                    .position = rails_[about].times,
                    .acked = advertise()},
                   Piece());
  return ok();
}

/// Whether its rail, which has not failed, has given it to the network.
bool Rails::has_left(const Kept& frame) const {
  const Rail& rail = rails_[frame.rail];
  return !frame.waits && frame.ticket < rail.given - rail.carrier->pending();
}

/// Notes what rails have given to the network.
void Rails::settle() {
  for (; released_ != queued_; ++released_) {
    const Kept& frame = kept(released_);
    if (rails_[frame.rail].failure || !has_left(frame)) return;
  }
}

std::size_t Rails::pending() const {
  if (released_ != queued_) return static_cast<std::size_t>(queued_ - released_);
  // The rails' own frames have to leave as well.
  return rails_[first_].carrier->pending() != 0 ? 1 : 0;
}

Result<bool> Rails::progress(FrameSink& sink) {
  bool moved = false;
  const std::size_t turn =
      ++looks_ % kLooksPerTurn == 0 ? looks_ / kLooksPerTurn % rails_.size() : rails_.size();
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    Rail& rail = rails_[i];
    if (rail.failure) continue;
    // A look at a silent rail may be a system call: those besides the first get one in turn.
    const bool worth = i == first_ || i == turn || rail.busy || rail.carrier->pending() != 0;
    if (!worth && !rail.carrier->ready()) continue;
    Inlet inlet(*this, sink, i);
    auto some = rail.carrier->progress(inlet);
    rail.busy = some && *some;
    moved = moved || rail.busy;
    if (some) continue;
    if (inlet.refused()) return std::move(some.error());
    TUTTI_RETURN_IF_ERROR(lose(i, std::move(some.error())));
  }
  // Somebody may wait for memory: for what is long, if there is nothing else to do or to send.
  const bool due = expected_ - advertised_ >= kWorthAdvertising || (!moved && long_unadvertised_);
  if (due && rails_[first_].carrier->pending() == 0) {
    TUTTI_RETURN_IF_ERROR(send_control(first_, kAcknowledge, 0));
    TUTTI_TRY(const bool sent, flush());
    moved = moved || sent;
  }
  give_waiting();
  settle();
  if (coarse_ms() >= next_tick_) TUTTI_RETURN_IF_ERROR(look_for_stuck());
  return moved;
}

Result<bool> Rails::flush() {
  bool moved = false;
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    Rail& rail = rails_[i];
    if (rail.failure || rail.carrier->pending() == 0) continue;
    auto some = rail.carrier->flush();
    moved = moved || (some && *some);
    if (!some) TUTTI_RETURN_IF_ERROR(lose(i, std::move(some.error())));
  }
  give_waiting();
  settle();
  return moved;
}

void Rails::moved(Piece from, std::byte* to) {
  for (std::uint64_t number = acked_; number != queued_; ++number) {
    for (Piece& piece : std::span(kept(number).pieces).first(kept(number).count)) {
      if (piece.data() >= from.data() && piece.data() < from.data() + from.size())
        piece = {to + (piece.data() - from.data()), piece.size()};
    }
  }
  for (const Rail& one : rails_) {
    if (!one.failure) one.carrier->moved(from, to);
  }
}

void Rails::leave() {
  for (const Rail& one : rails_) {
    if (!one.failure) one.carrier->leave();
  }
}

bool Rails::left() {
  return std::all_of(rails_.begin(), rails_.end(),
                     [](const Rail& one) { return one.failure || one.carrier->left(); });
}

bool Rails::delivering() {
  // A connection that was reset has nothing on its way: the next progress() looks at all of them.
  for (Rail& one : rails_) one.busy = true;
  // Frames of a lost rail are sent again once the peer has confirmed the loss.
  if (held() != 0 && (unsettled_ != 0 || any_waits_)) return true;
  return std::any_of(rails_.begin(), rails_.end(),
                     [](const Rail& one) { return !one.failure && one.carrier->delivering(); });
}

// ---- receiving

Error Rails::corrupt(std::string_view what) const {
  return {Code::kPeerFailed, fmt::format("{}: {}: the stream is corrupt", where(), what)};
}

/// A sender keeps what it does not know to be acknowledged, so no sound one is further ahead than
/// that; and one that has a single rail sends in order.
Status Rails::check_order(const FrameHeader& header) const {
  if (header.order - expected_ >= kMostQueued ||
      early_[header.order % kMostQueued].header.kind != 0)
    return corrupt("a frame came twice");
  if (rails_.size() == 1 && header.order != expected_) return corrupt("a frame is out of order");
  return ok();
}

Result<std::optional<std::byte*>> Rails::place(const FrameHeader& header, FrameSink& sink,
                                               std::size_t rail) {
  if (header.kind == kAhead) {
    const FrameHeader frame = frame_in(header);
    const bool known = header.channel != 0 && header.channel < kAcknowledge;
    // Those that take turns need their order.
    if (!known || sink.takes_turns(frame)) return corrupt("such a frame does not go ahead");
    return sink.place(frame);
  }
  if (is_own(header)) {
    if (header.kind == kRenewal && !messages_.empty()) {
      if (header.bytes <= Renewal::kMostMessageBytes)
        return std::optional(messages_[rail].received.data());
      return corrupt("a message between rails is too long");
    }
    if (header.bytes != 0) return corrupt("a control frame has a payload");
    return std::optional(&nothing_);
  }
  TUTTI_RETURN_IF_ERROR(check_order(header));
  // What it came by first was lost, and forgotten, before a sound peer sends it again. If both came
  // on, what is announced would not be what was placed.
  if (early(header).placed) return corrupt("a frame comes by two ways");
  const bool shelved = shelf_ != nullptr && header.order != expected_ && sink.takes_turns(header);
  if (shelved && header.bytes > kKeptBytes) return corrupt("a frame of this kind is too long");
  std::optional<std::byte*> to;
  if (shelved) {
    to = shelf(header);
  } else {
    TUTTI_TRY(to, sink.place(header));
  }
  if (to) early(header) = {.rail = rail, .placed = true, .shelved = shelved};
  return to;
}

Status Rails::arrived(const FrameHeader& header, FrameSink& sink, std::size_t rail) {
  TUTTI_RETURN_IF_ERROR(acknowledge(header.acked));
  if (header.kind == kAhead) return sink.arrived(frame_in(header));
  if (is_own(header)) return take_own(header, rail);
  TUTTI_RETURN_IF_ERROR(check_order(header));
  if (!early(header).placed || early(header).rail != rail) return corrupt("a frame has no place");
  if (header.order != expected_) {
    early(header).header = header;
    return ok();
  }
  TUTTI_RETURN_IF_ERROR(announce(header, sink));
  for (;;) {
    const FrameHeader next = early_[expected_ % kMostQueued].header;
    if (next.kind == 0) return ok();
    TUTTI_RETURN_IF_ERROR(announce(next, sink));
  }
}

Status Rails::take_own(const FrameHeader& header, std::size_t rail) {
  if (header.kind == kAcknowledge) return ok();
  if (header.kind == kRenewal) return take_renewal_message(header, rail);
  const std::size_t lost = header.channel;
  if (header.kind > kConfirmLost || lost >= rails_.size() || lost == rail)
    return corrupt("it speaks of a connection that is none");
  Rail& about = rails_[lost];
  if (header.position < about.times) return ok();  // This loss was confirmed long ago.
  const bool sooner = header.position != about.times;
  if (header.kind == kConfirmLost) {
    if (!about.failure || sooner) return corrupt("it gives up a connection that was not lost");
    send_again(lost);
    return ok();
  }
  if (sooner) {
    // It had it again, and lost it: nothing has gone that way from here.
    if (renewal_ == nullptr || !about.settled || header.position != about.times + std::uint64_t{1})
      return corrupt("it loses a connection that there never was");
    ++about.times;
    renewal_->drop(lost);
  } else if (!about.failure) {
    const std::string where = about.carrier->where();
    TUTTI_RETURN_IF_ERROR(lose(lost, {Code::kPeerFailed, where + ": given up by the peer"}));
  }
  forget_early(lost);
  // By the way that it came: the peer may have lost the first one.
  return send_control(rail, kConfirmLost, lost);
}

/// A message about one rail comes over another one.
Status Rails::take_renewal_message(const FrameHeader& header, std::size_t rail) {
  const std::size_t about = header.channel;
  if (messages_.empty() || about >= rails_.size() || about == rail)
    return corrupt("it makes a connection anew that is none");
  const Rail& lost = rails_[about];
  if (header.position > lost.times + std::uint64_t{1})
    return corrupt("it makes a connection anew that there never was");
  // An attempt that is over; or one ahead of here: the peer's frame about the loss in between is on
  // its way by another rail, and it repeats its message.
  if (header.position != lost.times) return ok();
  if (!lost.failure) return corrupt("it makes a connection anew that was not lost");
  if (!renewal_->take_message(about, std::span(messages_[rail].received).first(header.bytes)))
    return corrupt("no renewal of a connection sends such a message");
  return ok();
}

Status Rails::announce(const FrameHeader& header, FrameSink& sink) {
  if (std::exchange(early(header), {}).shelved) {
    TUTTI_TRY(const auto to, sink.place(header));
    // It is this frame's turn, unless the peer sent another one in the place of one that was lost.
    if (!to) return corrupt("a frame came out of turn");
    std::copy_n(shelf(header), header.bytes, *to);
  }
  ++expected_;
  long_unadvertised_ = long_unadvertised_ || header.bytes > kKeptBytes;
  return sink.arrived(header);
}

Status Rails::acknowledge(std::uint32_t acked) {
  const std::uint32_t more = acked - static_cast<std::uint32_t>(acked_);
  // With several rails, an older count may come after a newer one.
  if (more > std::numeric_limits<std::uint32_t>::max() / 2) return ok();
  if (more > held()) return corrupt("it acknowledges more than was sent");
  // What is acknowledged may be written again. A rail that still has such a frame would read that;
  // one that is lost reads nothing any more.
  for (std::uint64_t number = released_; number < acked_ + more; ++number) {
    if (!rails_[kept(number).rail].failure && !has_left(kept(number)))
      return corrupt("it acknowledges what was not sent");
  }
  acked_ += more;
  released_ = std::max(released_, acked_);
  return ok();
}

// ---- failures

Status Rails::lose(std::size_t rail, Error why) {
  rails_[rail].carrier->abandon();
  rails_[rail].failure = std::move(why);
  ++lost_;
  ++unsettled_;
  if (alive() == 0) return *rails_[rail].failure;
  while (rails_[first_].failure) first_ = (first_ + 1) % rails_.size();
  // All of them: the messages about the others may have gone the same way.
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    if (rails_[i].failure) TUTTI_RETURN_IF_ERROR(send_control(first_, kLost, i));
  }
  give_ahead();
  for (std::uint64_t number = acked_; number != queued_; ++number) {
    if (kept(number).rail == rail) released_ = std::min(released_, number);
  }
  return ok();
}

/// The peer sends them again: it does not wait to learn what could have been announced.
void Rails::forget_early(std::size_t rail) {
  for (Early& one : early_) {
    if (one.rail == rail) one = {};
  }
}

/// The peer has abandoned that rail as well.
void Rails::send_again(std::size_t rail) {
  if (std::exchange(rails_[rail].settled, true)) return;
  --unsettled_;
  for (std::uint64_t number = acked_; number != queued_; ++number) {
    if (kept(number).rail == rail) kept(number).waits = any_waits_ = true;
  }
  give_waiting();
}

Status Rails::look_for_stuck() {
  next_tick_ = coarse_ms() + kTickMs;
  // Not at once: where the peer has ended, all its connections have, and that is told otherwise.
  for (Rail& one : rails_) {
    if (!one.failure || std::exchange(one.reported, true)) continue;
    log::warn(log::Part::kNet, "{}; {} of {} ways there are left", one.failure->what, alive(),
              rails_.size());
  }
  for (std::size_t i = 0; i < rails_.size() && alive() > 1; ++i) {
    if (rails_[i].failure) continue;
    if (auto why = rails_[i].carrier->stuck()) TUTTI_RETURN_IF_ERROR(lose(i, *std::move(why)));
  }
  if (lost_ != 0 && renewal_ != nullptr) renew();
  return ok();
}

/// Frames that went over the lost rails do not matter any more. The frames in `kept` have been
/// given to other rails, or wait.
void Rails::renew() {
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    Rail& rail = rails_[i];
    if (!rail.failure || !rail.settled) continue;
    auto carrier = renewal_->renew(i);
    if (carrier == nullptr) {
      send_renewal_message(i);
      continue;
    }
    rail = {.carrier = std::move(carrier), .failure = {}, .times = rail.times + 1};
    --lost_;
    log::warn(log::Part::kNet, "{}: back; {} of {} ways there are used", rail.carrier->where(),
              alive(), rails_.size());
  }
}

/// One frame at a time, and only where frames of users have room as well: the next tick comes soon.
void Rails::send_renewal_message(std::size_t about) {
  Messages& messages = messages_[about];
  if (messages.any) {
    const Rail& over = rails_[messages.over];
    // An abandoned carrier, and one that was replaced, does not read the message any more.
    const bool reads = !over.failure && over.times == messages.over_times &&
                       messages.ticket >= over.given - over.carrier->pending();
    if (reads) return;
  }
  Rail& to = rails_[first_];
  if (to.carrier->pending() >= kMostQueued - kLeftFree) return;
  const std::size_t bytes = renewal_->next_message(about, messages.sent);
  messages.any = bytes != 0;
  if (bytes == 0) return;
  TUTTI_CHECK(bytes <= messages.sent.size());
  messages.over = first_;
  messages.over_times = to.times;
  messages.ticket = to.given++;
  to.carrier->send({.bytes = static_cast<std::uint32_t>(bytes),
                    .kind = kRenewal,
                    .channel = static_cast<std::uint32_t>(about),
                    .position = rails_[about].times,
                    .acked = advertise()},
                   Piece(messages.sent.data(), bytes));
}

}  // namespace tutti::net
