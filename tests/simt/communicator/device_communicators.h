// File: simt/communicator/device_communicators.h: communicators of devices in one process, and what
// their calls get against the reference on the host, bit for bit.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "simt/communicator/device_ranks.h"
#include "tutti/device_communicator.h"

namespace tutti::test {

/// Few and small rings: what is long has many tiles.
inline Settings small_settings() {
  Settings settings;
  settings.lanes = 2;
  settings.slot_count = 2;
  settings.slot_bytes = 2048;
  return settings;
}

#if !defined(TUTTI_GPU)
/// While it lives, devices 0 and 1 don't reach each other's memory, nor 2 and 3; and every access
/// is checked.
class NoPeerAccess {
 public:
  NoPeerAccess() {
    for (const int device : {0, 1, 2, 3})
      simt::settings().no_peers[device] = std::uint64_t{1} << (device ^ 1);
    simt::settings().check = true;
  }
  ~NoPeerAccess() {
    for (const int device : {0, 1, 2, 3}) simt::settings().no_peers[device] = 0;
    simt::settings().check = false;
  }
  NoPeerAccess(const NoPeerAccess&) = delete;
  NoPeerAccess& operator=(const NoPeerAccess&) = delete;
};
#endif

inline Case all_reduce_of(std::size_t count, int ranks) {
  Case test;
  test.count = count;
  test.ranks = ranks;
  return test;
}

inline cudaStream_t new_stream(int device) {
  const exec::OnDevice on(device);
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  return stream;
}

inline Request request_of(const Case& test, std::size_t rank,
                          const DeviceRanks::DeviceBuffers& buffers) {
  Request request;
  request.collective = test.collective;
  request.input = buffers.input;
  request.output = buffers.output;
  request.count = test.count;
  request.type = test.type;
  request.reduction = Reduction(test.op);
  request.reduction.scale = scale_of(static_cast<int>(rank));
  request.root = Rank{test.root};
  request.wire = test.wire;
  return request;
}

/// What a rank of a case has, and whether it got the right thing.
class DeviceCase {
 public:
  DeviceCase(const Case& test, std::size_t rank, int device, std::uint64_t seed)
      : test_(test),
        rank_(rank),
        inputs_(DeviceRanks::make_inputs(test, seed)),
        buffers_(device, test, rank, inputs_[rank]) {}

  Request request() const { return request_of(test_, rank_, buffers_); }
  std::string start(DeviceCommunicator& comm, cudaStream_t stream) const {
    if (!buffers_.complaint.empty()) return buffers_.complaint;
    const std::string error = said(comm.call(request(), stream));
    return error.empty() ? "" : test_.to_string() + ": " + error;
  }
  const DeviceRanks::DeviceBuffers& buffers() const { return buffers_; }
  /// After the stream is done.
  std::string compare() const { return DeviceRanks::compare(test_, rank_, inputs_, buffers_); }
  std::string finish(const DeviceCommunicator& comm, cudaStream_t stream) const {
    std::string error = said(cudaStreamSynchronize(stream));
    error += said(comm.check());
    return error.empty() ? compare() : test_.to_string() + ": " + error;
  }

 private:
  Case test_;
  std::size_t rank_;
  std::vector<Buffer> inputs_;
  DeviceRanks::DeviceBuffers buffers_;
};

/// Runs the case from one thread, in a group; returns what is wrong.
inline std::string run_in_group(std::vector<DeviceCommunicator>& comms,
                                const std::vector<cudaStream_t>& streams, const Case& test,
                                std::uint64_t seed) {
  std::vector<std::unique_ptr<DeviceCase>> cases;
  for (std::size_t rank = 0; rank < comms.size(); ++rank)
    cases.push_back(std::make_unique<DeviceCase>(test, rank, comms[rank].device(), seed));
  Group group;
  for (std::size_t rank = 0; rank < comms.size(); ++rank) {
    if (auto error = cases[rank]->start(comms[rank], streams[rank]); !error.empty()) return error;
  }
  if (auto error = said(group.end()); !error.empty()) return error;
  for (std::size_t rank = 0; rank < comms.size(); ++rank) {
    if (auto error = cases[rank]->finish(comms[rank], streams[rank]); !error.empty()) return error;
  }
  return "";
}

/// Sends to all others and gets from them, more than fits the rings, in one group; and an
/// all-reduce.
inline std::string exchange_messages(DeviceCommunicator& comm, cudaStream_t stream) {
  constexpr std::size_t kCount = 6000;
  const auto ranks = static_cast<std::size_t>(comm.rank_count());
  const int me = comm.rank().value;
  auto source = exec::CudaMemory::allocate(comm.device(), kCount * 4);
  auto target = exec::CudaMemory::allocate(comm.device(), ranks * kCount * 4);
  if (!source || !target) return "no memory";
  const std::vector<int> data(kCount, me);
  std::vector<int> got(kCount);
  std::string error = said(source->write(0, data.data(), kCount * 4));
  Group group;
  for (int peer = 0; peer < comm.rank_count(); ++peer) {
    error += said(comm.send(source->data(), kCount, DataType::kInt32, Rank{peer}, stream));
    error += said(comm.recv(target->data() + static_cast<std::size_t>(peer) * kCount * 4, kCount,
                            DataType::kInt32, Rank{peer}, stream));
  }
  error += said(group.end());
  error += said(cudaStreamSynchronize(stream));
  error += said(comm.check());
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    error += said(target->read(peer * kCount * 4, got.data(), kCount * 4));
    if (got != std::vector<int>(kCount, static_cast<int>(peer))) error += "another message came";
  }
  return error;
}

/// A communicator for each of the devices, with a stream each; on GPUs, of those that there are.
struct DeviceCluster {
  explicit DeviceCluster(std::vector<int> devices, const Settings& settings = small_settings()) {
    for (int& device : devices) device = device_of(device);
    auto made = DeviceCommunicator::in_process(devices, settings);
    if (!made) {
      complaint = made.error().to_string();
      return;
    }
    comms = *std::move(made);
    for (const int device : devices) streams.push_back(new_stream(device));
  }
  ~DeviceCluster() {
    comms.clear();
    for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
  }
  DeviceCluster(const DeviceCluster&) = delete;
  DeviceCluster& operator=(const DeviceCluster&) = delete;

  std::vector<DeviceCommunicator> comms;
  std::vector<cudaStream_t> streams;
  std::string complaint;
};

/// Runs `body` in a thread for each rank; the first complaint.
inline std::string each(DeviceCluster& cluster,
                        const std::function<std::string(std::size_t rank)>& body) {
  std::vector<std::string> complaints(cluster.comms.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < complaints.size(); ++rank)
      threads.emplace_back([&, rank] { complaints[rank] = body(rank); });
  }
  for (const std::string& complaint : complaints) {
    if (!complaint.empty()) return complaint;
  }
  return "";
}

/// An all-reduce of all its ranks, here in a thread or a process of its own.
inline std::string sum_up(DeviceCommunicator& comm) {
  const DeviceCase test(all_reduce_of(3000, comm.rank_count()),
                        static_cast<std::size_t>(comm.rank().value), comm.device(), 7);
  cudaStream_t stream = new_stream(comm.device());
  std::string wrong = test.start(comm, stream);
  if (wrong.empty()) wrong = test.finish(comm, stream);
  cudaStreamDestroy(stream);
  return wrong;
}

}  // namespace tutti::test
