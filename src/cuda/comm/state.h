// File: cuda/comm/state.h: what a DeviceCommunicator is made of.
//
//   rank     the rank and its device, the machine, and what set-up makes (device_rank.h)
//   order    the order of calls on streams and in graphs (launch_order.h)
//   signals  signals between ranks by operations of streams (mesh/stream_signals.h)
//   memory   what ranks have registered with each other (registered.h)
//   plans    what is loaded, and which plan a call takes (plans.h)
//   record   calls in the flight record (call_record.h)
//   health   failures, and ending calls early (health.h); the process's watcher asks it, too
//            (watcher.h)
//   recoveries  the operations of ranks that are left (recover.cc)
//
// A call is checked, prepared and launched. The first call of a kind and a class of sizes makes
// what it needs; later ones look it up and launch a kernel: they neither allocate nor wait.
//
// A rank's memory is written by its peers' kernels, so it stays until all ranks have left
// (leave.cc).
#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

#include "cuda/comm/call_record.h"
#include "cuda/comm/device_rank.h"
#include "cuda/comm/health.h"
#include "cuda/comm/launch_order.h"
#include "cuda/comm/plans.h"
#include "cuda/comm/registered.h"
#include "cuda/comm/watcher.h"
#include "cuda/mesh/copy_engines.h"

namespace tutti {

/// A message that a rank sends or receives.
struct DeviceMessage {
  bool sends = false;
  int peer = 0;
  DataType type = DataType::kUint8;
  std::byte* data = nullptr;
  std::size_t count = 0;
  cudaStream_t stream = nullptr;
};

/// What a rank does with a peer's memory while the peer does something else, or waits for of it.
struct OneSided {
  enum class Kind : std::uint8_t { kPut, kSignal, kWait };
  Kind kind = Kind::kPut;
  int peer = 0;
  const void* data = nullptr;  // A put: from here,
  void* target = nullptr;      // to there, as this process sees it; so many bytes.
  std::size_t bytes = 0;
  int number = 0;           // The signal's,
  std::uint64_t count = 1;  // and how many are waited for.
  cudaStream_t stream = nullptr;
};

/// Operations of ranks that are left, one at a time: they use the same boards.
struct DeviceRecoveries {
  std::mutex mutex;
  /// By operation and list, the number of the latest; the same on all ranks.
  std::map<std::vector<int>, std::uint16_t> begun;  // Guarded by mutex.
};

/// It has more than 20 functions: each kind of call is checked, prepared and launched here.
struct DeviceCommunicator::State {
  explicit State(Communicator joined) : rank(std::move(joined)) {}
  ~State() { Watcher::instance().remove(health); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  DeviceRank rank;
  LaunchOrder order;
  exec::StreamSignals signals;
  exec::CopyEngines copies;  // Made where TUTTI_ALGORITHM names them.
  RegisteredMemory memory{rank, order};
  PlanCache plans{rank};
  DeviceCallRecord record{rank, order};
  Health health{rank, order, signals, record};
  exec::CudaCall next_call;  // Kept for its lists.
  DeviceRecoveries recoveries;

  /// Checks what the user gave, and whether calls can begin.
  Status check(const Request& request) const;
  Status check(const DeviceMessage& message) const;
  /// Makes what is missing. One thread at a time, as calls.
  Status prepare(const Request& request) {
    return plans.prepare(request, memory.mapped_of(request));
  }
  /// Puts on the stream what was prepared.
  Status launch(const Request& request, cudaStream_t stream);
  /// All at once; matched by the order in which peers name them.
  Status launch(std::vector<DeviceMessage> messages);
  /// Launches the messages; within a group, at its end.
  Status start(std::vector<DeviceMessage> messages);
  /// Blocks that differ in size, as messages between pairs of ranks.
  Status start_uneven(const Request& request, cudaStream_t stream);
  Status start(const RmsNorm& call, cudaStream_t stream);
  Status start(const SgdStep& call, cudaStream_t stream);
  /// Checks it, and puts it onto its stream; within a group, at its end.
  Status start(const OneSided& one);
  Status launch(const OneSided& one);

  /// Calls `launch`, which puts kernels on the stream, in the order of calls.
  template <class Launch>
  Status in_order(cudaStream_t stream, Launch launch) {
    const exec::OnDevice on(rank.device);
    TUTTI_RETURN_IF_ERROR(order.enter(stream));
    TUTTI_RETURN_IF_ERROR(launch());
    if (rank.network() != nullptr) rank.network()->wake();
    TUTTI_RETURN_IF_ERROR(order.leave(stream));
    // Behind that: a thread that sees that it was launched has to see its event.
    return record.launched(stream);
  }

  std::size_t device_bytes() const;
  std::string describe() const;
  Result<std::string> explain(const Request& request);
  Result<double> estimate_us(const Request& request);

 private:
  /// All plans for a call, those that can be taken in front, and the slots' format of the first.
  struct Choice {
    std::vector<planner::Candidate> list;
    cuda::SlotFormat format = cuda::SlotFormat::kSimple;
  };
  Result<Choice> choose(const Request& request, const planner::Request& asked) const;
  exec::CudaCall& call_of(const Request& request);
  Status check(const OneSided& one) const;
  /// How the call goes over multicast memory; none: kernels can't do it. Ranks choose alike.
  std::optional<exec::CudaMultimem> multimem_of(const Request& request) const;
};

/// The request as Settings::wire says that it goes.
Request with_wire(Request request, const Settings& settings);

/// The request with some buffers, whatever they will be, where it has none.
inline Request with_buffers(Request request) {
  static std::byte somewhere[2];
  if (request.input == nullptr) request.input = somewhere;
  if (request.output == nullptr) request.output = somewhere + 1;
  return request;
}

void add_to_group(DeviceCommunicator::State& state, const Request& request, cudaStream_t stream);
void add_to_group(DeviceCommunicator::State& state, const OneSided& one);

struct DeviceJoin {
  int device = 0;
  const Settings& settings;
  HostGraph known = {};       // The topology of the communicator that the ranks come from.
  std::stop_token stop = {};  // Ends it on all ranks.
};
/// Joins devices of ranks that `control` joins. Collective.
Result<std::unique_ptr<DeviceCommunicator::State>> join_devices(Communicator control,
                                                                const DeviceJoin& how);

/// Notes that a rank is there, once its peers know its memory.
void arrive(std::uint64_t token);
/// Takes a rank whose owner no longer needs it, and frees it once no peer needs it.
void depart(std::unique_ptr<DeviceCommunicator::State> state);
/// Frees departed ranks that no peer needs any more.
void sweep_departed();

}  // namespace tutti
