// File: comm/state.h: what a communicator is made of, and how calls get to its executor.
#pragma once
#include <array>
#include <compare>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "base/wall.h"
#include "comm/exchange_over.h"
#include "comm/plan_selector.h"
#include "comm/progress.h"
#include "comm/recovery.h"
#include "exec/host_executor.h"
#include "planner/plan_files.h"
#include "planner/planner.h"
#include "tutti/communicator.h"

namespace tutti {

/// What ends where a communicator is aborted or revoked: its windows, which may outlive it. Any
/// thread.
class Dependents {
 public:
  void add(exec::HostExecutor& executor) {
    const std::lock_guard lock(mutex_);
    executors_.push_back(&executor);
  }
  void remove(const exec::HostExecutor& executor) {
    const std::lock_guard lock(mutex_);
    std::erase(executors_, &executor);
  }
  void abort(const Error& error) {
    const std::lock_guard lock(mutex_);
    for (exec::HostExecutor* const executor : executors_) executor->abort(error);
  }

 private:
  std::mutex mutex_;
  std::vector<exec::HostExecutor*> executors_;
};

/// It has more than 20 functions and 15 fields: all that a communicator is made of, and each kind
/// of call's way to the executor.
struct Communicator::State {
  Rank me;
  int rank_count = 1;
  Settings settings;
  std::string transport;
  bool devices = false;  // Joins the ranks of a DeviceCommunicator.
  int node_ranks = 1;    // Ranks that compete for `cpus`: of the whole job, as far as it is known.
  int cpus = 1;
  double created_ms = 0;
  /// Which rank of which process it is, in all communicators that come from one another.
  struct Identity {
    std::array<std::uint64_t, 2> process{};
    std::uint64_t origin = 0;  // The serial number of its first communicator in the process.
    // clang-tidy takes the 0 in the comparison that the compiler writes for a pointer.
    friend auto operator<=>(const Identity&,  // NOLINT(modernize-use-nullptr)
                            const Identity&) = default;
  };
  std::vector<Identity> identities;  // By rank.
  std::uint64_t origin() const { return identities[static_cast<std::size_t>(me.value)].origin; }
  exec::flight::About flight;  // What others are told of its record.
  std::shared_ptr<const PlanSelector> selector;
  std::unique_ptr<exec::HostExecutor> executor;
  std::unique_ptr<CallQueue> queue;
  /// The last call's override of its own, so that a row of alike calls is looked up once.
  struct LastOverride {
    std::string text;
    exec::Call call;  // Its collective, root and unevenness, and what the override made of it.
  };
  mutable LastOverride last_override;
  RecoveryHistory recovery;
  /// For what outlives a communicator and asks for it (Prepared): null once that has gone, though
  /// the progress thread may still carry on what was started.
  std::shared_ptr<State*> here = std::make_shared<State*>(this);
  std::shared_ptr<Dependents> dependents = std::make_shared<Dependents>();

  /// Checks what the user gave. Ok, or kInvalidArgument in one line.
  Status check(const exec::Call& call) const;
  /// Executes now, on this thread, unless asynchronous work or a group is under way.
  Status run(const exec::Call& call);
  /// The same, of a call whose buffers are there; `word`: exec::pack of it.
  Status run(const exec::Call& call, std::uint64_t word);
  /// The same. For a call that repeats the one before, no exec::Call is built: that would take as
  /// long as the rest of its bookkeeping.
  Status run(Collective collective, const void* input, void* output, std::size_t count,
             DataType type, const Reduction& reduction, int root);
  Result<Work> start(const exec::Call& call);
  /// Sends or receives, at once or by way of the progress thread.
  Status run(exec::Message message);
  Result<Work> start(const exec::Message& message);
  Status check(const exec::Message& message) const;
  exec::Call make_call(Collective collective, const void* input, void* output, std::size_t count,
                       DataType type, const Reduction& reduction, int root) const;
  Result<exec::Call> make_call(const Request& request) const;
  /// The same, with all that `run` and `start` check.
  Result<exec::Call> make_checked_call(const Request& request) const;
  Status take_override(exec::Call& call, std::string_view algorithm_override) const;
  Status check_wire(const exec::Call& call) const;
  Status check_blocks(const Request& request) const;
  /// The count of this rank's block.
  std::size_t own_count(const Blocks& blocks) const;
  /// Calls `body` and returns its result. If it throws (no memory), returns an error and ends this
  /// communicator on all ranks: they may wait for what this rank did not do.
  template <class Body>
  std::invoke_result_t<Body> guarded(std::string_view function, Body&& body) const {
    try {
      return std::forward<Body>(body)();
    } catch (const std::exception& thrown) {
      return ended_by(function, thrown);
    }
  }
  Error ended_by(std::string_view function, const std::exception& thrown) const noexcept;
  /// By the program: ends this communicator and its windows on all ranks. Any thread.
  void end_all(const Error& error) const {
    executor->abort(error);
    dependents->abort(error);
  }

 private:
  Status run_checked(const exec::Call& call);
  /// Whether the progress thread has nothing to do for this communicator.
  bool is_free() const {
    // acquire: pairs with the progress thread's release when it left the executor.
    return queue->pending.load(std::memory_order_acquire) == 0;
  }
  /// Whether a call differs from the one before, which was checked, in its buffers alone.
  bool repeats(std::uint64_t word, std::size_t count, exec::EagerUse eager_use) const;
};

/// Whether the calling thread has a group open; notes in it work that was started, and messages,
/// which it starts at its end.
bool in_group();
void add_to_group(Work work);
Work add_to_group(Communicator::State& state, const exec::Message& message);

/// Whether Settings::wire is for such a call.
constexpr bool takes_wire(const exec::Call& call) {
  return call.collective == Collective::kAllReduce && call.type == DataType::kFloat32 &&
         (call.op == ReduceOp::kSum || call.op == ReduceOp::kAvg);
}

inline bool Communicator::State::repeats(std::uint64_t word, std::size_t count,
                                         exec::EagerUse eager_use) const {
  return is_free() && executor->repeats(word, count, eager_use) && !in_group();
}

inline Status Communicator::State::run(const exec::Call& call, std::uint64_t word) {
  if (repeats(word, call.count, call.eager_use)) [[likely]]
    return executor->run_again(call.input, call.output);
  return run(call);
}

inline Status Communicator::State::run(Collective collective, const void* input, void* output,
                                       std::size_t count, DataType type, const Reduction& reduction,
                                       int root) {
  if (input != nullptr && output != nullptr &&
      repeats(exec::pack(collective, type, reduction.op, root), count, exec::EagerUse::kBySize))
      [[likely]]
    return executor->run_again(input, output);
  return run(make_call(collective, input, output, count, type, reduction, root));
}

inline exec::Call Communicator::State::make_call(Collective collective, const void* input,
                                                 void* output, std::size_t count, DataType type,
                                                 const Reduction& reduction, int root) const {
  exec::Call call;
  call.collective = collective;
  call.type = type;
  // What a collective ignores is not part of the call: ranks may differ in it.
  call.op = reduces(collective) ? reduction.op : ReduceOp::kSum;
  call.root = has_root(collective) ? root : 0;
  call.input = static_cast<const std::byte*>(input);
  call.output = static_cast<std::byte*>(output);
  call.count = count;
  call.scale = reduction.scale;
  if (!settings.wire.is_plain() && takes_wire(call)) call.set(settings.wire);
  return call;
}

/// A communicator's insides, for the tools that come with the library.
struct Insides {
  static Communicator::State& of(const Communicator& comm);
  static Communicator made_of(std::unique_ptr<Communicator::State> state);
};

/// What an open group holds of another kind of calls: it knows nothing of them but when to begin.
class GroupPart {
 public:
  virtual ~GroupPart() = default;
  /// The group ends: begins all that was added. Does not wait.
  virtual Status end() = 0;
};
/// That of the calling thread's open group, which has one at most; null until it is set.
std::unique_ptr<GroupPart>& group_part();

/// The configuration that a communicator is made with.
struct CommunicatorConfig {
  Rank me;
  int rank_count = 1;
  const Settings& settings;
  bool devices = false;                         // State::devices.
  const Communicator::State* parent = nullptr;  // The one it is split from.
  std::function<Status()> look = nullptr;       // As Opening's.
  Rendezvous* rendezvous = nullptr;             // Where the ranks meet; null: over a communicator.
  std::uint64_t origin = 0;  // Without a parent: State::origin of a rank that grows; 0: a new one.
};

/// The settings of a part, whose ranks keep their weights; by rank of the part, the rank in the
/// whole.
Settings settings_of_part(const Settings& whole, const std::vector<int>& ranks);

/// Makes a communicator's insides: each rank introduces itself, a transport is chosen and opened.
/// Collective.
Result<std::unique_ptr<Communicator::State>> make_state(const CommunicatorConfig& comm_config,
                                                        const Exchange& exchange);
/// The same for ranks that meet at a rendezvous, whose phases begin with `name`.
Result<std::unique_ptr<Communicator::State>> make_state(const CommunicatorConfig& comm_config,
                                                        Rendezvous& rendezvous,
                                                        std::string_view name);

}  // namespace tutti
