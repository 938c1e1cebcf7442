// File: tutti/device_communicator.h: the C++ API for memory of GPUs. `cuda.h` is the same in C.
//
//   auto comm = tutti::DeviceCommunicator::from_environment();
//   auto status = comm->call({.collective = tutti::Collective::kAllReduce, .input = in,
//                             .output = out, .count = count, .type = tutti::DataType::kFloat32},
//                            stream);
//
// Only in builds with CUDA. What communicator.h says of counts, blocks, in place and contracts
// holds here too, and results have the same bits. What is different:
//
// Streams: calls are put onto a stream of the rank's device, and return at once; a `Stream` is a
// cudaStream_t. Calls of one communicator take place in the order in which they were made, on
// whatever streams: one that comes on another stream than the last waits for that.
//
// Graphs: calls may be captured. What a call needs is made when something like it is called first;
// within a capture too, but then replaying must not be what a peer waits for meanwhile: call it
// once before, or `prepare` it. Replays and other calls take place in the order in which they are
// launched, on whatever streams.
//
// One thread for several ranks: in a Group (communicator.h), which then begins all of them at its
// end. A group does not wait for what it put onto streams.
//
// Failures: kernels wait for peers up to `Settings::timeout`, then end; so does everything after an
// abort, or once a peer has died. `check` says so; streams go on either way, with results that are
// not complete.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/communicator.h"
#include "tutti/device_handle.h"
#include "tutti/export.h"
#include "tutti/rendezvous.h"
#include "tutti/result.h"
#include "tutti/settings.h"
#include "tutti/types.h"

namespace tutti {

/// A cudaStream_t; null: the default stream of the rank's device.
using Stream = void*;

/// An all-reduce of `rows` x `columns`, and what follows it in a layer of a transformer:
///   residual = residual + sum of all inputs      both rounded to the type
///   output = residual / sqrt(mean(residual^2) + epsilon) * weight        by row
/// For float32, float16 and bfloat16; rows are of whole units of 16 bytes, and buffers aligned to
/// that. The residual is alike on all ranks. Output may be the input.
struct RmsNorm {
  const void* input = nullptr;
  void* residual = nullptr;
  void* output = nullptr;
  const void* weight = nullptr;  // By column.
  std::size_t rows = 0, columns = 0;
  DataType type = DataType::kFloat32;
  float epsilon = 1e-6F;
};

/// A step of SGD on the average of all ranks' gradients, as torch.optim.SGD without dampening or
/// Nesterov, in float32; then all ranks have the parameters, rounded to their type. For float32,
/// float16 and bfloat16. Each rank keeps master and momentum of its piece alone
/// (DeviceCommunicator::sgd_piece), aligned to 16 bytes.
struct SgdStep {
  const void* gradients = nullptr;
  void* parameters = nullptr;  // Only written.
  std::size_t count = 0;
  DataType type = DataType::kFloat32;
  float* master = nullptr;
  float* momentum = nullptr;
  float learning_rate = 0, momentum_factor = 0, weight_decay = 0;
};

/// Memory of a device that peers can map, of the driver where that makes such memory; zeroed. Other
/// devices of this process that reach this one can access it. Any thread, also while others capture
/// streams.
TUTTI_API Result<void*> device_mem_alloc(int device, std::size_t bytes);
/// Frees what device_mem_alloc returned; an error for anything else.
TUTTI_API Status device_mem_free(void* data);

struct DeviceShrunk;

/// What DeviceCommunicator::shrink may be told beside the ranks that are left out.
struct DeviceShrink {
  /// The new communicator has these, alike on all ranks; null: those of the one before.
  const Settings* settings = nullptr;
  /// Ends the shrink on all ranks, with kAborted, also for ranks that come to it later. The
  /// communicator stays as it is.
  std::stop_token stop = {};
};

/// A communicator for memory of GPUs, as one rank sees it.
/// It has more than 20 functions: each collective has one.
class TUTTI_API DeviceCommunicator {
 public:
  struct State;

  /// Joins the ranks that meet at `rendezvous`, each with the device of that number in its process;
  /// several may share one. Ranks may be on several hosts. Collective; as Communicator::create.
  /// kMismatch: some ranks make a Communicator there. kUnsupported: more than 64 ranks, or devices
  /// without room for the blocks of all ranks that share them.
  static Result<DeviceCommunicator> create(Rendezvous& rendezvous, Rank me, int rank_count,
                                           int device, const Settings& settings = {},
                                           std::string_view name = "world");
  static Result<DeviceCommunicator> create(const UniqueId& id, Rank me, int rank_count, int device,
                                           const Settings& settings = {});
  /// From what the launcher left in the environment. The device is that of the local rank, counted
  /// around where there are fewer.
  static Result<DeviceCommunicator> from_environment();
  /// A rank for each of these devices, in this process.
  static Result<std::vector<DeviceCommunicator>> in_process(std::span<const int> devices,
                                                            const Settings& settings = {});

  DeviceCommunicator(DeviceCommunicator&&) noexcept;
  DeviceCommunicator& operator=(DeviceCommunicator&&) noexcept;
  /// Waits for this rank's calls, and up to half a second for the other ranks; those that are not
  /// done by then keep the memory that they use. Any order of ranks and of communicators.
  ~DeviceCommunicator();

  Rank rank() const;
  int rank_count() const;
  int device() const;

  /// A collective of memory that the device can access. kUnsupported: blocks that differ in size,
  /// and are to be reduced. Ranks of a host whose calls differ get kMismatch.
  /// Once check() says why, all calls fail for that reason.
  Status call(const Request& request, Stream stream);
  /// Chooses, verifies and loads the plan of a call ahead of time. It also serves later calls of
  /// the same size whose buffers are registered, or not, as these are. Null buffers count as not
  /// registered. Not collective.
  Status prepare(const Request& request);

  /// As in communicator.h, but that messages and collectives keep their order. Two ranks that send
  /// to each other do so in a Group. Ranks of one host that expect different sizes get kMismatch.
  Status send(const void* data, std::size_t count, DataType type, Rank to, Stream stream);
  Status recv(void* data, std::size_t count, DataType type, Rank from, Stream stream);

  // One-sided operations, between ranks of a host whose devices reach each other's memory; else
  // kUnsupported. They take no multiprocessor, and their places in the order of the rank's calls.
  // In a Group they begin at its end, waits behind all else. Not for capture: kUnsupported.
  /// Copies `bytes` from `data`, any memory that the rank's device can access, to rank `to`'s
  /// counterpart of `target`, which lies in registered memory or a window. `to` does not learn of
  /// it but by a signal, and has to have the place free by itself.
  Status put(const void* data, void* target, std::size_t bytes, Rank to, Stream stream);
  /// Adds one to the signals of this `number` that this rank has sent rank `to`. Behind a wait
  /// for it, what this rank has put before is there. Numbers are below kSignals.
  Status signal(Rank to, int number, Stream stream);
  /// The stream goes on once rank `from` has sent `count` signals of this number more than were
  /// waited for before. It also goes on after `Settings::timeout`, an abort, or the peer's end:
  /// then check() says so, and what was to be put may be missing.
  Status wait_signal(Rank from, int number, std::uint64_t count, Stream stream);
  static constexpr int kSignals = 64;

  /// Lets the devices of all ranks of the host access this memory of the rank's device, of whatever
  /// allocator; calls on it then need no copies (docs/devices.md). Collective, all with as many
  /// bytes. A call's buffer is then in the same place of the same memory on all ranks, or on none;
  /// where it is not, the call ends with kMismatch (between hosts perhaps only at its deadline). It
  /// stays the communicator's until it is deregistered, collectively, in any order that all have
  /// alike. kUnsupported: devices of a host that don't reach each other's memory, or memory that
  /// can't be exported.
  Status register_memory(void* data, std::size_t bytes);
  Status deregister_memory(void* data);

  /// The same, but that each rank closes its window for itself, when none of its calls uses it any
  /// more: other ranks may have it open still, so only memory of the driver will do
  /// (device_mem_alloc, cuMemCreate), which stays while somebody maps it. Else kUnsupported.
  Status open_window(void* data, std::size_t bytes);
  Status close_window(void* data);
  /// The address at which this process finds rank `peer`'s counterpart of `data`, which lies in
  /// registered memory or a window; null for a rank of another host. Valid as long as the memory is
  /// registered. kInvalidArgument: no such memory, or no such rank.
  Result<void*> address_at(const void* data, Rank peer) const;
  /// Whether the device of rank `a` can read and write registered memory of rank `b`. Alike on all
  /// ranks.
  bool reaches(Rank a, Rank b) const;

  // The program's own kernels may communicate (tutti/device.cuh, docs/device-api.md).

  /// A handle for kernels that work on `bytes` at `data`, in registered memory or a window, of all
  /// ranks, with so many channels of signals. Collective, alike on all ranks; each call has signals
  /// of its own. It is valid as long as the memory is registered. kInvalidArgument: this is in no
  /// registered memory. kUnsupported: ranks of several hosts.
  Result<DeviceHandle> device_handle(void* data, std::size_t bytes, int channels);
  /// Runs `kernels`, which puts kernels of the program's onto the stream and returns a cudaError_t:
  /// in the order of this communicator's calls, so that they are calls for `wait`, for leaving, and
  /// for noticing that a peer has died.
  Status launch(Stream stream, const std::function<int()>& kernels);

  /// Any size. Runs in a kernel of its own if input, residual and output are registered, on up to
  /// eight ranks of one host. Otherwise it is an all-reduce and what follows, with the same bits.
  /// Not within a Group.
  Status all_reduce_rms_norm(const RmsNorm& call, Stream stream);
  /// Any size. Gradients and parameters must be registered, on up to eight ranks of one host; else
  /// kUnsupported. Not within a Group.
  Status sgd_step(const SgdStep& call, Stream stream);
  /// Which of `count` parameters a rank has the master and the momentum of; none of more than 2^46,
  /// which sgd_step refuses.
  struct Piece {
    std::size_t first = 0, count = 0;
  };
  Piece sgd_piece(std::size_t count, DataType type) const;

  /// Ok, or why calls of this communicator have ended early or will. Any thread, any time.
  Status check() const;
  /// Ends all calls on this rank at once, and on the others within about 100 ms. Any thread, any
  /// time, twice too.
  void abort(std::string_view reason);
  /// Ends this rank's calls at once, but not those of other ranks, which do not learn of it. Later
  /// calls and `check` fail (kAborted). The communicator can still be split, if all ranks take
  /// part, and shrunk. Any thread.
  void stop();
  /// Waits until this rank's calls are done on the device, except for replays of graphs. One thread
  /// at a time, as for calls.
  Status wait() const;

  /// A communicator of the ranks that gave the same color, as Communicator::split. Collective;
  /// waits for the others.
  Result<DeviceCommunicator> split(int color, int key);

  // After a failure, as in communicator.h.

  /// What `check` says; and kPeerFailed with the first rank that has died or left, though no call
  /// waits for it. Looks at once; not collective, and tells nobody.
  Status health() const;
  /// As `abort`, with kRevoked: all ranks are to call `shrink`. Any thread, any time.
  void revoke(std::string_view reason);
  /// As Communicator::shrink: a communicator of the devices of the ranks that are left, also if
  /// ranks die meanwhile. What this communicator has on streams ends early only if it has failed,
  /// or was aborted or revoked. The n-th call with a list meets the n-th of the other ranks. One
  /// thread at a time.
  Result<DeviceShrunk> shrink(std::span<const Rank> excluded = {}, const DeviceShrink& how = {});
  /// As Communicator::agree. One thread at a time.
  Result<std::uint64_t> agree(std::uint64_t flags);
  /// As Communicator::grow; new ranks call DeviceCommunicator::create.
  Result<DeviceCommunicator> grow(Rendezvous& rendezvous, int rank_count,
                                  std::string_view name = "world");
  Result<DeviceCommunicator> grow(const UniqueId& id, int rank_count);
  /// The id that exactly one rank gives, on all ranks; the others give null. All ranks take part,
  /// also of a communicator that was stopped. kPeerFailed if one has died. `stop` as in
  /// DeviceShrink. One thread at a time.
  Result<UniqueId> share_id(const UniqueId* mine, std::stop_token stop = {});

  /// Bytes of its device's memory that this rank holds.
  std::size_t device_bytes() const;
  /// What it is: ranks, devices, how they reach each other, memory, plans.
  std::string describe() const;
  /// Which way this call would go, and why not the others, as Communicator::explain; times are
  /// estimates. Buffers may be null. Not collective.
  Result<std::string> explain(const Request& request) const;
  /// Microseconds that the call takes from when all ranks have begun it, as explain() estimates
  /// them for what is taken. The second: of a message from or to that rank. Not collective.
  Result<double> estimate_us(const Request& request) const;
  Result<double> estimate_us(std::size_t bytes, Rank peer) const;

 private:
  explicit DeviceCommunicator(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// What `shrink` makes.
struct DeviceShrunk {
  DeviceCommunicator communicator;
  std::vector<Rank> members;  // By rank in `communicator`, the rank before.
  /// As Shrunk::completed: collectives of the communicator before that every member completed on
  /// its device, counting those with elements that `call` put onto streams. Neither replays of
  /// graphs nor the vector variants count, which are messages here. A member may have completed
  /// more, also of these: calls that still run, or calls by copy engines before a failure.
  std::uint64_t completed = 0;
};

}  // namespace tutti
