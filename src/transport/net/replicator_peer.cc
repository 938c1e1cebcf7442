#include "transport/net/replicator_peer.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "transport/net/rails.h"

namespace tutti::net {
namespace {

enum Kind : std::uint16_t {
  kLines = 1,
  kPacket,
  kBlocks,
  kSlot,
  kCounter,
  kAbort,
  kCpu,
  kLeft,
  kRecord,
  kNote
};

// Frames for one peer that may wait in its queues; below what a carrier takes.
constexpr std::size_t kMostPending = Carrier::kMostQueued - 16;

}  // namespace

bool Replicator::Peer::full() const { return carrier_.held() >= kMostPending; }

Replicator::Peer::Peer(Replicator& replicator, int rank, Carrier& carrier, bool on_machine)
    : replicator_(replicator),
      region_(replicator.region_),
      me_(replicator.me_),
      rank_(rank),
      carrier_(carrier),
      on_machine_(on_machine),
      notes_{Notes{region_.note(me_, rank), region_.note(rank, me_)},
             Notes{&region_.board(me_), &region_.board(rank)}} {
  const Region& region = region_;
  const int me = me_;
  const Ring to = region.messages(me, rank), from = region.messages(rank, me);
  const auto counter = [this](auto& mine, auto& theirs) {
    counters_.push_back({&mine});
    counters_in_.push_back(&theirs);
  };
  // For messages only, and so no reason to stay.
  counter(region.status(me).waits_for, region.status(rank).waits_for);
  counters_.back().may_lag = std::numeric_limits<std::uint64_t>::max();
  counter(region.finished(me).value, region.finished(rank).value);
  counter(from.tails->value, to.tails->value);
  // Alone it costs as much as a message, and goes with the next one. Half of the slots stay free.
  counters_.back().may_lag = from.slot_count / 2;
  rings_.push_back({to});
  rings_in_.push_back({from, from.tails});
  for (std::uint32_t i = 0; i < region.config().lanes; ++i) {
    const int lane = static_cast<int>(i);
    const Ring out = region.channel(me, rank, lane), in = region.channel(rank, me, lane);
    const Ring mine = region.multicast(me, lane), theirs = region.multicast(rank, lane);
    counter(in.tails->value, out.tails->value);
    counter(theirs.tails[me].value, mine.tails[rank].value);
    counter(region.signal(me, rank, lane).value, region.signal(rank, me, lane).value);
    rings_.push_back({out});
    rings_.push_back({mine});
    rings_in_.push_back({in, in.tails, region.config().gpudirect != 0});
    rings_in_.push_back({theirs, &theirs.tails[me]});
  }
  for (Outgoing& at : rings_) at.zero_copy.resize(at.ring.slot_count);
  for (Incoming& at : rings_in_) at.placed.resize(at.ring.slot_count);
}

void Replicator::Peer::queue(const FrameHeader& header, std::span<const Piece> pieces,
                             const ZeroCopySend& zero_copy_send) {
  settle();
  zero_copy_sends_[queued_++ % zero_copy_sends_.size()] = zero_copy_send;
  carrier_.send(header, pieces);
}

/// Forgets the loans of frames that are held no longer.
void Replicator::Peer::settle() {
  for (const std::uint64_t end = queued_ - carrier_.held(); released_ != end; ++released_) {
    ZeroCopySend& zero_copy_send = zero_copy_sends_[released_ % zero_copy_sends_.size()];
    if (zero_copy_send.slot != nullptr) --zero_copy_count_;
    zero_copy_send = {{}, nullptr};
  }
}

void Replicator::Peer::expect(bool to_all, std::size_t lane, std::uint64_t position,
                              std::span<std::byte> to) {
  Incoming& at = rings_in_[ring_of(to_all, lane)];
  // The slot has come without the frame that was to go there.
  if (!at.given.empty() && at.given_at != position) take_back(at);
  at.expected = position;
  at.to = to;
  expects_ = true;
}

const std::byte* Replicator::Peer::placed(bool to_all, std::size_t lane,
                                          std::uint64_t position) const {
  const Incoming& at = rings_in_[ring_of(to_all, lane)];
  return at.placed[position % at.placed.size()];
}

void Replicator::Peer::send_zero_copy(bool to_all, std::size_t lane, std::uint64_t position,
                                      SendBuffer data) {
  Outgoing& at = rings_[ring_of(to_all, lane)];
  at.zero_copy[position % at.zero_copy.size()] = data;
  ++zero_copy_count_;
}

bool Replicator::Peer::is_sending(SendBuffer data) const {
  if (zero_copy_count_ == 0 || failure) return false;
  for (std::uint64_t frame = released_; frame != queued_; ++frame) {
    if (overlap(zero_copy_sends_[frame % zero_copy_sends_.size()].zero_copy, data)) return true;
  }
  return std::any_of(rings_.begin(), rings_.end(), [&](const Outgoing& at) {
    return std::any_of(at.zero_copy.begin(), at.zero_copy.end(),
                       [&](SendBuffer zero_copy) { return overlap(zero_copy, data); });
  });
}

void Replicator::Peer::expect_not(SendBuffer data) {
  for (Incoming& at : rings_in_) {
    if (overlap(at.to, data)) at.to = {};
  }
}

void Replicator::Peer::keep() {
  settle();
  if (zero_copy_count_ != 0) keep_zero_copy();
  if (!std::exchange(expects_, false)) return;
  for (Incoming& at : rings_in_) {
    if (!at.given.empty()) take_back(at);
    at.to = {};
    // Slots that were placed are of no use any more: the call is over.
  }
}

/// Sends the frame that goes to the user's memory to its slot. The frame of a lost rail goes
/// nowhere any more; a carrier that has failed may still touch it.
void Replicator::Peer::take_back(Incoming& at) {
  carrier_.moved(at.given, at.ring.slot(at.given_at));
  at.placed[at.given_at % at.placed.size()] = nullptr;
  at.given = {};
}

void Replicator::Peer::keep_zero_copy() {
  for (std::uint64_t frame = released_; frame != queued_; ++frame) {
    ZeroCopySend& zero_copy_send = zero_copy_sends_[frame % zero_copy_sends_.size()];
    if (zero_copy_send.slot != nullptr) {
      if (!failure) std::ranges::copy(zero_copy_send.zero_copy, zero_copy_send.slot);
      carrier_.moved(zero_copy_send.zero_copy, zero_copy_send.slot);
    }
    zero_copy_send = {{}, nullptr};
  }
  for (Outgoing& at : rings_) {
    for (std::size_t i = 0; i < at.zero_copy.size(); ++i) {
      // Data for a peer that has gone may be the memory of an earlier call.
      if (!failure) std::ranges::copy(at.zero_copy[i], at.ring.slot(i));
      at.zero_copy[i] = {};
    }
  }
  zero_copy_count_ = 0;
}

void Replicator::Peer::offer_call(const Published& call) {
  const std::uint64_t number = call.call;
  const bool reads = call.reader < 0 || call.reader == rank_;
  if (call.packet_bytes != 0 && reads) {
    queue({.bytes = call.packet_bytes, .kind = kPacket, .position = number},
          Piece(region_.packet(me_, number), call.packet_bytes));
  }
  if (call.blocks) {
    const std::size_t bytes = region_.config().rank_count * sizeof(BlockView);
    queue({.bytes = static_cast<std::uint32_t>(bytes), .kind = kBlocks, .position = number},
          std::as_bytes(std::span(region_.blocks(me_, number), region_.config().rank_count)));
  }
  const CallRecord& record = region_.record(me_);
  CallImage& image = images_[calls_ % kCalls];
  // The record still has the call: calls are published before they are kCalls behind. relaxed: this
  // thread wrote the CPU.
  image = {record.look_up(number).value_or(CallSeen{}),
           record.look_up(number - 1).value_or(CallSeen{}), reads ? call.lines : 1,
           on_machine_ ? record.cpu.load(std::memory_order_relaxed) : 0};
  said_cpu_ = image.cpu;
  const std::size_t bytes = image.lines * sizeof(CallLine);
  const std::array pieces{
      std::as_bytes(std::span(&image, 1)),
      Piece(reinterpret_cast<const std::byte*>(region_.lines(me_, number)), bytes)};
  queue({.bytes = static_cast<std::uint32_t>(sizeof(image) + bytes),
         .kind = kLines,
         .position = number},
        pieces);
}

/// Sends this rank's latest calls, unless the last frame with them is still under way.
void Replicator::Peer::show_calls() {
  settle();
  if (released_ < record_queued_ || full()) return;
  const CallRecord& record = region_.record(me_);
  // relaxed: this thread wrote them.
  std::uint64_t number = record.number.load(std::memory_order_relaxed);
  for (RecordImage& image : record_out_) {
    if (number == 0) break;
    image.blocked_on = record.blocked_on.load(std::memory_order_relaxed);
    for (std::uint64_t i = 0; i < image.calls.size(); ++i)
      image.calls[i] = number > i ? record.look_up(number - i).value_or(CallSeen{}) : CallSeen{};
    queue({.bytes = sizeof(image), .kind = kRecord, .position = number},
          std::as_bytes(std::span(&image, 1)));
    number -= std::min<std::uint64_t>(number, image.calls.size());
  }
  record_queued_ = queued_;
}

void Replicator::Peer::offer_slot(std::size_t ring) {
  Outgoing& at = rings_[ring];
  const std::size_t which = at.next % at.ring.slot_count;
  const std::uint32_t bytes = at.ring.used[which];
  std::byte* const slot = at.ring.slot(at.next);
  const SendBuffer zero_copy = std::exchange(at.zero_copy[which], SendBuffer{});
  const Piece payload = zero_copy.empty() ? Piece(slot, bytes) : zero_copy;
  queue({.bytes = bytes,
         .kind = kSlot,
         .channel = static_cast<std::uint32_t>(ring),
         .position = at.next,
         .stamp = at.ring.stamps[which]},
        std::span(&payload, 1),
        zero_copy.empty() ? ZeroCopySend{{}, nullptr} : ZeroCopySend{payload, slot});
}

/// In a long call a rank may come to another CPU.
bool Replicator::Peer::offer_cpu() {
  const std::int32_t cpu = region_.record(me_).cpu.load(std::memory_order_relaxed);
  if (cpu == said_cpu_) return false;
  said_cpu_ = cpu;
  queue({.kind = kCpu, .position = static_cast<std::uint64_t>(cpu)}, Piece());
  return true;
}

/// Copies one of this rank's notes, if it is new and the last one has left. Not only once the peer
/// has acknowledged that: with several rails it does so by what it sends, and it may wait for this
/// note before it sends anything. Rails keep a copy of a note.
bool Replicator::Peer::copy_note(std::size_t which) {
  Notes& at = notes_[which];
  const bool left = queued_ - carrier_.pending() >= at.queued;
  return at.mine != nullptr && left && at.out.copy(*at.mine, at.said);
}

void Replicator::Peer::offer_note(std::size_t which) {
  Notes& at = notes_[which];
  at.said = at.out.version;
  queue({.bytes = sizeof(at.out), .kind = kNote, .position = which},
        std::as_bytes(std::span(&at.out, 1)));
  at.queued = queued_;
}

bool Replicator::Peer::offer(const std::vector<Published>& published, std::uint64_t count) {
  bool moved = false;
  // Before the rest, which has to arrive first.
  const std::array has_note{copy_note(0), copy_note(1)};
  for (; calls_ != count && !full(); ++calls_) {
    offer_call(published[calls_ % published.size()]);
    moved = true;
  }
  for (std::size_t i = 0; i < rings_.size(); ++i) {
    Outgoing& at = rings_[i];
    // acquire: a device may have written it, and the slot before it (cuda/mesh/network.h).
    const std::uint64_t head = at.ring.head->value.load(std::memory_order_acquire);
    for (; at.next != head && !full(); ++at.next) {
      offer_slot(i);
      moved = true;
    }
  }
  if (on_machine_ && !full()) moved = offer_cpu() || moved;
  for (std::size_t i = 0; i < counters_.size() && !full(); ++i) {
    Sent& at = counters_[i];
    const std::uint64_t value = at.value->load(std::memory_order_acquire);  // As above.
    if (value == at.last) continue;
    at.last = value;
    queue({.kind = kCounter, .channel = static_cast<std::uint32_t>(i), .position = value}, Piece());
    moved = true;
  }
  for (std::size_t which = 0; which < has_note.size(); ++which) {
    // If full, some of the rest may be missing.
    if (has_note[which] && !full()) offer_note(which), moved = true;
  }
  return moved;
}

bool Replicator::Peer::pending(std::uint64_t published_count) const {
  if (failure) return false;
  if (calls_ != published_count || carrier_.pending() != 0) return true;
  const auto differs = [](const Sent& at) {
    return at.value->load(std::memory_order_relaxed) - at.last > at.may_lag;
  };
  const auto unsent = [](const Outgoing& at) {
    return at.ring.head->value.load(std::memory_order_relaxed) != at.next;
  };
  // relaxed: this thread writes the board. Other notes may be a device's, which goes on.
  if (notes_[1].mine->version.load(std::memory_order_relaxed) != notes_[1].said) return true;
  return std::any_of(counters_.begin(), counters_.end(), differs) ||
         std::any_of(rings_.begin(), rings_.end(), unsent);
}

bool Replicator::Peer::exchange(bool look) {
  const auto moved = look ? carrier_.progress(*this) : carrier_.flush();
  settle();
  if (moved) return *moved;
  failure = moved.error();
  return true;
}

void Replicator::Peer::say_abort(const Error& error) {
  if (failure) return;
  abort_out_.code = static_cast<std::int32_t>(error.code);
  abort_out_.rank = error.rank.value;
  abort_out_.peer = error.peer.value;
  const std::size_t length = std::min(error.what.size(), abort_out_.text.size() - 1);
  std::memcpy(abort_out_.text.data(), error.what.data(), length);
  const FrameHeader header{.bytes = sizeof(AbortImage), .kind = kAbort};
  const auto payload = std::as_bytes(std::span(&abort_out_, 1));
  // The peer needs none of the data that may wait for its answer: the call has ended.
  carrier_.send_ahead(header, payload);
  if (carrier_.held() < Carrier::kMostQueued - 1) queue(header, std::span(&payload, 1));
}

void Replicator::Peer::say_left(std::uint64_t left) {
  if (failure || carrier_.held() >= Carrier::kMostQueued - 1) return;
  queue({.kind = kLeft, .position = left}, Piece());
}

Error Replicator::Peer::nonsense(const FrameHeader& header) const {
  return {Code::kPeerFailed,
          fmt::format("{}: a frame of kind {}, channel {}, position {} and {} bytes makes no "
                      "sense here: the stream is corrupt",
                      carrier_.where(), header.kind, header.channel, header.position, header.bytes),
          Rank{me_}, Rank{rank_}};
}

bool Replicator::Peer::takes_turns(const FrameHeader& header) const {
  static_assert(sizeof(Staged) <= Rails::kKeptBytes && sizeof(RecordImage) <= Rails::kKeptBytes &&
                sizeof(NoteImage) <= Rails::kKeptBytes);
  return header.kind == kLines || header.kind == kRecord || header.kind == kNote;
}

Result<std::optional<std::byte*>> Replicator::Peer::place(const FrameHeader& header) {
  // The same may come once more, if it came in part over what then broke.
  const bool staged = takes_turns(header);
  const std::pair frame{header.kind, header.position};
  if (staged && staging_ && *staging_ != frame) return std::optional<std::byte*>{};
  std::byte* const to = destination(header);
  if (to == nullptr) return nonsense(header);
  if (staged) staging_ = frame;
  return std::optional(to);
}

/// Where its reader expects it, else the slot. That memory is given once: a slot comes again if a
/// rail was lost, but the peer may also send it twice, and then one of them is still on its way
/// when the call returns.
std::byte* Replicator::Peer::place_of_slot(Incoming& at, const FrameHeader& header) {
  const bool wanted =
      at.given.empty() && at.to.size() == header.bytes && at.expected == header.position;
  std::byte*& placed = at.placed[header.position % at.placed.size()];
  placed = wanted && header.bytes != 0 ? at.to.data() : nullptr;
  if (placed == nullptr) return at.ring.slot(header.position);
  at.given = at.to;
  at.given_at = header.position;
  return placed;
}

/// Null if the frame makes no sense.
std::byte* Replicator::Peer::destination(const FrameHeader& header) {
  const RegionConfig& config = region_.config();
  const auto whole = [&header](std::size_t bytes, auto* to) {
    return header.bytes == bytes ? reinterpret_cast<std::byte*>(to) : nullptr;
  };
  switch (header.kind) {
    case kLines:
      if (header.bytes < sizeof(CallImage) + sizeof(CallLine) || header.bytes > sizeof(Staged))
        return nullptr;
      return reinterpret_cast<std::byte*>(&staged_);
    case kPacket:
      return header.bytes <= config.packet_bytes ? region_.packet(rank_, header.position) : nullptr;
    case kBlocks:
      return whole(config.rank_count * sizeof(BlockView), region_.blocks(rank_, header.position));
    case kSlot: {
      if (header.channel >= rings_in_.size()) return nullptr;
      Incoming& at = rings_in_[header.channel];
      if (at.ring.slots == nullptr) return nullptr;  // Nothing is sent by it.
      // Free, and not yet announced. relaxed: this thread wrote it.
      const std::uint64_t head = at.ring.head->value.load(std::memory_order_relaxed);
      // acquire: if a device wrote it, its reads of the slot are over.
      const std::uint64_t tail = at.tail->value.load(std::memory_order_acquire);
      const bool free = header.position >= head && header.position - tail < at.ring.slot_count;
      return free && header.bytes <= at.ring.slot_bytes ? place_of_slot(at, header) : nullptr;
    }
    case kCounter:  // Nothing is written.
      return header.channel < counters_in_.size() ? whole(0, &staged_) : nullptr;
    case kCpu:
    case kLeft: return whole(0, &staged_);
    case kRecord: return whole(sizeof(RecordImage), &record_in_);
    case kNote:
      if (header.position >= notes_.size() || notes_[header.position].theirs == nullptr)
        return nullptr;
      return whole(sizeof(NoteImage), &notes_[header.position].in);
    case kAbort: return whole(sizeof(AbortImage), &abort_in_);
    default: return nullptr;
  }
}

Status Replicator::Peer::arrived(const FrameHeader& header) {
  switch (header.kind) {
    case kLines: return take_lines(header);
    case kSlot: {
      Incoming& at = rings_in_[header.channel];
      if (at.ring.head->value.load(std::memory_order_relaxed) != header.position)
        return nonsense(header);
      if (at.gpudirect) TUTTI_RETURN_IF_ERROR(replicator_.flush_gpudirect());
      if (at.placed[header.position % at.placed.size()] != nullptr) at.given = {};
      at.ring.stamps[header.position % at.ring.slot_count] = header.stamp;
      // release: as if the peer had committed it.
      at.ring.head->value.store(header.position + 1, std::memory_order_release);
      return ok();
    }
    case kCounter:
      // release: as if the peer had stored it.
      counters_in_[header.channel]->store(header.position, std::memory_order_release);
      return ok();
    case kCpu:
      region_.record(rank_).cpu.store(static_cast<std::int32_t>(header.position),
                                      std::memory_order_relaxed);  // A hint, see look_around.
      return ok();
    case kRecord: return take_calls(header), ok();
    case kNote:
      staging_.reset();
      notes_[header.position].in.put(*notes_[header.position].theirs);
      return ok();
    case kAbort: return take_abort();
    case kLeft:
      // release: as if the peer had stored it.
      region_.status(rank_).left.store(header.position, std::memory_order_release);
      return ok();
    default: return ok();
  }
}

Status Replicator::Peer::take_lines(const FrameHeader& header) {
  staging_.reset();
  const CallImage& image = staged_.image;
  const std::size_t lines = (header.bytes - sizeof(CallImage)) / sizeof(CallLine);
  if (image.lines != lines || header.bytes != sizeof(CallImage) + lines * sizeof(CallLine))
    return nonsense(header);
  CallRecord& record = region_.record(rank_);
  if (image.before.digest != 0) record.put(header.position - 1, image.before);
  record.note(header.position, image.call);
  record.cpu.store(image.cpu, std::memory_order_relaxed);  // A hint, see look_around.
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

void Replicator::Peer::take_calls(const FrameHeader& header) {
  staging_.reset();
  CallRecord& record = region_.record(rank_);
  // relaxed: this thread wrote it.
  const std::uint64_t latest = record.number.load(std::memory_order_relaxed);
  for (std::uint64_t i = 0; i < record_in_.calls.size() && i < header.position; ++i) {
    const std::uint64_t number = header.position - i;
    if (record_in_.calls[i].digest != 0 && number + kCalls > latest)
      record.put(number, record_in_.calls[i]);
  }
  if (header.position < latest) return;
  // release: as if the peer had stored them.
  record.number.store(header.position, std::memory_order_release);
  record.blocked_on.store(record_in_.blocked_on, std::memory_order_release);
}

Status Replicator::Peer::take_abort() const {
  const auto code = static_cast<Code>(abort_in_.code);
  const std::string text(abort_in_.text.data(),
                         strnlen(abort_in_.text.data(), abort_in_.text.size()));
  region_.abort({code, text, Rank{abort_in_.rank}, Rank{abort_in_.peer}});
  return ok();
}

}  // namespace tutti::net
