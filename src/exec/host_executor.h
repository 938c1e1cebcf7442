// File: exec/host_executor.h: executes the calls of one rank on one communicator, one after
// another. Its parts:
//
//   CallBoard    the lines in which ranks tell each other what a call needs, in rounds
//   Agreement    finds calls that differ between ranks
//   EagerPath    small calls: one round, and its payload is the message
//   PlanPath     all other calls: rounds that settle which plan is run, and its lanes
//   MessagePath  messages between two ranks
//   Watchdog     ends what can't go on, and finds the rank to blame
//   Adapting     what changes at run time how calls are executed
//
// The path of a call is chosen by a rule that every rank evaluates alike. The tag of a call line
// carries a digest of all calls of its rank and of their paths: ranks that disagree get an error,
// not a hang. Everything here is a state machine that never blocks; `run` is that machine under a
// wait loop.
#pragma once
#include <chrono>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/adapt/adapting.h"
#include "exec/adapt/patience.h"
#include "exec/calls/active_call.h"
#include "exec/calls/agreement.h"
#include "exec/calls/call_board.h"
#include "exec/eager_path.h"
#include "exec/message_path.h"
#include "exec/peer_buffers.h"
#include "exec/plan_path.h"
#include "exec/plan_source.h"
#include "exec/watchdog.h"

namespace tutti::exec {

/// It has more than 20 functions and 15 fields: it is the face of all parts for the thread that
/// calls and for the progress thread, and holds the parts by value.
class HostExecutor {
 public:
  struct Options {
    WaitPolicy wait;
    std::chrono::milliseconds timeout{60'000};
    /// Bytes up to which a collective is eager; the same on every rank.
    EagerLimits::Bytes eager_limit_bytes{};
    /// The same for ranks that lately used buffers which all of them can map.
    EagerLimits::Bytes mapped_eager_limit_bytes{};
    std::shared_ptr<const PlanSource> plans;
    /// Bytes of a block from which ranks read each other's plain inputs, if
    /// the endpoint can; the same on every rank.
    PeerBuffers::Bytes read_from_bytes{};
    /// Bytes that the ranks of this machine read and write together, from which outputs go past the
    /// cache.
    std::size_t stream_from_bytes = SIZE_MAX;
    std::size_t most_unexpected = SIZE_MAX;  // See Messages.
    int machine_ranks = 1;                   // This communicator's ranks on this machine.
    bool adapt = true;                       // See adapting.h; the same on every rank.
    /// By rank, "pid 17 on node3", for errors; may be empty.
    std::vector<std::string> places;
    flight::About flight;  // What others are told of this rank's record.
  };

  HostExecutor(std::unique_ptr<Endpoint> endpoint, int me, Options options);
  /// Tells the other ranks that this one leaves, and after which call. In a forked child it does
  /// nothing: the rank is the parent's.
  ~HostExecutor();
  HostExecutor(const HostExecutor&) = delete;
  HostExecutor& operator=(const HostExecutor&) = delete;

  /// Executes a call on this thread; returns when this rank's part is done.
  Status run(const Call& call) {
    return run_walled([&] { begin(call); });
  }
  /// The same for one that repeats the one before. By value: the compiler loads two pointers
  /// from memory as one, which stalls if they were stored one by one just before.
  Status run_again(const void* input, void* output) {
    return run_walled([=, this] { begin_again(input, output); });
  }
  /// Whether a call (`pack` of it) is, but for its buffers, the one before, and eager whatever the
  /// buffers are.
  bool repeats(std::uint64_t word, std::size_t count, EagerUse eager_use) const {
    return eager_call_ && eager_.repeatable() && !watchdog_.broken() && count == call_.count &&
           eager_use == call_.eager_use && word == call_.word;
  }
  /// Sends and receives on this thread; returns when all messages of the batch are done.
  Status run(MessageBatch& batch);

  /// Does `step`, one or more of the functions below, which may throw (memory runs out). Then this
  /// communicator has failed, all ranks are told, `poll` says kDone, and all messages are over.
  /// False: it threw.
  template <class Step>
  bool walled(Step&& step) {
    try {
      step();
      return true;
    } catch (const std::exception& thrown) {
      fail_by(thrown);
      return false;
    }
  }

  // The same in steps, for the progress thread.
  void begin(const Call& call);
  Poll poll();
  /// Checks abort, deadline and peers; to be called now and then while `poll` is pending. False: it
  /// failed.
  bool check_health();
  /// The outcome, once poll said kDone or check_health said false.
  Status take_status() {
    watchdog_.free_link();
    return std::move(status_);
  }
  MessagePath& messages() { return messages_; }
  /// One nap, as CallBoard::sleep; `wake` ends it, on any thread.
  template <class Ready>
  bool sleep(Ready&& ready, std::chrono::nanoseconds longest) {
    return board_.sleep(ready, longest);
  }
  void wake() const { board_.wake(); }

  /// Whether this communicator is of no more use.
  bool broken() const { return watchdog_.broken(); }
  /// For a caller that waits for `ranks` outside of a call: ok, or why they can't come. If one of
  /// them has gone, this ends the communicator, so that all ranks are told. Not during a call.
  Status look_at(std::span<const int> ranks, const std::string& waiting);
  /// Ok, or why later calls of `function` can't work: the communicator is over, or a rank has gone,
  /// which this tells nobody; with `kDead`, a rank that has left does not count. During a call of
  /// this communicator: `idle` is false, and that call looks at the ranks.
  enum class Gone { kDead, kDeadOrLeft };
  Status health(std::string_view function, bool idle, Gone counted = Gone::kDeadOrLeft);
  /// The calls that this rank has completed.
  std::uint64_t completed() const { return completed_; }
  /// For what uses the link outside of calls (exec/recovery_board.h).
  void claim_link() { watchdog_.claim_link(); }
  void free_link() { watchdog_.free_link(); }
  /// The error with the process of the rank that is to blame.
  Error with_place(Error error) const { return watchdog_.with_place(std::move(error)); }
  /// For a call that does nothing: ok, or why this communicator is over.
  Status look_at_abort(const Call& call) const;
  /// Ends the call in progress and all later ones, on every rank. Any thread.
  void abort(const Error& error) { watchdog_.abort(error); }

  Endpoint& endpoint() const { return *endpoint_; }
  const Team& team() const { return board_.team(); }
  const PeerBuffers& buffers() const { return plans_.buffers(); }
  const Adapting& adapting() const { return adapt_; }
  const WaitPolicy& wait() const { return wait_; }
  const flight::Recorder& flight() const { return flight_; }

 private:
  using Phase = flight::At;  // In order; never kMessage.

  void begin_again(const void* input, void* output);
  template <class Begin>
  Status run_walled(Begin&& begin_call) {
    try {
      begin_call();
      return finish_running();
    } catch (const std::exception& thrown) {
      return finish_after(thrown);
    }
  }
  Status finish_running();
  Status finish_waiting(Poll result);
  Status finish_after(const std::exception& thrown);
  void run_posted(MessageBatch& batch);

  Poll step();
  Poll step_lanes();
  /// Looks how far the others are. Ranks that run ahead compare their calls then.
  bool find_credit() {
    return !(agreement_.due() && fails(agreement_.compare_all())) && board_.look_for_credit();
  }
  Poll end_plan_round();
  Poll finish();
  Poll leave();
  Poll end_ok() {
    ++completed_;
    flight_.end_ok(board_.number(), eager_call_ ? board_.last_peer() : -1);
    return Poll::kDone;
  }

  bool fails(std::optional<Error> found);
  bool writers_agree() { return !board_.round().gives || !board_.has_stray() || strays_agree(); }
  bool strays_agree();
  void look_at_last_call() noexcept;
  bool look_for_news() const;
  bool has_news() const {
    return phase_ != Phase::kGather || team().remote_link != nullptr || board_.has_news();
  }
  bool awaits(int rank) const;
  std::span<const int> find_awaited();

  Poll fail(Error error);
  void fail_by(const std::exception& thrown) noexcept;
  Poll end_by_abort();
  void record_failure(Code code) noexcept;
  Poll stop();
  Poll poll_stopping();

  std::unique_ptr<Endpoint> endpoint_;
  flight::Recorder flight_;
  CallBoard board_;
  // The call in progress.
  Phase phase_ = Phase::kDone;
  bool eager_call_ = false;
  bool exposed_ = false;  // Peers may write into its buffers.
  ActiveCall call_;
  Status status_;
  Adapting adapt_;
  PlanPath plans_;
  EagerPath eager_;
  Watchdog watchdog_;
  Agreement agreement_;
  MessagePath messages_;
  WaitPolicy wait_;
  Patience patience_;
  std::uint64_t completed_ = 0;      // Calls.
  std::vector<int> awaited_;         // Ranks for which this one waits.
  std::int64_t looked_at_link_ = 0;  // By the coarse clock.
  int owner_;                        // The process that made it.
};

}  // namespace tutti::exec
