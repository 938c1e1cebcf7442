#include "exec/messages.h"

#include <algorithm>
#include <cstring>
#include <new>
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
  std::uint32_t tag = 0;
};
static_assert(sizeof(Header) == kCacheLine);

/// Bytes that one poll copies at most, so that other messages get their turn.
constexpr std::size_t kMostAtOnce = std::size_t{1} << 20;
/// Bytes from which mapping pays.
constexpr std::size_t kWorthMapping = 16384;

std::size_t bytes_of(const Message& message) { return message.count * size_of(message.type); }

/// The header of a message whose first slot has come.
Header header_in(const Inbox& inbox) {
  Header header;
  std::memcpy(&header, inbox.slot(), sizeof(header));
  return header;
}

DataType type_of(const Header& header) {
  return static_cast<DataType>(std::min<std::uint32_t>(header.type, 0xff));  // 0xff: there is none.
}

/// Takes the first receive with that tag that has not begun out of those that wait; null: there is
/// none.
template <class Queue>
Message* take(Queue& queue, int tag) {
  Message* before = nullptr;
  for (Message* at = queue.first; at != nullptr; before = at, at = at->next) {
    if (at->tag != tag || at->stage != Message::Stage::kHeader) continue;
    (before == nullptr ? queue.first : before->next) = at->next;
    if (queue.last == at) queue.last = before;
    return at;
  }
  return nullptr;
}

}  // namespace

Messages::Messages(Endpoint& endpoint, int me, std::size_t stream_from_bytes,
                   flight::Recorder& flight, std::size_t most_unexpected)
    : endpoint_(endpoint),
      flight_(flight),
      region_(endpoint.region()),
      me_(me),
      slot_bytes_(region_.config().message_bytes),
      stream_from_bytes_(stream_from_bytes),
      peers_(region_.config().rank_count),
      most_unexpected_(most_unexpected) {
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
    message.next_of_tag = false;
    message.since = {};
    look_again_ = look_again_ || (!message.sends && unexpected_bytes_ != 0);
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

/// Takes the receive that a rank's message with that tag is for out of those that wait: the first
/// that names the rank, else the first from any rank. Null: there is none.
Message* Messages::asking(int rank, int tag) {
  Message* message = take(peers_[static_cast<std::size_t>(rank)].receives, tag);
  if (message != nullptr) return message;
  message = take(any_, tag);
  if (message == nullptr) return nullptr;
  message->peer = rank;
  if (message->source != nullptr) *message->source = Rank{rank};
  if (message->recorded == 0) record(*message);
  return message;
}

/// Puts the receive that a rank's next message is for in front of those from that rank. False: that
/// message is not there yet, or must wait until a receive asks for it.
bool Messages::choose(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (look_again_ && hand_over() && error_) return false;
  if (peer.receives.first != nullptr && peer.receives.first->stage != Message::Stage::kHeader)
    return true;
  if (!peer.inbox.has_slot()) return false;
  const Header header = header_in(peer.inbox);
  const auto tag = static_cast<int>(header.tag);
  if (peer.receives.first != nullptr && peer.receives.first->tag == tag) [[likely]]
    return true;
  Message* message = asking(rank, tag);
  if (message == nullptr) message = keep(rank, header.count, type_of(header), tag);
  if (message == nullptr) return false;
  message->next = peer.receives.first;
  peer.receives.first = message;
  if (message->next == nullptr) peer.receives.last = message;
  return true;
}

/// Makes room for a message that no receive asks for. Null: more is not kept.
Message* Messages::keep(int rank, std::size_t count, DataType type, int tag) {
  const std::size_t room = most_unexpected_ - unexpected_bytes_, element = size_of(type);
  if (element == 0 || count > room / element) return nullptr;
  const std::size_t bytes = std::max<std::size_t>(1, count * element);
  if (bytes > room) return nullptr;
  std::unique_ptr<std::byte[]> data(new (std::nothrow) std::byte[bytes]);
  if (data == nullptr) return nullptr;
  Unexpected& one = peers_[static_cast<std::size_t>(rank)].unexpected.emplace_back();
  one.data = std::move(data);
  one.message.peer = rank;
  one.message.type = type;
  one.message.data = one.data.get();
  one.message.count = count;
  one.message.tag = tag;
  one.message.batch = &one.batch;
  one.batch.messages = std::span(&one.message, 1);
  one.batch.open = 1;
  one.batch.start = std::chrono::steady_clock::now();
  unexpected_bytes_ += bytes;
  return &one.message;
}

/// Gives unexpected messages to receives that ask for them. True if any.
bool Messages::hand_over() {
  look_again_ = false;
  bool moved = false;
  for (Peer& peer : peers_) {
    for (auto one = peer.unexpected.begin(); one != peer.unexpected.end();) {
      const Message& kept = one->message;
      Message* const to = one->batch.open == 0 ? asking(kept.peer, kept.tag) : nullptr;
      if (to == nullptr) {
        ++one;
        continue;
      }
      if (!fits(*to, kept.count, kept.type)) return true;
      const std::size_t bytes = bytes_of(kept);
      copy(to->data, kept.data, bytes, bytes >= stream_from_bytes_);
      to->moved = bytes;
      end(peer.receives, *to);
      unexpected_bytes_ -= std::max<std::size_t>(1, bytes);
      one = peer.unexpected.erase(one);
      moved = peer.receives.moved = true;
    }
  }
  return moved;
}

bool Messages::busy() const {
  return any_.first != nullptr ||
         std::ranges::any_of(peers_, [](const Peer& peer) { return peer.front() != nullptr; });
}

bool Messages::poll() {
  bool moved = look_again_ && hand_over();
  for (std::size_t at = 0; at < peers_.size(); ++at) {
    const auto rank = static_cast<int>(at);
    Peer& peer = peers_[at];
    if (peer.receives.first != nullptr || (any_.first != nullptr && rank != me_))
      moved = advance(peer.receives, rank) || moved;
    if (peer.sends.first != nullptr) moved = advance(peer.sends, rank) || moved;
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
  for (Peer& peer : peers_) {
    peer.sends = peer.receives = {};
    peer.unexpected.clear();
  }
  any_ = {};
  unexpected_bytes_ = 0;
  look_again_ = false;
}

/// The first message of a queue, and those behind it while they are done at once.
bool Messages::advance(Queue& queue, int rank) {
  bool moved = false;
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  const bool sends = &queue == &peer.sends;
  while (!error_ && (sends ? queue.first != nullptr : choose(rank))) {
    Message& message = *queue.first;
    const std::size_t before = message.moved;
    const Message::Stage stage = message.stage;
    const bool done = sends ? send(message, peer.outbox) : receive(message, peer.inbox);
    moved = moved || done || message.moved != before || message.stage != stage;
    if (!done) break;
    queue.first = message.next;
    end(queue, message);
  }
  if (queue.first != nullptr) queue.first->waited = true;
  queue.moved = queue.moved || moved;
  return moved;
}

/// A message that is in no queue any more is done; those that `queue` has are behind it.
void Messages::end(Queue& queue, Message& message) {
  --message.batch->open;
  if (message.recorded != 0)
    flight_.end_message(message.recorded, message.peer, flight::Outcome::kOk, message.waited);
  else if (!message.sends)
    look_again_ = true;  // An unexpected one is whole.
  Message* next = message.sends ? nullptr : queue.first;
  while (next != nullptr && next->tag != message.tag) next = next->next;
  if (next != nullptr) next->next_of_tag = true;
}

bool Messages::send(Message& message, Outbox& outbox) {
  const std::size_t bytes = bytes_of(message), room = slot_bytes_ - sizeof(Header);
  if (message.stage == Message::Stage::kHeader) {
    if (!outbox.has_room()) return false;
    Header header;
    header.count = message.count;
    header.type = static_cast<std::uint32_t>(message.type);
    header.tag = static_cast<std::uint32_t>(message.tag);
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

/// Whether a message of so many elements of that type is what a receive asks for; else it fails.
bool Messages::fits(const Message& message, std::size_t count, DataType type) {
  if (count == message.count && type == message.type) return true;
  return fail(message, fmt::format("rank {} sends {} {} instead; both ends of a message must name "
                                   "the same count and type",
                                   message.peer, count, to_string(type)));
}

bool Messages::receive_header(Message& message, Inbox& inbox) {
  const Header header = header_in(inbox);
  if (!fits(message, header.count, type_of(header))) return false;
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

/// The tag of a message whose first slot has come.
int Messages::next_tag(const Inbox& inbox) { return static_cast<int>(header_in(inbox).tag); }

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
  const std::string tag = message.tag == 0 ? "" : fmt::format(" with tag {}", message.tag);
  return fmt::format("{} of {} {} {} {}{}", message.sends ? "send" : "recv", message.count,
                     to_string(message.type), message.sends ? "to" : "from", peer, tag);
}

}  // namespace tutti::exec
