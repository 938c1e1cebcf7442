// File: comm/window_service.h: how ranks of other hosts reach the memory of a window.
//
// They send requests by messages of the window's own communicator: 64 bytes, and what is put behind
// them, unless it fits in. The rank that has the memory always has a receive from any rank started,
// which the progress thread completes; its callback carries the request out, and starts the next.
// So a rank that asks needs nobody's call, and what one rank sends another takes place in order.
//
//   put, accumulate, signal   need no answer
//   get, flush, exchanges     are answered by a request of their own (kData), with their ticket
//   bye                       this rank asks for nothing more
//   over                      this rank has heard bye from all others. Behind that of all others,
//                             nothing comes any more
//
// What comes is checked: it may name no memory but the window's. A request that does ends the
// window on all ranks.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "comm/state.h"

namespace tutti {

/// What a rank asks of another's window. Plain data: it travels as bytes.
struct WindowRequest {
  enum class Kind : std::uint32_t {
    kPut = 1,
    kGet,
    kAccumulate,
    kFlush,
    kSignal,
    kData,
    kBye,
    kOver,
    kFetchAdd,
    kCompareSwap
  };
  static constexpr std::size_t kInline = 32;

  Kind kind = Kind::kPut;
  std::uint8_t type = 0, op = 0;  // For kAccumulate.
  std::uint16_t number = 0;       // For kSignal.
  std::uint64_t offset = 0, bytes = 0;
  std::uint64_t ticket = 0;                // For what is answered, and the answer.
  std::array<std::byte, kInline> small{};  // What is put, if it fits; an exchange's operands.

  /// Whether it changes a number and asks what that was.
  bool exchanges() const { return kind == Kind::kFetchAdd || kind == Kind::kCompareSwap; }

  /// Whether its data follow in a message of their own.
  bool has_data_behind() const {
    const bool carries = kind == Kind::kPut || kind == Kind::kAccumulate || kind == Kind::kData;
    return carries && bytes > kInline;
  }
};
static_assert(sizeof(WindowRequest) == 64);

/// An exchange's operands in its request.
struct Operands {
  std::int64_t value = 0;
  std::int64_t expected = 0;  // For kCompareSwap.
};
static_assert(sizeof(Operands) <= WindowRequest::kInline);
/// Carries an exchange out: what `number` was before.
std::int64_t exchange(WindowRequest::Kind kind, const Operands& operands, std::byte* number);

/// What requests of other ranks do here. Called by the progress thread, perhaps after the window
/// has gone.
struct WindowMemory {
  std::span<std::byte> data;
  std::shared_ptr<void> keeps;  // The memory.
  std::function<void(int from, int number)> signalled;
  std::function<void()> failed;  // See WindowService::error.
};

/// It has more than 20 functions: one for each kind of request, on both of its ends.
class WindowService : public std::enable_shared_from_this<WindowService> {
 public:
  /// `far`: by rank, whether it is on another host. `state`: of a communicator that nothing else
  /// uses until `over`.
  WindowService(Communicator::State& state, std::vector<bool> far, WindowMemory memory);
  Status begin();

  /// Sends a request, and its data; returns once both may be changed.
  Status send(int to, WindowRequest request, std::span<const std::byte> data);
  /// The same for requests that are answered; returns once `answer` has come.
  Status ask(int to, WindowRequest request, std::span<std::byte> answer);
  /// Tells all other hosts that this rank asks for nothing more, and waits until they have, too.
  Status end();
  /// Ends it on all ranks, if it is not over. The communicator is free then, but on the progress
  /// thread, where it is free after its last message.
  void abandon(const Error& why);

  /// Why it can't go on; null while it can. Any thread.
  const Error* error() const {
    // acquire: pairs with the release in `fail`, behind which the error stays as it is.
    return has_failed_.load(std::memory_order_acquire) ? &*error_ : nullptr;
  }

 private:
  /// How far a rank of another host has come with its end.
  enum class End : std::uint8_t { kNone, kBye, kOver };
  using Lock = std::unique_lock<std::mutex>;
  using Then = std::function<void(const Lock&)>;
  struct Question {
    int to = 0;
    std::span<std::byte> answer;
    bool begun = false, answered = false;  // The answer is on its way, and here.
  };
  struct Incoming {
    WindowRequest request;
    Rank from{-1};
  };

  Status tell_all(WindowRequest::Kind kind);
  Status take_end(const Incoming& incoming);
  Status await(const Question& question);
  void forget(std::uint64_t ticket);
  int count(End end) const { return static_cast<int>(std::ranges::count(ends_, end)); }
  int closed() const { return count(End::kBye) + count(End::kOver); }
  /// Starts messages, which are posted together, and calls `then` under the mutex once all are
  /// done. `keeps` stays until then.
  Status start(std::vector<exec::Message> messages, std::shared_ptr<void> keeps, Then then);
  Status listen(const Lock& lock);
  Status serve(const Lock& lock, const std::shared_ptr<Incoming>& incoming);
  Status take_data(const Lock& lock, const std::shared_ptr<Incoming>& incoming,
                   std::span<std::byte> to, Then then);
  Status answer(const Incoming& incoming, std::span<const std::byte> data);
  Status take_answer(const Lock& lock, const std::shared_ptr<Incoming>& incoming);
  Status accumulate(const Lock& lock, const std::shared_ptr<Incoming>& incoming);
  Status exchange_here(const Incoming& incoming, std::span<std::byte> number);
  Error refused(const Incoming& incoming, const std::string& what) const;
  void fail(const Lock& lock, Error error);

  Communicator::State& state_;
  std::vector<bool> far_;
  int far_count_;
  std::unique_ptr<std::atomic<bool>[]> needed_;  // For exec::Message::needed: all others.
  WindowMemory memory_;
  std::mutex mutex_;  // Guards all below.
  std::condition_variable changed_;
  std::unordered_map<std::uint64_t, Question*> questions_;  // By ticket.
  std::uint64_t next_ticket_ = 1;
  std::vector<End> ends_;        // By rank.
  std::vector<int> unanswered_;  // By rank, its requests whose answers are being sent.
  bool has_ended_ = false;       // This rank has said bye.
  bool over_ = false;            // Nothing is started any more.
  std::optional<Error> error_;
  std::atomic<bool> has_failed_{false};
};

}  // namespace tutti
