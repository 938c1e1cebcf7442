// File: simt/communicator/one_sided_ring.h: ranks that put a block to the next rank's window again
// and again, and what arrives.
#pragma once
#include <string>
#include <vector>

#include "simt/communicator/device_communicators.h"

namespace tutti::test {

/// Memory that peers map as a window, while it lives.
class Window {
 public:
  Window(DeviceCommunicator& comm, std::size_t bytes) : comm_(comm) {
    auto memory = device_mem_alloc(comm.device(), bytes);
    if (memory) data_ = static_cast<std::byte*>(*memory);
    complaint = memory ? said(comm.open_window(data_, bytes)) : memory.error().to_string();
  }
  ~Window() {
    static_cast<void>(comm_.close_window(data_));
    static_cast<void>(device_mem_free(data_));
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  std::byte* data() const { return data_; }
  std::string complaint;

 private:
  DeviceCommunicator& comm_;
  std::byte* data_ = nullptr;
};

/// In each round a rank puts another value to the next rank, which has to find it, and then says
/// that its window is free again.
inline std::string pass_around(DeviceCommunicator& comm, cudaStream_t stream, int rounds) {
  constexpr std::size_t kCount = 5000, kBytes = kCount * sizeof(int);
  constexpr int kThere = 3, kFree = 4;
  const int ranks = comm.rank_count(), me = comm.rank().value;
  const Rank next{(me + 1) % ranks}, before{(me + ranks - 1) % ranks};
  Window window(comm, kBytes);
  auto source = exec::CudaMemory::allocate(comm.device(), kBytes);
  if (!source || !window.complaint.empty()) return "no memory: " + window.complaint;
  std::vector<std::vector<int>> got(static_cast<std::size_t>(rounds), std::vector<int>(kCount));
  PinnedCopies copies;
  std::string wrong;
  for (int round = 0; round < rounds; ++round) {
    const std::vector<int> data(kCount, 1000 * round + me);
    copies.in(source->data(), data.data(), kBytes, stream);
    if (round > 0) wrong += said(comm.wait_signal(next, kFree, 1, stream));
    wrong += said(comm.put(source->data(), window.data(), kBytes, next, stream));
    wrong += said(comm.signal(next, kThere, stream));
    wrong += said(comm.wait_signal(before, kThere, 1, stream));
    copies.out(got[static_cast<std::size_t>(round)].data(), window.data(), kBytes, stream);
    wrong += said(comm.signal(before, kFree, stream));
  }
  wrong += said(comm.wait_signal(next, kFree, 1, stream));
  wrong += said(cudaStreamSynchronize(stream));
  wrong += said(comm.check());
  wrong += copies.finish();
  for (int round = 0; round < rounds && wrong.empty(); ++round) {
    if (got[static_cast<std::size_t>(round)] !=
        std::vector<int>(kCount, 1000 * round + before.value))
      wrong = "another block in round " + std::to_string(round);
  }
  return wrong;
}

}  // namespace tutti::test
