// File: exec/host_executor.h: executes the calls of one rank on one communicator, one after
// another.
//
// A call takes one of two ways, chosen by a rule that every rank evaluates alike:
//
//   packet   The message fits call lines (kCallPayload bytes) or a packet slot. Every rank writes
//            its part once, and every rank that needs it reads it and reduces in canonical order:
//            the plan "one_shot+multicast" by hand, with data and flag in the same cache line. No
//            exit barrier: lines and slots are used in turn, and nobody is more than a turn ahead.
//            Call lines of packets that lie in a slot also say where the rank's buffers are, so
//            that all ranks learn alike whether the next call of that size should take the other
//            way.
//   plan     Call lines first carry where each rank's buffers are. If all can be mapped, or be
//            read by the kernel, the plan is lowered (peers are read and written directly), else
//            slots carry the data.
//
// The tag of a call line carries a digest of all calls of its rank and of their ways: ranks that
// disagree get an error, not a hang. Ranks that wait also compare the records of their latest
// calls, and a rank that only gives looks back when it makes its next call
// (host_executor_calls.cc). Ranks that would run different plans get an error, too: before a route
// is used for the first time, one more round of call lines compares them. Everything here is a
// state machine that never blocks; `run` is that machine under a wait loop.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/cpus.h"
#include "exec/adapt/crowding.h"
#include "exec/adapt/slot_stores.h"
#include "exec/adapt/trial.h"
#include "exec/blocks.h"
#include "exec/call.h"
#include "exec/call_digest.h"
#include "exec/lane.h"
#include "exec/messages.h"
#include "exec/plan_source.h"
#include "exec/recent.h"
#include "transport/transport.h"

namespace tutti::exec {

class HostExecutor {
 public:
  struct Options {
    WaitPolicy wait;
    std::chrono::milliseconds timeout{60'000};
    /// Bytes up to which a collective goes by packets; the same on every rank.
    std::array<std::size_t, kCollectiveCount> packet_limit{};
    /// The same for ranks that lately used buffers which all of them can map.
    std::array<std::size_t, kCollectiveCount> mapped_packet_limit{};
    std::shared_ptr<const PlanSource> plans;
    /// Bytes of a block from which ranks read each other's plain inputs, if
    /// the endpoint can; the same on every rank.
    std::array<std::size_t, kCollectiveCount> read_from{};
    /// Bytes that the ranks of this machine read and write together, from which outputs go past the
    /// cache.
    std::size_t stream_from = SIZE_MAX;
    int machine_ranks = 1;  // Of this communicator, on this machine.
    /// By rank, "pid 17 on node3", for errors; may be empty.
    std::vector<std::string> places;
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
  /// The same for one that repeats the one before.
  Status run_again(const Call& call) {
    return run_walled([&] { begin_again(call); });
  }
  /// Whether a call is, but for its buffers, the one before, and goes by packets whatever the
  /// buffers are: then little of it has to be looked at again. That is half of its instructions.
  bool repeats(const Call& call) const {
    return repeatable_ && !broken_ && call.count == call_.count && call.packets == call_.packets &&
           pack(call) == what_;
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
  bool patrol();
  /// The same for messages. False: all have failed.
  bool patrol_messages();
  /// Whether this communicator is of no more use.
  bool broken() const { return broken_; }
  /// For a caller that waits for `ranks` outside of a call: ok, or why they can't come. If one of
  /// them has gone, this ends the communicator, so that all ranks are told. Not during a call.
  Status look_at(std::span<const int> ranks, const std::string& waiting);
  /// For a call that does nothing: ok, or why this communicator is over.
  Status look_at_abort(const Call& call) const;
  /// The result of a batch that is over. Never throws.
  Status outcome(const MessageBatch& batch) const noexcept;
  /// Messages, for the progress thread: posts a batch; moves what is under way.
  void post(MessageBatch& batch) {
    claim_wire();
    messages_.post(batch);
  }
  /// A batch that was posted is over. If it failed, waits (1 s at most) until no peer copies from
  /// its buffers any more.
  void retire(MessageBatch& batch);
  bool poll_messages();
  /// Whether what messages have written is on its way.
  bool messages_left() const { return wire_ == nullptr || !wire_->pending(); }
  /// The outcome, once poll said kDone or patrol said false.
  Status take_status() {
    free_wire();
    return std::move(status_);
  }

  /// One nap, until a peer has changed something, `ready` says so, or `longest` is over. True if
  /// ready.
  template <class Ready>
  bool sleep(Ready&& ready, std::chrono::nanoseconds longest) {
    if (wire_ == nullptr) return sleep_on(region_.doorbell(me_), ready, longest, fence_);
    if (ready()) return true;
    wire_->sleep(longest);
    return false;
  }
  /// Whether plain buffers of such a call are read by peers, unless some rank calls it in place.
  bool may_read(const Call& call) const;
  /// Whether the root of such a call, if it has its own block in place, leaves the copying to one
  /// other rank, though it could do half.
  bool may_share(const Call& call) const { return ranks_ == 2 && has_root(call.collective); }
  bool fence() const { return fence_; }
  /// Ends a nap. Any thread.
  void wake() const {
    if (wire_ != nullptr)
      wire_->wake();
    else
      ring(region_.doorbell(me_));
  }
  Endpoint& endpoint() const { return *endpoint_; }
  const Options& options() const { return options_; }
  /// How often another plan was tried because the one before took longer than predicted. Any
  /// thread.
  std::uint64_t plans_tried() const {
    return plans_tried_.load(std::memory_order_relaxed);  // relaxed: to be shown.
  }
  std::size_t rank_count() const { return static_cast<std::size_t>(ranks_); }

  /// Ends the call in progress and all later ones, on every rank. Any thread.
  void abort(const Error& error);

 private:
  enum class Phase {
    kCredit,
    kGather,
    kAgreeCredit,
    kAgreeGather,
    kMapCredit,
    kMapGather,
    kPlanCredit,
    kPlanGather,
    kLanes,
    kLeave,
    kStopping,  // It failed; ranks that write into its buffers have to stop first.
    kDone
  };
  /// What a call line carries before a plan is run for the first time on a route: which it is.
  struct PlanName {
    std::uint64_t hash = 0;
    std::array<char, kLinePayload - sizeof(std::uint64_t)> text{};  // For people; may be cut off.
  };
  static_assert(sizeof(PlanName) == kLinePayload);
  struct BoundPlan {
    std::vector<BoundLane> lanes;
    std::vector<std::byte> scratch;
    bool tiled = false, partials = false;
    PlanName name;
  };
  /// How calls of one kind and size go, once the planner was asked: nothing of it is looked up
  /// again.
  struct Route {
    std::uint64_t what = 0, count = 0;  // pack(call) and its count; 0: an empty entry.
    BoundPlan* plan = nullptr;
    std::size_t tile_elements = 0, tiles = 0;
    Access access = Access::kSlots;
    std::size_t which = 0;  // Of the plans that may be tried.
    Trial trial = {};
    bool agreed = false;  // All ranks have said that they run this plan.
  };
  /// Of so many rooted calls, that may go either way, one goes by a plan: its call lines tell all
  /// ranks alike whether the buffers can be mapped. Those of packets reach not everybody.
  static constexpr std::uint64_t kRootedTrial = 64;
  // A cache with two places for each; what finds both taken is asked again, on all ranks alike.
  static constexpr std::size_t kRoutes = 512;
  /// What a call line carries before a plan runs: where this rank's buffers are.
  struct Announcement {
    BufferName input, output;
    std::uint64_t input_at = 0, output_at = 0;  // In this rank's address space, for the kernel.
    std::uint32_t mapped = 1;   // In the second round: whether this rank could map all the others'.
    std::uint32_t took_ns = 0;  // The last call that went by a plan on trial; 0: not timed.
  };

  /// The remedy where ranks that make the same call would go different ways.
  static constexpr const char* kBuiltAlike =
      "; all ranks need the same build of Tutti, the same settings and the same plan files";

  // Whoever executes something drives the wire; if nobody does, whoever aborts.
  void claim_wire();
  void free_wire() {
    // release: pairs with the load in abort, which goes on with the wire.
    if (wire_ != nullptr) wire_users_.fetch_sub(1, std::memory_order_release);
  }
  Poll step();
  Poll step_plan();
  Poll leave();
  void begin_again(const Call& call);
  Status finish_running();
  Status finish_waiting(Poll result);
  template <class Begin>
  Status run_walled(Begin&& begin_call) {
    try {
      begin_call();
      return finish_running();
    } catch (const std::exception& thrown) {
      return finish_after(thrown);
    }
  }
  Status finish_after(const std::exception& thrown);
  void run_posted(MessageBatch& batch);
  void find_part();
  bool is_packet(const Call& call) const;
  bool symmetric() const { return symmetric_; }
  /// Calls that a rank may be ahead of the others: until it would write where they may still read.
  std::uint64_t credit_depth() const {
    const RegionConfig& config = region_.config();
    const std::uint32_t most = config.calls - 1;  // See next_place.
    if (call_.uneven && !packet_) return std::min(most, kBlockTables);
    return inline_ ? most : std::min(most, config.packet_slots);
  }
  /// Every how many calls a rank says that it has finished. Each time would cost reader and writer
  /// a cache miss a call. At most the credit there is, as the next call must not hang on it; a
  /// quarter, so that nobody waits in step.
  static std::uint64_t finished_period(const RegionConfig& config) {
    return std::max<std::uint64_t>(1, std::min(config.calls, config.packet_slots) / 4);
  }
  bool has_credit();
  bool gathered();
  void publish(std::size_t lines);
  void publish_inline();
  void write_line(std::size_t which, const std::byte* from, std::size_t bytes);
  bool learn_blocks();
  bool writes_past_cache() const;
  Announcement announcement();
  void publish_packet();
  void scale_into(std::byte* to);
  void copy_past_cache(std::byte* to);
  void finish_packet();
  void collect_packets(std::size_t block);
  template <class Payload>
  void announce(const Payload& mine) {
    static_assert(sizeof(Payload) <= kLinePayload);
    write_line(0, std::as_bytes(std::span(&mine, 1)).data(), sizeof(mine));
    publish(1);
  }
  void learn_from_packets();
  bool read_announcements();
  bool map_peers();
  void find_mates();
  bool may_map() const;
  bool could_map(int rank, const Announcement& from) const;
  /// The place of lines that comes next in turn. No division: that would take as long as the rest
  /// of a small call's bookkeeping.
  std::uint64_t after(std::uint64_t place) const {
    return place + 1 == region_.config().calls ? 0 : place + 1;
  }
  void next_place();
  void next_number(std::uint64_t way);
  void start_plan();
  bool agree_on_mapping();
  bool agree_on_plan();
  void start_lanes();
  Result<Route*> route();
  Trial trial_of(const PlanChoice& choice) const;
  void note_times();
  BoundPlan& bind(const plan::Plan& plan);
  Poll poll_lanes();
  Error read_error(const Error& found) const;
  void look_around();
  /// Whether it is worth telling that this rank has finished that call.
  bool finished_due(std::uint64_t call) const { return call - said_finished_ >= finished_period_; }
  void say_finished(std::uint64_t call);
  void finish();
  Poll fail(Error error);
  Error explain_timeout() const;
  Error broken_error(const std::string& what) const;
  Error message_error(const MessageBatch& batch) const;
  void fail_by(const std::exception& thrown) noexcept;
  void give_up();
  void end_messages(const Error& failure);
  const std::byte* payload_of(int rank) const;
  /// A call that two ranks made differently: the first such call that both records still have.
  struct Difference {
    std::uint64_t number = 0;
    CallSeen mine, theirs;
    bool first = false;  // It is known that the calls before it agree.
  };
  std::optional<Difference> difference_with(int rank) const;
  Error mismatch(int rank, const Difference& found) const;
  int odd_one(int rank, std::uint64_t number) const;
  bool agrees(int rank);
  bool calls_agree();
  bool calls_agree(std::chrono::steady_clock::time_point now);
  bool only_givers_gave();
  bool patrol_alone();
  bool waits_for_this(int rank) const;
  bool messages_stuck();
  bool check_tag(int rank, const CallLine& line);
  bool gathering() const {
    return phase_ == Phase::kGather || phase_ == Phase::kAgreeGather ||
           phase_ == Phase::kMapGather || phase_ == Phase::kPlanGather;
  }
  bool has_news() const;
  bool is_there(int rank, std::size_t line) const;
  bool look_for_news() const;
  bool may_look_on() const;
  bool awaits(int rank) const;
  void look_at_peers();
  bool patrol_due();
  int awaited() const;
  bool is_behind(int rank) const;
  std::string describe_rank(int rank) const;
  Error with_place(Error error) const;
  int to_blame() const;
  void say_waiting(std::chrono::nanoseconds waited);
  Poll end_by_abort();
  Poll stop();
  Poll poll_stopping();
  void pass_on_abort();
  bool seen(int rank);
  void find_lines();

  std::unique_ptr<Endpoint> endpoint_;
  Wire* wire_;                      // Null: all ranks see each other's memory.
  std::atomic<int> wire_users_{0};  // Calls and batches of messages under way.
  std::atomic<bool> aborting_{false};
  Region region_;
  CallRecord* record_;  // This rank's.
  int me_, ranks_;
  int owner_;  // The process that made it.
  bool fence_;
  std::uint64_t finished_period_;
  Options options_;
  // Calls after which a rank that makes the same one again and again looks where it is.
  static constexpr std::uint64_t kCpuPeriod = 16;

  Links links_;
  Messages messages_;
  std::map<const plan::Plan*, BoundPlan> bound_;
  std::vector<Route> routes_ = std::vector<Route>(kRoutes);

  // The call in progress.
  Call call_;
  Phase phase_ = Phase::kDone;
  Status status_;
  std::uint64_t what_ = 0;  // pack(call_).
  bool packet_ = false, inline_ = false;
  bool packets_touched_ = false;               // See Region::touch_packets.
  bool repeatable_ = false;                    // See repeats.
  bool symmetric_ = true;                      // No rank can be ahead by more than a call.
  bool one_gives_ = false;                     // The root.
  bool publishes_ = true;                      // Somebody reads this rank's packet.
  bool receives_ = true;                       // This rank gets an output.
  bool gives_ = false;                         // This rank only gives, and waits for nobody.
  std::uint64_t number_ = 0;                   // Of this call; counts up alike on every rank.
  std::uint64_t last_place_ = 0;               // Of those in turn.
  std::uint64_t place_ = 0;                    // Of its lines; alike on every rank.
  std::uint64_t digest_ = 0;                   // Of all calls up to this one.
  std::uint64_t last_word_ = 0;                // What went into the digest last: the call and way,
  std::uint64_t last_sizes_ = 0;               // its count or a hash of its counts.
  std::uint64_t tag_ = 0;                      // number_ and digest_.
  std::uint64_t everyone_finished_ = 0;        // Every rank has finished at least this call.
  std::uint64_t said_finished_ = 0;            // The last that this rank has said it finished.
  std::size_t packet_bytes_ = 0;               // That this rank publishes.
  std::size_t lines_ = 1;                      // Of the call lines, that every rank publishes.
  int next_peer_ = 0;                          // The first rank whose lines have not all been seen,
  std::size_t next_line_ = 0;                  // and which of them is next.
  std::size_t first_line_ = 0, end_line_ = 1;  // Of the lines, those that concern this rank;
  std::size_t own_first_ = 0, own_end_ = 0;    // and of its own those that concern no other.
  CallContext context_;
  Route* way_ = nullptr;
  BoundPlan* plan_ = nullptr;  // Of way_.
  Route* on_trial_ = nullptr;  // That the last call by a plan took, if it was timed.
  std::chrono::steady_clock::time_point trial_start_;
  std::uint32_t took_ns_ = 0;
  std::atomic<std::uint64_t> plans_tried_{0};
  SlotStores slot_stores_;
  bool all_mapped_ = false, mapping_ok_ = true, all_read_ = false, root_idles_ = false;
  bool lately_mapped_ = false;  // Of the last calls that told; alike on every rank.
  std::vector<BufferName> inputs_, outputs_;
  std::vector<Recent> known_, unmappable_;  // By rank, segments; alike on every rank.
  std::vector<bool> mates_;                 // By rank: others reach its memory;
  bool has_mates_ = false;                  // and whether there is such a rank.
  Crowding crowding_{options_.wait.ranks_per_cpu > 1};
  std::vector<int> neighbours_;         // Ranks of this CPU, as far as is known,
  std::uint64_t next_look_around_ = 0;  // and the call from which on to look again.
  std::vector<kernels::Source> sources_;
  Blocks blocks_;  // Of an uneven call.
  std::vector<std::byte>
      gathered_;  // By rank: payloads of several lines; of this rank, what it scaled.
  bool waiting_ = false;
  std::chrono::steady_clock::time_point wait_start_, next_look_, stop_end_;
  std::int64_t looked_at_wire_ = 0, next_patrol_ = 0;  // Milliseconds of the coarse clock.
  bool exposed_ = false;                               // Peers may write into this call's buffers.
  Error map_failed_;                                   // Why a peer's buffer could not be mapped.
  // When a waiting rank compares its calls with the others' again, and how long after that.
  std::chrono::steady_clock::time_point next_comparison_;
  std::chrono::milliseconds comparison_pause_{1};
  std::uint64_t next_compare_ = 0;  // A rank that runs ahead compares again before this call.
  std::uint64_t shown_ = 0;         // The latest call that was shown to a rank on another host.
  bool broken_ = false;
  std::optional<Error> failure_;  // Of a message of this rank.
};

}  // namespace tutti::exec
