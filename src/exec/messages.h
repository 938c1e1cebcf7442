// File: exec/messages.h: messages from one rank to another, of which the other ranks know nothing.
//
// Each pair of ranks has a ring of its own for them in each direction, so they order nothing and
// hold nothing up: neither collectives nor messages of other pairs. Those of one direction arrive
// in the order in which they were sent. By hand this is the plan
//
//   rank 0: move 0: input[0] -> to(1):result        rank 1: move 0: from(0):result -> output[0]
//
// with a header in front, because here the two sides have agreed on nothing beforehand. A message
//
//   that fits the header's slot   is in it; its sender is done at once;
//   from memory that is mapped    is copied by the receiver, which keeps the slot until then;
//   else                          follows in slots.
//
// A receive takes the first message with its tag. What comes before a receive asks for its tag is
// unexpected: it is kept, up to a limit, so that what was sent behind it can be received.
//
// Everything here is a state machine that never blocks, used by one thread at a time.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "exec/flight/recorder.h"
#include "exec/links.h"
#include "transport/transport.h"
#include "tutti/result.h"
#include "tutti/types.h"

namespace tutti::exec {

struct MessageBatch;

/// One end of a message. The caller that posts it keeps it where it is until its batch is done. It
/// has more than 15 fields: what the caller says, and how far the engine is with it.
struct Message {
  enum class Stage : std::uint8_t { kHeader, kMapped, kSlots };

  static constexpr int kAnyPeer = -1;

  bool sends = false;
  /// A receive may have kAnyPeer: then the engine writes here which peer's message it took.
  int peer = 0;
  DataType type = DataType::kUint8;
  std::byte* data = nullptr;  // Not written to if it is sent.
  std::size_t count = 0;
  int tag = 0;  // The same at both ends, and at least 0.
  // For a receive from any rank:
  Rank* source = nullptr;  // Where the peer is noted, once it is known.
  // By rank: it must not end; null: one that lives will do.
  const std::atomic<bool>* needed = nullptr;
  bool patient = false;  // Nobody waits for it: it has no deadline.
  // The engine's own.
  MessageBatch* batch = nullptr;
  Message* next = nullptr;  // Posted later, for the same peer and direction.
  Stage stage = Stage::kHeader;
  std::size_t moved = 0;       // Bytes.
  std::uint64_t position = 0;  // The header's slot.
  std::uint64_t recorded = 0;  // Its number in the flight record; 0: not there yet.
  bool waited = false;         // It could not be carried out at once.
  // For a receive: the one before it with its tag has ended since the last health check; and when a
  // health check last found that.
  bool next_of_tag = false;
  std::chrono::steady_clock::time_point since{};
  const std::byte* mapped = nullptr;
};

/// Messages that are waited for together.
struct MessageBatch {
  std::span<Message> messages;
  std::size_t open = 0;  // Not done yet.
  int reader = -1;       // It failed, and this rank may still read what it sends.
  std::chrono::steady_clock::time_point start;
};

/// It has more than 20 functions: one for each way in which a message moves, and its end.
class Messages {
 public:
  /// `stream_from_bytes`: bytes from which a copy goes past the cache. `most_unexpected`: bytes of
  /// unexpected messages that are kept; what is more waits at its sender.
  Messages(Endpoint& endpoint, int me, std::size_t stream_from_bytes, flight::Recorder& flight,
           std::size_t most_unexpected = SIZE_MAX);

  /// Adds all messages of a batch to those under way; their peers are other ranks. What may come
  /// from any goes to the first that sends such a tag while no receive names it and that tag.
  void post(MessageBatch& batch);
  /// Moves what can be moved. True if anything was; see `error` then.
  bool poll();
  /// Messages are under way.
  bool busy() const;
  /// Set when a message failed; all are over then.
  const std::optional<Error>& error() const { return error_; }
  /// Forgets all messages, whose batches are not done.
  void drop();

  /// To be asked now and then: an error if a peer of a message has ended, or a message has not
  /// moved for longer than `timeout`, nor has it been posted since, nor the one before it ended:
  /// for a receive the one with its tag.
  std::optional<Error> check_health(std::chrono::steady_clock::time_point now,
                                    std::chrono::milliseconds timeout);
  std::size_t stream_from_bytes() const { return stream_from_bytes_; }
  /// Copies what does not overlap; `stream`: past the cache.
  static void copy(std::byte* to, const std::byte* from, std::size_t bytes, bool stream);

  /// The rank whose message has waited longest, and since when; none: no message is under way. Up
  /// to date behind a check_health.
  std::optional<std::pair<int, std::chrono::steady_clock::time_point>> longest_wait() const;
  /// Whether a message to or from that rank is under way.
  bool waits_for(int peer) const;
  /// The error of such a message that can't move, for a reason that follows ": ".
  Error stuck(int peer, const std::string& why) const;

 private:
  struct Queue {
    Message* first = nullptr;
    Message* last = nullptr;
    bool moved = false;                           // Anything, since the last health check;
    std::chrono::steady_clock::time_point since;  // and when a health check last found that it had.
  };
  /// An unexpected message: a receive that nobody has posted.
  struct Unexpected {
    Message message;
    MessageBatch batch;
    std::unique_ptr<std::byte[]> data;
  };
  struct Peer {
    Outbox outbox;
    Inbox inbox;
    Queue sends, receives;
    std::list<Unexpected> unexpected;  // In the order in which they came.
    const Message* front() const {
      return receives.first != nullptr ? receives.first : sends.first;
    }
  };

  Error late(const Message& message, int rank, std::chrono::milliseconds timeout);
  static std::chrono::steady_clock::time_point since(const Queue& queue, const Message& message);
  static const Message* late_in(Queue& queue, std::chrono::steady_clock::time_point now,
                                std::chrono::milliseconds timeout);
  static int next_tag(const Inbox& inbox);
  std::string not_asked_for(int rank);
  std::optional<Error> check_health_any(std::chrono::steady_clock::time_point now,
                                        std::chrono::milliseconds timeout);
  void record(Message& message);
  static void append(Queue& queue, Message& message);
  void record_dropped(const Queue& queue);
  Message* asking(int rank, int tag);
  bool choose(int rank);
  Message* keep(int rank, std::size_t count, DataType type, int tag);
  bool hand_over();
  bool fits(const Message& message, std::size_t count, DataType type);
  bool advance(Queue& queue, int rank);
  void end(Queue& queue, Message& message);
  bool send(Message& message, Outbox& outbox);
  bool receive(Message& message, Inbox& inbox);
  bool receive_header(Message& message, Inbox& inbox);
  bool copy_mapped(Message& message, Inbox& inbox);
  bool send_slots(Message& message, Outbox& outbox);
  bool copy_part(Message& message);
  bool receive_slots(Message& message, Inbox& inbox);
  bool fail(const Message& message, const std::string& what);
  Error failure(const Message& message, Code code, const std::string& what) const;

  Endpoint& endpoint_;
  flight::Recorder& flight_;
  Region region_;
  int me_;
  std::size_t slot_bytes_, stream_from_bytes_;
  std::vector<Peer> peers_;  // By rank.
  Queue any_;                // Receives from any rank: the first that sends.
  std::size_t most_unexpected_, unexpected_bytes_ = 0;
  bool look_again_ = false;  // There are receives, or unexpected messages, that may fit each other.
  std::optional<Error> error_;
};

/// "send of 3 float32 to rank 1".
std::string describe(const Message& message);

}  // namespace tutti::exec
