// File: python/csrc/devices/device_library.h: communicators of devices, from the libtutti.so that
// is installed.
//
// This module knows nothing of CUDA, so that one source serves torch for CPUs and torch for CUDA.
// Kernels are in the library, which was built with CUDA (preset `cuda`) or is that of simulated
// GPUs; it is loaded when the first group meets a CUDA tensor, and called by its C API
// (tutti/cuda.h).
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/communicator.h"
#include "tutti/cuda.h"
#include "tutti/rendezvous.h"

namespace tutti::python {

/// A tutti_device_comm_t. Threads as tutti/cuda.h says; errors are those of the library.
class DeviceComm {
 public:
  /// Names a job, whose meeting point this process serves.
  static Result<Bytes> make_id();
  /// Collective. kUnsupported: no library, or one without CUDA; the error says which was found.
  static Result<DeviceComm> join(const Bytes& id, Rank me, int ranks, int device,
                                 std::chrono::milliseconds timeout);
  /// Another of the same ranks. Collective.
  Result<DeviceComm> twin() const;

  /// Runs the body in a mode in which it may query events while other threads capture streams. The
  /// body must not throw.
  static void relaxed(const std::function<void()>& body);
  /// Whether a cudaStream_t is being captured.
  static bool is_capturing(void* stream);

  /// `stream` is a cudaStream_t. Blocks that are reduced have to be of one size.
  Status call(const Request& request, void* stream) const;
  Status send(const void* data, std::size_t bytes, Rank to, void* stream) const;
  Status recv(void* data, std::size_t bytes, Rank from, void* stream) const;
  Status check() const;
  void abort(const std::string& reason) const;
  std::string describe() const;

 private:
  struct Destroy {
    void operator()(tutti_device_comm_t comm) const;
  };
  explicit DeviceComm(tutti_device_comm_t comm) : comm_(comm) {}
  Status call_vector(const Request& request, void* stream) const;
  std::unique_ptr<tutti_device_comm, Destroy> comm_;
};

}  // namespace tutti::python
