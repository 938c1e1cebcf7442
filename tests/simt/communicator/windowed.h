// File: simt/communicator/windowed.h: ranks of communicators that run kernels of a program's own
// (program_kernel_cases.h).
#pragma once
#include <string>
#include <vector>

#include "simt/communicator/device_communicators.h"
#include "simt/program_kernel_cases.h"

namespace tutti::test {

/// A rank with a window of its own, registered, and a handle for kernels on it.
struct Windowed {
  Windowed(DeviceCommunicator& its_comm, cudaStream_t stream) : comm(its_comm) {
    auto memory = exec::CudaMemory::allocate_for_peers(comm.device(), kProgramWindow);
    if (!memory) {
      wrong = "no memory";
      return;
    }
    window = *std::move(memory);
    wrong = test::load_program_kernels(comm.device());
    if (wrong.empty()) wrong = said(comm.register_memory(window.data(), kProgramWindow));
    if (!wrong.empty()) return;
    auto handle = comm.device_handle(window.data(), kProgramWindow, kProgramBlocks);
    if (!handle) {
      wrong = handle.error().to_string();
      return;
    }
    one.device = comm.device();
    one.stream = stream;
    one.handle = *handle;
  }

  template <class What>
  std::string start(const What& what) {
    return said(comm.launch(
        one.stream, [&] { return what.start(one).empty() ? cudaSuccess : cudaErrorUnknown; }));
  }
  /// Runs a case; all ranks do.
  template <class What, class Compare>
  std::string run(const What& what, Compare compare) {
    std::string complaint = what.prepare(one);
    complaint += start(what);
    complaint += said(cudaStreamSynchronize(one.stream));
    complaint += said(comm.check());
    return complaint.empty() ? compare() : complaint;
  }
  std::string pass_on(std::size_t bytes, unsigned rounds) {
    const PassOn what(bytes, rounds);
    return run(what, [&] { return what.compare(one); });
  }
  std::string reduce(const ProgramReduce& what) {
    return run(what, [&] {
      std::vector<std::byte> found(kProgramWindow);
      const std::string error = said(window.read(0, found.data(), found.size()));
      return error.empty() ? what.compare(one, found) : error;
    });
  }
  std::string leave() { return said(comm.deregister_memory(window.data())); }

  DeviceCommunicator& comm;
  exec::CudaMemory window;
  ProgramRank one;
  std::string wrong;
};

}  // namespace tutti::test
