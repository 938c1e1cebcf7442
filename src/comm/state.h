// File: comm/state.h: what a communicator is made of, and how calls get to its executor.
#pragma once
#include <memory>
#include <string>

#include "comm/progress.h"
#include "exec/host_executor.h"
#include "planner/planner.h"
#include "tutti/communicator.h"

namespace tutti {

struct Communicator::State {
  Rank me;
  int rank_count = 1;
  Settings settings;
  std::string transport;
  int node_ranks = 1;  // Ranks that compete for `cpus`: of the whole job, as far as it is known.
  int cpus = 1;
  double created_ms = 0;
  std::unique_ptr<exec::HostExecutor> executor;
  std::unique_ptr<CallQueue> queue;
  int splits = 0;  // Numbers the splits, alike on every rank.

  /// Checks what the user gave. Ok, or kInvalidArgument in one line.
  Status check(const exec::Call& call) const;
  /// Executes now, on this thread, unless asynchronous work or a group is under way.
  Status run(const exec::Call& call);
  Result<Work> start(const exec::Call& call);
  /// Sends or receives, at once or by way of the progress thread.
  Status run(exec::Message message);
  Result<Work> start(const exec::Message& message);
  Status check(const exec::Message& message) const;
  exec::Call make_call(Collective collective, const void* input, void* output, std::size_t count,
                       DataType type, const Reduction& reduction, int root) const;
  /// Of a request whose blocks, if it has any, are checked.
  exec::Call make_call(const Request& request) const;
  Status check_blocks(const Request& request) const;
  /// Of this rank's block.
  std::size_t own_count(const Blocks& blocks) const;
};

/// Whether the calling thread has a group open; notes in it work that was started, and messages,
/// which it starts at its end.
bool in_group();
void add_to_group(Work work);
Work add_to_group(Communicator::State& state, const exec::Message& message);

/// The all-gather of set-up, over whatever joins the ranks so far.
using Exchange = std::function<Result<std::vector<Bytes>>(std::string_view phase,
                                                          std::span<const std::byte> mine)>;

/// Makes a communicator's insides: everybody says who he is, the transport is chosen and opened.
/// `node_ranks` of the parent, or 0. Collective.
Result<std::unique_ptr<Communicator::State>> make_state(Rank me, int rank_count,
                                                        const Settings& settings,
                                                        const Exchange& exchange, int node_ranks);

}  // namespace tutti
