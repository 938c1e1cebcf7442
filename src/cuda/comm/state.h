// File: cuda/comm/state.h: what a DeviceCommunicator is made of.
//
//   control   a Communicator of host memory between the same ranks: set-up, aborts, leaving
//   mesh      the ranks' rings in their devices' memory, and what runs plans in them
//   network   between hosts: what carries the slots of those rings
//   plans     those loaded so far; a route leads from a kind of call and a class of sizes to one
//
// A call looks its route up and launches a kernel: it neither allocates nor waits. What it needs is
// made by `prepare`, which is the first thing that a call does; after the first of a kind and class
// there is nothing left to make.
//
// Order. Each launch records the communicator's event. A call waits for it if the call before was
// on another stream. A graph does both by nodes: its first call waits for the record that is the
// latest when the graph is launched, and each of its calls records the event anew. So replays and
// other calls run in the order in which they were launched, on any streams. Within a capture,
// another event orders the calls of that capture.
//
// Leaving. A rank's memory is written by its peers' kernels, so it stays until all ranks have left
// (leave.cc).
#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "comm/state.h"
#include "cuda/comm/select.h"
#include "cuda/mesh/apart.h"
#include "cuda/mesh/mesh.h"
#include "cuda/mesh/network.h"
#include "tutti/device_communicator.h"

namespace tutti {

/// A message of one rank: one that it sends, or one that it gets.
struct DeviceMessage {
  bool sends = false;
  int peer = 0;
  DataType type = DataType::kUint8;
  std::byte* data = nullptr;
  std::size_t count = 0;
  cudaStream_t stream = nullptr;
};

/// An event that is made when it is first needed.
class CudaEvent {
 public:
  /// On this thread's device.
  Status make();
  Status record(cudaStream_t stream) const;
  /// What comes on the stream waits for what was recorded last.
  Status hold(cudaStream_t stream) const;
  /// The same as nodes of the graph that captures the stream: each launch of the graph does so.
  Status record_by_graph(cudaStream_t stream) const;
  Status hold_by_graph(cudaStream_t stream) const;
  Status synchronize() const;
  /// Whether the work before the latest record is done.
  bool done() const { return cudaEventQuery(event_.get()) != cudaErrorNotReady; }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  std::unique_ptr<CUevent_st, Destroy> event_;
};

using exec::RelaxedCapture;

struct DeviceCommunicator::State {
  // Root, lanes; what of the buffers peers map.
  using PlanKey = std::tuple<const Algorithm*, int, std::uint32_t, plan::Mapped>;
  // Root, class of sizes; the same.
  using RouteKey = std::tuple<Collective, int, std::size_t, plan::Mapped>;

  explicit State(Communicator joined) : control(std::move(joined)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Communicator control;
  Rank me;
  int rank_count = 1;
  int device = 0;
  Settings settings;
  std::uint64_t token = 0;  // Names this communicator; alike on all ranks.
  planner::DeviceMachine machine;
  bool staged = false;                // Some ranks' devices don't reach each other's memory.
  exec::CudaMemory sample;            // For others to try whether they can open such memory,
  exec::CudaExport sample_export;     // as which it is named to them,
  std::vector<std::string> refusals;  // and why this rank can't open that of another.
  std::array<bool, kCollectiveCount> packets{};  // Which may go by the one-shot kernel.
  std::unique_ptr<exec::CudaMesh> mesh;
  exec::CudaApart apart;                       // Slots of rings to other hosts, if they are there;
  std::string cards;                           // whose, as of TUTTI_RDMA_DEVICES;
  std::string slots_away;                      // and where they are, and why, for describe().
  std::unique_ptr<exec::CudaNetwork> network;  // Null: all are on one host.
  double created_ms = 0;
  /// Memory that all ranks have registered, in the order in which they did.
  struct Registered {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    exec::CudaExport exported;
    std::vector<exec::CudaImport> opened;
    std::vector<std::byte*> everywhere;  // By rank, as this process sees it; null: another host's.
    std::uint64_t number = 0;            // Of registrations, alike on all ranks.
    bool window = false;                 // Each rank ends it for itself.
  };
  std::vector<Registered> registered;
  std::uint64_t registrations = 0;
  exec::CudaCall next_call;  // Kept for its lists.

  std::map<std::pair<Collective, int>, plan::Shape> shapes;  // By root.
  std::map<PlanKey, exec::CudaPlan> plans;
  struct Route {
    const exec::CudaPlan* plan = nullptr;
    bool two_shot = false;  // The kernel that stands for it is taken, if it takes the call.
  };
  std::map<RouteKey, Route> routes;
  std::string choices;  // What was chosen, for describe(): a line each.

  // The order of all calls that are launched, and of those within the last capture.
  struct Last {
    CudaEvent event;
    unsigned long long stream = 0;  // Its id: a handle may name another stream in another thread.
    bool there = false;
  };
  Last launched, in_capture;
  Last* current = nullptr;         // Of which a call is being put on a stream.
  unsigned long long capture = 0;  // Which one the last was.
  bool captured = false;           // Graphs may replay calls.
  CudaEvent fork;                  // Of streams that messages of one group name.
  std::uint64_t calls = 0;
  std::atomic<bool> revoked{false};  // relaxed: no other memory depends on it.
  // By the steady clock, in ns: when to look at peers next, and since when this rank has waited for
  // a peer that had ended; 0: it does not.
  mutable std::atomic<std::int64_t> next_look{0}, ended_since{0};

  /// Checks what the user gave; what has failed; kOk: it may begin.
  Status check(const Request& request) const;
  Status check(const DeviceMessage& message) const;
  Status failure() const;
  /// kPeerFailed: a peer has ended, and this rank's kernels wait for it. Looks only now and then.
  Status look_at_peers() const;
  std::string why_ended(int peer) const;
  bool has_work() const;  // Whether calls have not ended.

  /// Makes what is missing. One thread at a time, as calls.
  Status prepare(const Request& request);
  /// Puts on the stream what was prepared.
  Status launch(const Request& request, cudaStream_t stream);
  /// What an uneven request moves, as messages between this rank and each that has a part in it.
  std::vector<DeviceMessage> messages_of(const Request& request, cudaStream_t stream) const;
  /// All at once; matched by the order in which peers name them.
  Status launch(std::vector<DeviceMessage> messages);
  /// Makes what is missing, and launches; within a group that does.
  Status start(std::vector<DeviceMessage> messages);

  Status register_memory(void* data, std::size_t bytes, bool window);
  Status deregister_memory(void* data);
  Status close_window(void* data);
  /// Where a buffer is in registered memory, on all ranks. Null: peers don't map it.
  struct Place {
    const Registered* memory = nullptr;
    std::size_t offset = 0;
    /// Alike on all ranks.
    std::uint64_t number() const {
      return memory == nullptr ? 0 : memory->number << 48 | (offset + 1);
    }
    /// By rank, as this process sees it; null: another host's. Empty: peers don't map it.
    template <class Pointer>
    void list(std::vector<Pointer>& places) const {
      places.clear();
      if (memory == nullptr) return;
      for (std::byte* const at : memory->everywhere)
        places.push_back(at == nullptr ? nullptr : at + offset);
    }
  };
  Place place_at(const void* buffer, std::size_t bytes) const;
  Place place_of(const Request& request, bool input) const;
  /// What peers map of a call's buffers.
  plan::Mapped mapped_of(const Request& request) const;
  /// Tells the call where they are.
  void add_peers(const Request& request, exec::CudaCall& call) const;
  /// A hash of where a call's buffers are (CudaCall::places); 0: not in registered memory.
  static std::uint64_t places_of(std::initializer_list<std::uint64_t> numbers);
  /// Whether kernels of up to eight sources can do a call on registered memory.
  bool can_fuse() const;
  Status start(const RmsNorm& call, cudaStream_t stream);
  Status start(const SgdStep& call, cudaStream_t stream);

  bool goes_by_packets(const Request& request) const;
  RouteKey route_of(const Request& request) const;
  /// What the planner is asked for a call.
  planner::Request planner_request(const Request& request);
  /// Valid until it is asked again.
  const exec::CudaCall& call_of(const Request& request);
  exec::Call host_call(const Request& request) const;
  Result<Route> make_route(const Request& request);
  /// Before and after what is put on a stream.
  Status enter(cudaStream_t stream);
  Status leave(cudaStream_t stream);
  Status match_own(std::vector<DeviceMessage>& messages, cudaStream_t stream) const;

  std::size_t device_bytes() const;
  std::string describe() const;
  Result<std::string> explain(const Request& request);

  // Of Communicator's insides.
  static Result<Communicator> make_control(const Founding& founding, Rendezvous& rendezvous,
                                           std::string_view name);
  const Communicator::State& control_state() const { return *control.state_; }
  static Result<Work> start_barrier(Communicator& control);
};

void add_to_group(DeviceCommunicator::State& state, const Request& request, cudaStream_t stream);

/// Joins devices of ranks that `control` joins. Collective.
Result<std::unique_ptr<DeviceCommunicator::State>> join_devices(Communicator control, int device,
                                                                const Settings& settings);

/// A rank is there: to be said once its memory is known to peers.
void arrive(std::uint64_t token);
/// The rank is of no more use to its owner, and what it was made of goes once no peer needs it.
void depart(std::unique_ptr<DeviceCommunicator::State> state);
/// Frees what has departed and is free to go.
void sweep_departed();

}  // namespace tutti
