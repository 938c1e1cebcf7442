// File: simt/communicator/device_ranks.h: ranks with a device each, their buffers, and whether what
// they get is right, bit for bit. On simulated devices, or, with TUTTI_GPU, on those that there
// are.
#pragma once
#include <cuda_runtime_api.h>

#include <algorithm>
#include <barrier>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/mesh/mesh.h"
#include "support/cluster.h"
#if !defined(TUTTI_GPU)
#include "simt/engine.h"
#endif

namespace tutti::test {

#if defined(TUTTI_GPU)
inline int device_of(int rank) {
  int devices = 1;
  cudaGetDeviceCount(&devices);
  return rank % devices;
}
inline void shuffle_threads(std::uint64_t) {}
inline void check_access(bool) {}
inline void idle_streams(bool) {}
#else
inline int device_of(int rank) { return rank; }
/// In what order a device's threads run; 0: in theirs.
inline void shuffle_threads(std::uint64_t seed) { simt::set_seed(seed); }
/// Whether devices may access what they do.
inline void check_access(bool check) { simt::settings().check = check; }
/// Streams idle now and then, so what is not ordered gets out of order.
inline void idle_streams(bool idle) { simt::settings().jitter = idle; }
#endif

/// Empty if nothing went wrong.
inline std::string said(const Status& status) { return status ? "" : status.error().to_string(); }
inline std::string said(cudaError_t error) {
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

/// What a rank's copies go through: pinned memory. A copy to pageable memory waits for the stream,
/// and keeps other threads from launching on the device for which the stream may be waiting.
class PinnedCopies {
 public:
  PinnedCopies() {
    void* memory = nullptr;
    cudaHostAlloc(&memory, kBytes, cudaHostAllocPortable);
    data_ = static_cast<std::byte*>(memory);
  }
  ~PinnedCopies() { cudaFreeHost(data_); }
  PinnedCopies(const PinnedCopies&) = delete;
  PinnedCopies& operator=(const PinnedCopies&) = delete;

  /// By the stream to a device, and from there, which is there after `finish`.
  void in(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
    std::byte* const at = take(bytes);
    if (at == nullptr) return;
    std::copy_n(static_cast<const std::byte*>(from), bytes, at);
    cudaMemcpyAsync(to, at, bytes, cudaMemcpyDefault, stream);
  }
  void out(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
    std::byte* const at = take(bytes);
    if (at == nullptr) return;
    cudaMemcpyAsync(at, from, bytes, cudaMemcpyDefault, stream);
    outs_.push_back({static_cast<std::byte*>(to), at, bytes});
  }
  /// After the stream is done.
  std::string finish() {
    for (const Out& out : outs_) std::copy_n(out.from, out.bytes, out.to);
    outs_.clear();
    const bool fits = std::exchange(used_, 0) <= kBytes;
    return fits ? "" : "the case copies more than its pinned memory takes";
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{8} << 20;
  struct Out {
    std::byte *to, *from;
    std::size_t bytes;
  };
  std::byte* take(std::size_t bytes) {
    used_ += bytes;
    return used_ <= kBytes ? data_ + (used_ - bytes) : nullptr;
  }

  std::byte* data_ = nullptr;
  std::size_t used_ = 0;
  std::vector<Out> outs_;
};

/// A mesh with a stream for each rank.
class DeviceRanks {
 public:
  static std::unique_ptr<DeviceRanks> open(const exec::CudaMeshOptions& options,
                                           std::string& complaint) {
    auto mesh = exec::CudaMesh::create(options);
    if (!mesh) {
      complaint = mesh.error().to_string();
      return nullptr;
    }
    return std::unique_ptr<DeviceRanks>(new DeviceRanks(options, std::move(*mesh)));
  }
  ~DeviceRanks() {
    for (std::size_t rank = 0; rank < streams_.size(); ++rank) {
      cudaStreamSynchronize(streams_[rank]);
      cudaStreamDestroy(streams_[rank]);
    }
  }
  DeviceRanks(const DeviceRanks&) = delete;
  DeviceRanks& operator=(const DeviceRanks&) = delete;

  exec::CudaMesh& mesh() { return *mesh_; }
  cudaStream_t stream(std::size_t rank) const { return streams_[rank]; }
  int device(std::size_t rank) const { return options_.devices[rank]; }

  /// Runs the plan `rounds` times on one set of buffers, from this thread; returns what is wrong.
  std::string run(const exec::CudaPlan& plan, const Case& test, std::uint64_t seed,
                  int rounds = 1) {
    std::vector<Buffer> inputs = make_inputs(test, seed);
    std::vector<std::unique_ptr<DeviceBuffers>> buffers;
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      buffers.push_back(std::make_unique<DeviceBuffers>(device(rank), test, rank, inputs[rank]));
      if (!buffers.back()->complaint.empty()) return buffers.back()->complaint;
    }
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
        const auto call = call_of(test, rank, buffers);
        const auto status = mesh_->launch(static_cast<int>(rank), plan, call, streams_[rank]);
        if (!status) return test.to_string() + ": " + status.error().to_string();
      }
    }
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      const std::string error = said(cudaStreamSynchronize(streams_[rank])) +
                                said(mesh_->rings().check(static_cast<int>(rank)));
      if (!error.empty()) return test.to_string() + ": " + error;
    }
    return compare(test, inputs, buffers);
  }

  static std::vector<Buffer> make_inputs(const Case& test, std::uint64_t seed) {
    std::vector<Buffer> inputs(static_cast<std::size_t>(test.ranks), Buffer(test.input_bytes()));
    for (int rank = 0; rank < test.ranks; ++rank) {
      fill(test, rank, seed, inputs[static_cast<std::size_t>(rank)].data());
    }
    return inputs;
  }

  /// A rank's memory on its device: an output, and, if not in place, an input.
  struct DeviceBuffers {
    DeviceBuffers(int device, const Case& test, std::size_t rank, const Buffer& data) {
      const CudaBytes bytes{test.input_bytes() + test.misalign,
                            test.output_bytes() + test.misalign};
      auto both = exec::CudaMemory::allocate(device, std::max(bytes.input, bytes.output) + 64);
      auto separate = exec::CudaMemory::allocate(device, bytes.input + 64);
      if (!both || !separate) {
        complaint = "no memory on device " + std::to_string(device);
        return;
      }
      output_memory = std::move(*both);
      input_memory = std::move(*separate);
      const std::size_t own = rank * test.count * size_of(test.type);
      const CollectiveTraits traits = traits_of(test.collective);
      output = output_memory.data() + test.misalign;
      input = input_memory.data() + test.misalign;
      if (test.in_place) {
        input = output + (traits.output_each && !traits.input_each ? own : 0);
        if (traits.input_each && !traits.output_each) output += own;
      }
      exec::CudaMemory& memory = test.in_place ? output_memory : input_memory;
      const auto offset = static_cast<std::size_t>(input - memory.data());
      complaint = said(memory.write(offset, data.data(), data.size()));
    }
    struct CudaBytes {
      std::size_t input, output;
    };
    exec::CudaMemory input_memory, output_memory;
    std::byte *input = nullptr, *output = nullptr;
    std::string complaint;
  };

  using Buffers = std::vector<std::unique_ptr<DeviceBuffers>>;
  Buffers make_buffers(const Case& test, const std::vector<Buffer>& inputs) const {
    Buffers buffers;
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      buffers.push_back(std::make_unique<DeviceBuffers>(device(rank), test, rank, inputs[rank]));
    }
    return buffers;
  }

  exec::CudaCall call_of(const Case& test, std::size_t rank,
                         const std::vector<std::unique_ptr<DeviceBuffers>>& buffers) const {
    exec::CudaCall call;
    call.type = test.type;
    call.op = test.op;
    call.count = test.count;
    call.input = buffers[rank]->input;
    call.output = buffers[rank]->output;
    call.scale = scale_of(static_cast<int>(rank));
    call.integer_scale = static_cast<std::int64_t>(call.scale);
    call.wire = test.wire;
    for (const auto& peer : buffers) {
      call.peer_inputs.push_back(peer->input);
      call.peer_outputs.push_back(peer->output);
    }
    return call;
  }

  /// Every rank's output against the reference on the host.
  static std::string compare(const Case& test, const std::vector<Buffer>& inputs,
                             const std::vector<std::unique_ptr<DeviceBuffers>>& buffers) {
    std::string complaint;
    for (std::size_t rank = 0; rank < inputs.size() && complaint.empty(); ++rank) {
      complaint = compare(test, rank, inputs, *buffers[rank]);
    }
    return complaint;
  }
  static std::string compare(const Case& test, std::size_t rank, const std::vector<Buffer>& inputs,
                             const DeviceBuffers& mine) {
    Buffer got(test.output_bytes());
    const auto offset = static_cast<std::size_t>(mine.output - mine.output_memory.data());
    const std::string error = said(mine.output_memory.read(offset, got.data(), got.size()));
    return error.empty() ? compare(test, rank, inputs, got) : error;
  }
  static std::string compare(const Case& test, std::size_t rank, const std::vector<Buffer>& inputs,
                             const Buffer& got) {
    const Buffer want = test.wire.is_plain()
                            ? expected(test, static_cast<int>(rank), inputs)
                            : expected_on_wire(test, static_cast<int>(rank), inputs);
    const auto differs = std::mismatch(want.begin(), want.end(), got.begin());
    if (differs.first == want.end()) return "";
    return test.to_string() + ": rank " + std::to_string(rank) + " differs at byte " +
           std::to_string(differs.first - want.begin());
  }

  /// Starts a rank's part of a call.
  using Launch = std::function<Status(int rank, const exec::CudaCall& call, cudaStream_t stream)>;

  /// Has a thread for each rank enqueue what it does, and waits for all of it; what went wrong.
  std::string each(const std::function<std::string(std::size_t rank)>& enqueue) {
    std::vector<std::string> complaints(streams_.size());
    {
      std::vector<std::jthread> threads;
      for (std::size_t rank = 0; rank < streams_.size(); ++rank) {
        threads.emplace_back([&, rank] {
          const exec::OnDevice on(device(rank));
          complaints[rank] = enqueue(rank);
          complaints[rank] += said(cudaStreamSynchronize(streams_[rank]));
          complaints[rank] += pinned_[rank]->finish();
          complaints[rank] += said(mesh_->rings().check(static_cast<int>(rank)));
        });
      }
    }
    for (const std::string& complaint : complaints) {
      if (!complaint.empty()) return complaint;
    }
    return "";
  }
  /// Within `each`: after the copies before a call, and after the call. Streams of a device share
  /// hardware queues, of copies and of kernels. So nothing of a rank that waits for another rank's
  /// call may come before what that call waits for. Seen on an H200, where calls waited so until
  /// their deadline.
  void in_step() {
    if (step_ != nullptr) step_->arrive_and_wait();
  }
  /// In a rank's stream, within `each`: to its device, and from there, which is there when `each`
  /// returns.
  void copy_in(std::size_t rank, void* to, const void* from, std::size_t bytes) {
    pinned_[rank]->in(to, from, bytes, streams_[rank]);
  }
  void copy_out(std::size_t rank, void* to, const void* from, std::size_t bytes) {
    pinned_[rank]->out(to, from, bytes, streams_[rank]);
  }

  /// Calls that touch peers' buffers, each with data of its own: a rank copies them to its device,
  /// calls, and copies the result away, so that nothing but the kernels' own signals orders what
  /// ranks do.
  std::string run_mapped(const Case& test, std::uint64_t seed, const Launch& launch) {
    constexpr std::size_t kRounds = 3;
    const auto n = static_cast<std::size_t>(test.ranks);
    std::vector<std::vector<Buffer>> inputs;
    for (std::size_t round = 0; round < kRounds; ++round) {
      inputs.push_back(make_inputs(test, seed + round));
    }
    const Buffers buffers = make_buffers(test, inputs[0]);
    std::vector<std::vector<Buffer>> results(kRounds,
                                             std::vector<Buffer>(n, Buffer(test.output_bytes())));
    const std::string complaint = each([&](std::size_t rank) {
      const auto call = call_of(test, rank, buffers);
      std::string wrong;
      for (std::size_t round = 0; round < kRounds; ++round) {
        const Buffer& input = inputs[round][rank];
        Buffer& result = results[round][rank];
        copy_in(rank, buffers[rank]->input, input.data(), input.size());
        in_step();
        wrong += said(launch(static_cast<int>(rank), call, streams_[rank]));
        in_step();
        copy_out(rank, result.data(), call.output, result.size());
      }
      return wrong;
    });
    if (!complaint.empty()) return test.to_string() + ": " + complaint;
    for (std::size_t round = 0; round < kRounds; ++round) {
      for (std::size_t rank = 0; rank < n; ++rank) {
        const std::string differs = compare(test, rank, inputs[round], results[round][rank]);
        if (!differs.empty()) return differs + ", call " + std::to_string(round);
      }
    }
    return "";
  }

 private:
  DeviceRanks(exec::CudaMeshOptions options, std::unique_ptr<exec::CudaMesh> mesh)
      : options_(std::move(options)), mesh_(std::move(mesh)) {
    for (const int device : options_.devices) {
      const exec::OnDevice on(device);
      cudaStreamCreateWithFlags(&streams_.emplace_back(), cudaStreamNonBlocking);
      pinned_.push_back(std::make_unique<PinnedCopies>());
    }
    const auto& devices = options_.devices;
    for (const int device : devices) {
      if (std::ranges::count(devices, device) > 1 && step_ == nullptr)
        step_ = std::make_unique<std::barrier<>>(std::ssize(devices));
    }
  }

  exec::CudaMeshOptions options_;
  std::unique_ptr<exec::CudaMesh> mesh_;
  std::vector<cudaStream_t> streams_;
  std::vector<std::unique_ptr<PinnedCopies>> pinned_;  // By rank.
  std::unique_ptr<std::barrier<>> step_;               // Where ranks share a device.
};

}  // namespace tutti::test
