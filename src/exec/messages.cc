#include "exec/messages.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "exec/calls/agreement.h"
#include "kernels/host/reduce.h"

namespace tutti::exec {
namespace {

enum class Way : std::uint32_t { kInline = 1, kMapped = 2, kSlots = 3 };
enum class Reply : std::uint32_t { kNone = 0, kCopied = 1, kSendSlots = 2 };

/// At the start of a message's first slot.
struct alignas(kCacheLine) Header {
  std::uint64_t count = 0;
  std::uint32_t type = 0;
  Way way = Way::kInline;
  BufferName name;             // Where the message is, if it is mapped.
  Reply reply = Reply::kNone;  // The receiver's, given with the slot.
};
static_assert(sizeof(Header) == kCacheLine);

/// Bytes that one poll copies at most, so that other messages get their turn.
constexpr std::size_t kMostAtOnce = std::size_t{1} << 20;
/// Bytes from which mapping pays.
constexpr std::size_t kWorthMapping = 16384;

std::size_t bytes_of(const Message& message) { return message.count * size_of(message.type); }

}  // namespace

Messages::Messages(Endpoint& endpoint, int me, std::size_t stream_from_bytes,
                   flight::Recorder& flight)
    : endpoint_(endpoint),
      flight_(flight),
      region_(endpoint.region()),
      me_(me),
      slot_bytes_(region_.config().message_bytes),
      stream_from_bytes_(stream_from_bytes),
      peers_(region_.config().rank_count) {
  const bool fence = region_.config().fence != 0;
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    if (peer == me) continue;
    Doorbell* bell = &region_.doorbell(peer);
    const Ring out = region_.messages(me, peer), in = region_.messages(peer, me);
    Peer& ends = peers_[static_cast<std::size_t>(peer)];
    ends.outbox = Outbox(out, {out.tails}, {bell}, fence);
    ends.inbox = Inbox(in, in.tails, bell, fence);
  }
}

void Messages::post(MessageBatch& batch) {
  batch.open = batch.messages.size();
  batch.start = std::chrono::steady_clock::now();
  for (Message& message : batch.messages) {
    message.batch = &batch;
    message.stage = Message::Stage::kHeader;
    message.moved = 0;
    message.waited = false;
    message.recorded = 0;
    // A service that listens does not wait: what it gets is recorded when it comes.
    if (!message.patient) record(message);
    if (message.peer == Message::kAnyPeer) {
      append(any_, message);
      continue;
    }
    Peer& peer = peers_[static_cast<std::size_t>(message.peer)];
    append(message.sends ? peer.sends : peer.receives, message);
  }
}

void Messages::record(Message& message) {
  message.recorded = flight_.begin_message(message.sends, message.peer,
                                           static_cast<std::uint8_t>(message.type), message.count);
}

void Messages::append(Queue& queue, Message& message) {
  message.next = nullptr;
  (queue.first == nullptr ? queue.first : queue.last->next) = &message;
  queue.last = &message;
}

/// Gives what may come from any rank to ranks that have sent something nobody receives. True if
/// any.
bool Messages::place_any() {
  bool placed = false;
  for (std::size_t rank = 0; rank < peers_.size() && any_.first != nullptr; ++rank) {
    Peer& peer = peers_[rank];
    const bool other = static_cast<int>(rank) != me_;
    if (!other || peer.receives.first != nullptr || !peer.inbox.has_slot()) continue;
    Message& message = *any_.first;
    any_.first = message.next;
    message.peer = static_cast<int>(rank);
    if (message.source != nullptr) *message.source = Rank{message.peer};
    if (message.recorded == 0) record(message);
    append(peer.receives, message);
    placed = true;
  }
  return placed;
}

bool Messages::busy() const {
  return any_.first != nullptr ||
         std::ranges::any_of(peers_, [](const Peer& peer) { return peer.front() != nullptr; });
}

bool Messages::poll() {
  bool moved = any_.first != nullptr && place_any();
  for (Peer& peer : peers_) {
    if (peer.receives.first != nullptr) moved = advance(peer.receives) || moved;
    if (peer.sends.first != nullptr) moved = advance(peer.sends) || moved;
    if (error_) return true;
  }
  return moved;
}

/// What is dropped has failed; the call's error says why.
void Messages::record_dropped(const Queue& queue) {
  for (const Message* at = queue.first; at != nullptr; at = at->next) {
    if (at->recorded != 0)
      flight_.end_message(at->recorded, at->peer, flight::Outcome::kFailed, true);
  }
}

void Messages::drop() {
  for (const Peer& peer : peers_) record_dropped(peer.sends), record_dropped(peer.receives);
  record_dropped(any_);
  for (Peer& peer : peers_) peer.sends = peer.receives = {};
  any_ = {};
}

/// The first message of a queue, and those behind it while they are done at once.
bool Messages::advance(Queue& queue) {
  bool moved = false;
  while (queue.first != nullptr && !error_) {
    Message& message = *queue.first;
    Peer& peer = peers_[static_cast<std::size_t>(message.peer)];
    const std::size_t before = message.moved;
    const Message::Stage stage = message.stage;
    const bool done = message.sends ? send(message, peer.outbox) : receive(message, peer.inbox);
    moved = moved || done || message.moved != before || message.stage != stage;
    if (!done) {
      message.waited = true;
      break;
    }
    flight_.end_message(message.recorded, message.peer, flight::Outcome::kOk, message.waited);
    queue.first = message.next;
    --message.batch->open;
  }
  queue.moved = queue.moved || moved;
  return moved;
}

bool Messages::send(Message& message, Outbox& outbox) {
  const std::size_t bytes = bytes_of(message), room = slot_bytes_ - sizeof(Header);
  if (message.stage == Message::Stage::kHeader) {
    if (!outbox.has_room()) return false;
    Header header;
    header.count = message.count;
    header.type = static_cast<std::uint32_t>(message.type);
    if (bytes > room) header.way = Way::kSlots;
    if (bytes > room && bytes >= kWorthMapping && endpoint_.near(me_, message.peer)) {
      header.name = endpoint_.name(message.data, bytes);
      if (header.name.segment != 0) header.way = Way::kMapped;
    }
    std::byte* slot = outbox.slot();
    std::memcpy(slot, &header, sizeof(header));
    message.moved = header.way == Way::kMapped ? 0 : std::min(bytes, room);
    copy(slot + sizeof(header), message.data, message.moved, false);
    message.position = outbox.position();
    outbox.commit(sizeof(header) + message.moved);
    if (header.way == Way::kInline) return true;
    message.stage = header.way == Way::kMapped ? Message::Stage::kMapped : Message::Stage::kSlots;
  }
  if (message.stage == Message::Stage::kMapped) {
    if (!outbox.released(message.position)) return false;
    Header header;
    std::memcpy(&header, outbox.slot_at(message.position), sizeof(header));
    if (header.reply == Reply::kCopied) return true;
    message.stage = Message::Stage::kSlots;
  }
  return send_slots(message, outbox);
}

bool Messages::send_slots(Message& message, Outbox& outbox) {
  const std::size_t bytes = bytes_of(message);
  while (message.moved < bytes && outbox.has_room()) {
    const std::size_t part = std::min(slot_bytes_, bytes - message.moved);
    copy(outbox.slot(), message.data + message.moved, part, false);
    outbox.commit(part);
    message.moved += part;
  }
  return message.moved == bytes;
}

bool Messages::receive(Message& message, Inbox& inbox) {
  switch (message.stage) {
    case Message::Stage::kHeader: return inbox.has_slot() && receive_header(message, inbox);
    case Message::Stage::kMapped: return copy_mapped(message, inbox);
    case Message::Stage::kSlots: return receive_slots(message, inbox);
  }
  return false;
}

bool Messages::receive_header(Message& message, Inbox& inbox) {
  Header header;
  std::memcpy(&header, inbox.slot(), sizeof(header));
  const auto type = static_cast<std::uint32_t>(message.type);
  if (header.count != message.count || header.type != type) {
    const auto sent = static_cast<DataType>(header.type & 0xff);
    return fail(message, fmt::format("rank {} sends {} {} instead; both ends of a message must "
                                     "name the same count and type",
                                     message.peer, header.count, to_string(sent)));
  }
  const std::size_t bytes = bytes_of(message), room = slot_bytes_ - sizeof(Header);
  if (header.way == Way::kMapped) {
    message.stage = Message::Stage::kMapped;
    const ProcessWait shown(region_, me_, message.peer);
    const auto mapped = endpoint_.map(message.peer, header.name, bytes);
    message.mapped = mapped ? *mapped : nullptr;
    return copy_mapped(message, inbox);
  }
  if (header.way == Way::kInline && bytes > room) return fail(message, "its header can't be right");
  message.moved = std::min(bytes, room);
  copy(message.data, inbox.slot() + sizeof(header), message.moved, false);
  inbox.release();
  if (header.way == Way::kInline) return true;
  message.stage = Message::Stage::kSlots;
  return receive_slots(message, inbox);
}

/// Straight from the sender's memory, a part at a time; then the sender gets its slot back.
bool Messages::copy_mapped(Message& message, Inbox& inbox) {
  Reply reply = Reply::kSendSlots;
  if (message.mapped != nullptr) {
    if (!copy_part(message)) return false;
    reply = Reply::kCopied;
  }
  std::memcpy(inbox.slot_for_reply() + offsetof(Header, reply), &reply, sizeof(reply));
  inbox.release();
  if (reply == Reply::kCopied) return true;
  message.stage = Message::Stage::kSlots;
  return false;
}

/// Copies a part of a message from the sender's memory; true: that was the last. A sender whose
/// message fails waits for the copy of the part before it returns the buffer to its caller.
bool Messages::copy_part(Message& message) {
  const std::size_t bytes = bytes_of(message);
  const std::size_t part = std::min(kMostAtOnce, bytes - message.moved);
  std::atomic<std::uint64_t>& reads_from = region_.status(me_).reads_from;
  // seq_cst: if the communicator ends now, either this rank sees that it has ended, or the sender
  // sees that this rank reads.
  reads_from.store(1 + static_cast<std::uint64_t>(message.peer), std::memory_order_seq_cst);
  const bool ended = region_.header().abort_state.load(std::memory_order_seq_cst) != 0;
  if (!ended) {
    copy(message.data + message.moved, message.mapped + message.moved, part,
         bytes >= stream_from_bytes_);
    message.moved += part;
  }
  reads_from.store(0, std::memory_order_release);  // release: all reads of the part are over.
  return message.moved == bytes;
}

bool Messages::receive_slots(Message& message, Inbox& inbox) {
  const std::size_t bytes = bytes_of(message);
  while (message.moved < bytes && inbox.has_slot()) {
    const std::size_t part = std::min(slot_bytes_, bytes - message.moved);
    copy(message.data + message.moved, inbox.slot(), part, false);
    inbox.release();
    message.moved += part;
  }
  return message.moved == bytes;
}

void Messages::copy(std::byte* to, const std::byte* from, std::size_t bytes, bool stream) {
  if (bytes == 0) return;
  if (!stream) {
    std::memcpy(to, from, bytes);
    return;
  }
  const kernels::Source source{from, Form::kResult, false};
  const kernels::Target target{to, Form::kResult};
  kernels::reduce({.type = DataType::kUint8}, std::span(&source, 1), std::span(&target, 1), bytes,
                  kernels::Stores::kStreaming);
}

std::optional<Error> Messages::check_health(std::chrono::steady_clock::time_point now,
                                            std::chrono::milliseconds timeout) {
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    for (Queue* queue : {&peer.receives, &peer.sends}) {
      // A message that moves is not late, however long it takes in all.
      if (std::exchange(queue->moved, false)) queue->since = now;
      if (queue->first == nullptr) continue;
      const Message& message = *queue->first;
      // The data that it sent before it ended is there: one more look.
      const Presence there = endpoint_.presence(rank);
      if (there.state != Presence::State::kHere && !poll())
        return failure(message, Code::kPeerFailed, endpoint_.why_gone(rank, there));
      if (queue->first != &message || now - std::max(message.batch->start, queue->since) <= timeout)
        continue;
      return late(message, rank, timeout);
    }
  }
  return check_health_any(now, timeout);
}

/// The error of a message to or from a rank at its deadline. If that rank waits for another one,
/// that one is to blame, as all ranks then say.
Error Messages::late(const Message& message, int rank, std::chrono::milliseconds timeout) const {
  const int blamed = follow_waits(region_, me_, rank);
  const std::string between = blamed == rank ? "" : fmt::format("rank {}, which waits for ", rank);
  Error error =
      failure(message, Code::kTimeout,
              fmt::format("waited {} ms for {}rank {}, {}; TUTTI_TIMEOUT_MS sets the limit",
                          timeout.count(), between, blamed,
                          describe_latest(endpoint_, Rank{me_}, blamed, "collective call")));
  error.peer = Rank{blamed};
  return error;
}

/// Checks a receive from any rank: an error if a rank that is needed has ended, or all have, or it
/// took too long.
std::optional<Error> Messages::check_health_any(std::chrono::steady_clock::time_point now,
                                                std::chrono::milliseconds timeout) {
  if (any_.first == nullptr) return std::nullopt;
  const Message& message = *any_.first;
  bool alive = false;
  std::optional<std::pair<int, Presence>> first_gone;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (rank == me_) continue;
    const Presence there = endpoint_.presence(rank);
    const bool ended = there.state != Presence::State::kHere;
    alive = alive || !ended;
    if (ended && !first_gone) first_gone.emplace(rank, there);
    // relaxed: it orders nothing; a later look sees what a thread has just said.
    const bool needed =
        message.needed != nullptr && message.needed[rank].load(std::memory_order_relaxed);
    if (ended && needed && !poll()) {
      Error error = failure(message, Code::kPeerFailed, endpoint_.why_gone(rank, there));
      error.peer = Rank{rank};
      return error;
    }
    if (any_.first != &message) return std::nullopt;
  }
  if (!alive && !poll())
    return failure(message, Code::kPeerFailed, "all other ranks have ended or left");
  const bool is_late = !message.patient && now - message.batch->start > timeout;
  if (any_.first != &message || !is_late) return std::nullopt;
  // It may be the one that was to send.
  const std::string gone =
      first_gone ? endpoint_.why_gone(first_gone->first, first_gone->second) + "; " : "";
  Error error = failure(message, Code::kTimeout,
                        fmt::format("waited {} ms, and no rank sent; {}TUTTI_TIMEOUT_MS sets the "
                                    "limit",
                                    timeout.count(), gone));
  if (first_gone) error.peer = Rank{first_gone->first};
  return error;
}

std::optional<std::pair<int, std::chrono::steady_clock::time_point>> Messages::longest_wait()
    const {
  std::optional<std::pair<int, std::chrono::steady_clock::time_point>> longest;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    for (const Queue* queue : {&peer.receives, &peer.sends}) {
      if (queue->first == nullptr) continue;
      const auto since = std::max(queue->first->batch->start, queue->since);
      if (!longest || since < longest->second) longest.emplace(rank, since);
    }
  }
  return longest;
}

bool Messages::waits_for(int peer) const {
  return peers_[static_cast<std::size_t>(peer)].front() != nullptr;
}

Error Messages::stuck(int peer, const std::string& why) const {
  return failure(*peers_[static_cast<std::size_t>(peer)].front(), Code::kMismatch, why);
}

bool Messages::fail(const Message& message, const std::string& what) {
  error_ = failure(message, Code::kMismatch, what);
  return false;
}

Error Messages::failure(const Message& message, Code code, const std::string& what) const {
  return {code, describe(message) + ": " + what, Rank{me_}, Rank{message.peer}};
}

std::string describe(const Message& message) {
  const std::string peer =
      message.peer == Message::kAnyPeer ? "any rank" : fmt::format("rank {}", message.peer);
  return fmt::format("{} of {} {} {} {}", message.sends ? "send" : "recv", message.count,
                     to_string(message.type), message.sends ? "to" : "from", peer);
}

}  // namespace tutti::exec
