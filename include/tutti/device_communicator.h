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
// once before, or `prepare` it. Replays are calls: their order with others is up to the caller.
//
// One thread for several ranks: in a Group (communicator.h), which then begins all of them at its
// end. A group does not wait for what it put onto streams.
//
// Failures: kernels wait for peers up to `Settings::timeout`, then end; so does everything after an
// abort. `check` says so; streams go on either way, with results that are not complete.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/communicator.h"
#include "tutti/export.h"
#include "tutti/rendezvous.h"
#include "tutti/result.h"
#include "tutti/settings.h"
#include "tutti/types.h"

namespace tutti {

/// A cudaStream_t; null: the default stream of the rank's device.
using Stream = void*;

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
  /// Waits for what its device does, and a little for the other ranks; those that are not done by
  /// then keep the memory that they use. Any order of ranks and of communicators.
  ~DeviceCommunicator();

  Rank rank() const;
  int rank_count() const;
  int device() const;

  /// A collective of memory that the device can access. kUnsupported: blocks that differ in size,
  /// and are to be reduced. Sizes that ranks don't agree on are not noticed before the timeout.
  /// Once check() says why, all calls fail for that reason.
  Status call(const Request& request, Stream stream);
  /// Makes what this call, or one of the same size on other buffers, will need. Not collective.
  Status prepare(const Request& request);

  /// As in communicator.h, but that messages and collectives keep their order. Two ranks that send
  /// to each other do so in a Group. A size that the two ends don't agree on is not noticed before
  /// the timeout.
  Status send(const void* data, std::size_t count, DataType type, Rank to, Stream stream);
  Status recv(void* data, std::size_t count, DataType type, Rank from, Stream stream);

  /// Ok, or why calls of this communicator have ended early or will. Any thread, any time.
  Status check() const;
  /// Ends all calls on this rank at once, and on the others as soon as they look. Any thread, any
  /// time, twice too.
  void abort(std::string_view reason);

  /// A communicator of the ranks that gave the same color, as Communicator::split. Collective;
  /// waits for the others.
  Result<DeviceCommunicator> split(int color, int key);

  /// Bytes of its device's memory that this rank holds.
  std::size_t device_bytes() const;
  /// What it is: ranks, devices, how they reach each other, memory, plans.
  std::string describe() const;

 private:
  explicit DeviceCommunicator(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tutti
