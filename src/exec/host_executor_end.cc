// How HostExecutor ends a call early (an abort, the deadline, a rank that has gone), which rank it
// blames, and how a rank leaves.
#include <unistd.h>

#include <thread>

#include "base/clock.h"
#include "exec/host_executor.h"

namespace tutti::exec {
namespace {

using namespace std::chrono_literals;

// How long a rank that aborts outside of a call tries to tell the others.
constexpr std::chrono::milliseconds kLongestGoodbye{100};
// How long a rank that leaves waits for a network that still carries what it sent.
constexpr std::chrono::milliseconds kLongestFarewell{60'000};
// How long a call that failed waits for ranks that may still write into its buffers.
constexpr std::chrono::milliseconds kLongestStop{1000};
// After this time a rank tells the others which rank it waits for.
constexpr std::chrono::milliseconds kLongWait{1000};
constexpr std::int64_t kPatrolMs = 20;

}  // namespace

HostExecutor::~HostExecutor() {
  // After a failure the abort word says all. In a forked child the rank is the parent's.
  if (broken_ || region_.aborted() || getpid() != owner_) return;
  // release: what this rank wrote for others is there.
  region_.status(me_).left.store(1 + number_, std::memory_order_release);
  if (wire_ != nullptr) wire_->say_left(std::min(options_.timeout, kLongestFarewell));
}

/// Whether this rank waits for that one now.
bool HostExecutor::awaits(int rank) const {
  switch (phase_) {
    case Phase::kCredit:
    case Phase::kAgreeCredit:
    case Phase::kMapCredit:
    case Phase::kPlanCredit:
      // relaxed: this only tells which rank is missing; the call itself looks again.
      return region_.finished(rank).value.load(std::memory_order_relaxed) + credit_depth() <
             number_;
    case Phase::kGather:
    case Phase::kAgreeGather:
    case Phase::kMapGather:
    case Phase::kPlanGather:
      if (rank < next_peer_ || (one_gives_ && rank != call_.root)) return false;
      return !is_there(rank, rank == next_peer_ ? next_line_ : end_line_ - 1);
    case Phase::kLanes:
      return std::any_of(plan_->lanes.begin(), plan_->lanes.end(),
                         [rank](const BoundLane& lane) { return lane.waiting_for() == rank; });
    case Phase::kLeave:
    case Phase::kStopping:
    case Phase::kDone: break;
  }
  return false;
}

/// Ends the call if a rank that this one waits for has died or left. A rank that did its part
/// before it left is not missing. If another rank misses it, that one ends the call for all.
void HostExecutor::look_at_peers() {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == me_ || !awaits(rank)) continue;
    const Presence there = endpoint_->presence(rank);
    if (there.state == Presence::State::kHere) continue;
    if (there.state == Presence::State::kLeft && there.finished >= number_) continue;
    // All that it wrote before it ended has arrived by now, so look once more.
    if (poll() != Poll::kPending) return;
    fail({Code::kPeerFailed,
          describe_call(pack(call_), call_.count) + ": " + endpoint_->why_gone(rank, there) +
              "; call " + std::to_string(number_) + " can't be completed",
          Rank{me_}, Rank{rank}});
    return;
  }
}

/// The rank to blame at the deadline: follows who waits for whom to the end of that chain. -1:
/// none.
int HostExecutor::to_blame() const {
  int blamed = awaited();
  for (int links = 0; blamed >= 0 && links < ranks_; ++links) {
    // relaxed: for the text only.
    const std::uint64_t said = region_.status(blamed).waits_for.load(std::memory_order_relaxed);
    const int next = awaited_in(said);
    // A wait in an earlier call is over.
    if (call_in(said) < region_.record(blamed).number.load(std::memory_order_relaxed)) break;
    if (next < 0 || next >= ranks_ || next == me_) break;
    blamed = next;
  }
  return blamed;
}

/// The rank that this one waits for now; -1: none.
int HostExecutor::awaited() const {
  for (int rank = ranks_ - 1; rank >= 0; --rank) {
    if (rank != me_ && awaits(rank)) return rank;
  }
  return -1;
}

/// After a long wait, tells the others which rank this one waits for, so that all blame the same.
void HostExecutor::say_waiting(std::chrono::nanoseconds waited) {
  if (waited < std::min<std::chrono::nanoseconds>(kLongWait, options_.timeout / 4)) return;
  const int rank = awaited();
  // relaxed: for the text of errors only.
  region_.status(me_).waits_for.store(rank < 0 ? 0 : wait_of(number_, rank),
                                      std::memory_order_relaxed);
}

/// "rank 2, whose latest call is 4, all_reduce of ...".
std::string HostExecutor::describe_rank(int rank) const {
  return "rank " + std::to_string(rank) + ", " + describe_latest(region_.record(rank), "call");
}

Error HostExecutor::explain_timeout() const {
  const int blamed = to_blame();
  std::string what = describe_call(pack(call_), call_.count) + " (call " + std::to_string(number_) +
                     "): waited " + std::to_string(options_.timeout.count()) + " ms";
  if (blamed >= 0) what += " for " + describe_rank(blamed);
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank != me_ && rank != blamed && is_behind(rank)) what += "; for " + describe_rank(rank);
  }
  return {Code::kTimeout, what + "; TUTTI_TIMEOUT_MS sets the limit", Rank{me_}, Rank{blamed}};
}

/// Whether this call waits for that rank, which has not begun it yet.
bool HostExecutor::is_behind(int rank) const {
  // relaxed: for the text only.
  return awaits(rank) && region_.record(rank).number.load(std::memory_order_relaxed) < number_;
}

/// The error with the process of the rank that is to blame.
Error HostExecutor::with_place(Error error) const {
  const auto peer = static_cast<std::size_t>(error.peer.value);
  if (error.peer.value >= 0 && peer < options_.places.size())
    error.what += " (rank " + std::to_string(peer) + " is " + options_.places[peer] + ")";
  return error;
}

Error HostExecutor::broken_error(const std::string& what) const {
  Error error = region_.abort_error();
  const std::string by = error.rank.value < 0 ? "" : " by rank " + std::to_string(error.rank.value);
  error.rank = Rank{me_};
  error.what = what + " was ended" + by + ": " + error.what;
  return error;
}

Poll HostExecutor::fail(Error error) {
  error.rank = Rank{me_};
  error = with_place(std::move(error));
  const bool first = region_.abort(error);
  pass_on_abort();
  give_up();
  // The first rank to report a timeout or a death knows best, so the others repeat its error. In a
  // mismatch each rank reports its own call.
  const bool of_others = error.code == Code::kTimeout || error.code == Code::kPeerFailed;
  status_ = first || !of_others ? std::move(error)
                                : broken_error(describe_call(pack(call_), call_.count));
  return stop();
}

/// This communicator is of no more use. Messages under way touch no buffer from now on: their
/// batches are over, and the caller may free them at once.
void HostExecutor::give_up() {
  broken_ = true;
  messages_.drop();
}

/// Some rank has ended the communicator.
Poll HostExecutor::end_by_abort() {
  pass_on_abort();
  give_up();
  status_ = broken_error(describe_call(pack(call_), call_.count));
  return stop();
}

void HostExecutor::pass_on_abort() {
  if (wire_ == nullptr) return;
  wire_->flush();  // To tell the others, before `keep` may end a connection.
  wire_->keep();   // Return the buffers to the caller.
  wire_->progress();
}

/// The call has failed. It is over once no rank writes into its buffers any more.
Poll HostExecutor::stop() {
  // release: this rank's writes into its peers' buffers are over.
  region_.status(me_).busy.store(0, std::memory_order_release);
  phase_ = exposed_ ? Phase::kStopping : Phase::kDone;
  stop_end_ = std::chrono::steady_clock::now() + kLongestStop;
  return poll_stopping();
}

Poll HostExecutor::poll_stopping() {
  if (phase_ == Phase::kDone) return Poll::kDone;
  const auto now = std::chrono::steady_clock::now();
  std::string writing;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == me_ || !endpoint_->near(me_, rank)) continue;
    // seq_cst: see start_lanes.
    if (region_.status(rank).busy.load(std::memory_order_seq_cst) == 0) continue;
    if (endpoint_->presence(rank).state != Presence::State::kHere) continue;
    if (now < stop_end_) return Poll::kPending;
    writing += (writing.empty() ? "rank " : ", rank ") + std::to_string(rank);
  }
  if (!writing.empty())
    status_.error().what += "; " + writing + " may still write into this call's buffers";
  phase_ = Phase::kDone;
  return Poll::kDone;
}

/// Peers copy long messages out of the sender's memory, which the caller may free after an error.
void HostExecutor::retire(MessageBatch& batch) {
  free_wire();
  if (!broken_) return;
  const auto last = std::chrono::steady_clock::now() + kLongestStop;
  for (const Message& message : batch.messages) {
    if (!message.sends || message.stage != Message::Stage::kMapped) continue;
    // seq_cst: see Messages::copy_part.
    const auto reads = [&] {
      return region_.status(message.peer).reads_from.load(std::memory_order_seq_cst) ==
             1 + static_cast<std::uint64_t>(me_);
    };
    while (reads() && endpoint_->presence(message.peer).state == Presence::State::kHere) {
      if (std::chrono::steady_clock::now() >= last) {
        batch.reader = message.peer;
        break;
      }
      std::this_thread::sleep_for(50us);
    }
  }
}

Status HostExecutor::look_at(std::span<const int> ranks, const std::string& waiting) {
  claim_wire();
  if (wire_ != nullptr) wire_->progress();
  Status found;
  if (region_.ending()) found = broken_error(waiting);
  for (const int rank : ranks) {
    if (!found || rank == me_) continue;
    const Presence there = endpoint_->presence(rank);
    if (there.state == Presence::State::kHere) continue;
    Error error{Code::kPeerFailed, waiting + ": " + endpoint_->why_gone(rank, there), Rank{me_},
                Rank{rank}};
    error = with_place(std::move(error));
    (void)region_.abort(error);
    found = std::move(error);
  }
  if (!found) {
    give_up();
    pass_on_abort();
  }
  free_wire();
  return found;
}

Status HostExecutor::look_at_abort(const Call& call) const {
  if (!region_.ending()) [[likely]]
    return ok();
  return broken_error(describe_call(pack(call), call.count));
}

/// Whether to look at abort, deadline and peers although the network is busy: messages of others
/// may keep it busy for ever.
bool HostExecutor::patrol_due() {
  if (wire_ == nullptr || coarse_ms() < next_patrol_) return false;
  next_patrol_ = coarse_ms() + kPatrolMs;
  return true;
}

void HostExecutor::claim_wire() {
  if (wire_ == nullptr) return;
  // seq_cst, with those in abort: if one rank begins a call while another thread aborts, at least
  // one of the two sees the other.
  wire_users_.fetch_add(1, std::memory_order_seq_cst);
  while (aborting_.load(std::memory_order_seq_cst)) wait_detail::yield_cpu();
}

void HostExecutor::abort(const Error& error) {
  (void)region_.abort(error);
  if (wire_ == nullptr) return;
  wire_->wake();
  if (aborting_.exchange(true, std::memory_order_seq_cst)) return;
  // A thread that executes something passes the abort on by itself.
  if (wire_users_.load(std::memory_order_seq_cst) == 0) {
    const auto last = std::chrono::steady_clock::now() + kLongestGoodbye;
    try {
      do {
        wire_->progress();
      } while (wire_->pending() && std::chrono::steady_clock::now() < last);
    } catch (const std::bad_alloc&) {  // The others see this rank's end, or their deadline.
    }
  }
  aborting_.store(false, std::memory_order_release);  // release: what it did to the wire is over.
}

}  // namespace tutti::exec
