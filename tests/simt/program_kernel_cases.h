// File: simt/program_kernel_cases.h: what a program's own kernels get (program_kernels.h), against
// what they have to, bit for bit: a rank's part, on whatever made its handle.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

#include "cuda/mesh/program_kernels.h"
#include "simt/communicator/device_ranks.h"
#include "simt/program_kernels.h"

namespace tutti::test {

inline constexpr unsigned kProgramBlocks = 2;
inline constexpr std::size_t kProgramWindow = std::size_t{1} << 16;

/// Loads the kernels on a device: later that might wait for kernels that wait for other ranks.
inline std::string load_program_kernels(int device) {
  const exec::OnDevice on(device);
  std::vector<const void*> kernels{pass_on_kernel(), meet_kernel(), await_kernel(), put_kernel()};
  for (const ProgramReduction& what : kProgramReductions)
    kernels.push_back(reduce_kernel(what.type, what.op));
  std::string wrong;
  for (const void* const kernel : kernels) {
    cudaFuncAttributes attributes;
    wrong += said(cudaFuncGetAttributes(&attributes, kernel));
  }
  return wrong;
}

/// A rank that runs kernels of its own. `window` is kProgramWindow bytes, those of the handle.
struct ProgramRank {
  int device = 0;
  cudaStream_t stream = nullptr;
  DeviceHandle handle;
  exec::CudaMemory data, result;
  // Freeing waits for the device, where another rank's kernel may wait for this one's next.
  std::vector<exec::CudaMemory> kept;

  static constexpr unsigned kThreads = 64;
  std::string start(const void* kernel, ProgramCall call, unsigned blocks = kProgramBlocks,
                    unsigned threads = kThreads) {
    const exec::OnDevice on(device);
    call.handle = handle;
    call.data = data.data();
    call.result = result.data();
    void* list[] = {&call};
    return said(cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), list, 0, stream));
  }
  std::string allocate(std::size_t bytes) {
    auto first = exec::CudaMemory::allocate(device, bytes);
    auto second = exec::CudaMemory::allocate(device, bytes);
    if (!first || !second) return "no memory";
    std::swap(data, *first);
    std::swap(result, *second);
    for (auto* const before : {&first, &second}) kept.push_back(std::move(**before));
    return "";
  }
};

/// Data that go around the ranks.
class PassOn {
 public:
  PassOn(std::size_t bytes, unsigned rounds) : bytes_(bytes), rounds_(rounds) {}

  std::string prepare(ProgramRank& one) const {
    const std::vector<std::uint8_t> data = data_of(one.handle.rank);
    const std::string wrong = one.allocate(data.size());
    return wrong.empty() ? said(one.data.write(0, data.data(), data.size())) : wrong;
  }
  std::string start(ProgramRank& one) const {
    ProgramCall call;
    call.count = bytes_;
    call.rounds = rounds_;
    return one.start(pass_on_kernel(), call);
  }
  /// After the kernel's end; it ran so many times.
  std::string compare(const ProgramRank& one, unsigned times = 1) const {
    std::vector<std::uint8_t> got(bytes_ * kProgramBlocks);
    const std::string wrong = said(one.data.read(0, got.data(), got.size()));
    const unsigned ranks = one.handle.ranks;
    const unsigned from = (one.handle.rank + ranks - rounds_ * times % ranks) % ranks;
    if (!wrong.empty() || got == data_of(from)) return wrong;
    return "the data differ of rank " + std::to_string(from);
  }

 private:
  std::vector<std::uint8_t> data_of(unsigned rank) const {
    std::vector<std::uint8_t> data(bytes_ * kProgramBlocks);
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = static_cast<std::uint8_t>(i * 7 + rank * 31);
    return data;
  }
  std::size_t bytes_;
  unsigned rounds_;
};

/// Ranks that meet, in blocks of a few threads.
class Meet {
 public:
  std::string prepare(ProgramRank& one) const { return one.allocate(sizeof kRounds); }
  std::string start(ProgramRank& one) const {
    ProgramCall call;
    call.rounds = kRounds;
    return one.start(meet_kernel(), call, 1, kThreads);
  }
  std::string compare(const ProgramRank& one) const {
    std::uint32_t got = 0;
    const std::string wrong = said(one.result.read(0, &got, sizeof got));
    return !wrong.empty() || got == kRounds ? wrong : "a rank came too early";
  }

 private:
  static constexpr std::uint32_t kRounds = 3;
  static constexpr unsigned kThreads = 3;  // Fewer than a warp's, and than ranks.
};

/// An all-reduce, twice over: by all ranks of all, and by each of its part.
class ProgramReduce {
 public:
  ProgramReduce(ProgramReduction what, std::size_t count, int ranks, std::uint64_t seed) {
    test_.type = what.type;
    test_.op = what.op;
    test_.count = count;
    test_.ranks = ranks;
    inputs_ = DeviceRanks::make_inputs(test_, seed);
  }

  std::string prepare(ProgramRank& one) const {
    const Buffer& input = inputs_[one.handle.rank];
    const std::string wrong = one.allocate(input.size() + 16);
    return wrong.empty() ? said(one.data.write(0, input.data(), input.size())) : wrong;
  }
  std::string start(ProgramRank& one) const {
    ProgramCall call;
    call.count = test_.count;
    return one.start(reduce_kernel(test_.type, test_.op), call);
  }
  /// After the kernel's end, on all ranks. `window`: what is in this rank's.
  std::string compare(const ProgramRank& one, const std::vector<std::byte>& window) const {
    Buffer got(test_.output_bytes());
    std::string wrong = said(one.result.read(0, got.data(), got.size()));
    if (wrong.empty()) wrong = DeviceRanks::compare(test_, one.handle.rank, inputs_, got);
    if (!wrong.empty()) return wrong;
    const auto* half = window.data() + second_half(got.size());
    std::copy(half, half + got.size(), got.data());
    wrong = DeviceRanks::compare(test_, one.handle.rank, inputs_, got);
    return wrong.empty() ? "" : "of all parts: " + wrong;
  }

 private:
  Case test_;
  std::vector<Buffer> inputs_;
};

/// Ranks of a mesh that run kernels of their own.
class ProgramRanks {
 public:
  explicit ProgramRanks(DeviceRanks& ranks, int count) : ranks_(ranks) {
    const auto n = static_cast<std::size_t>(count);
    std::vector<std::byte*> windows, signals;
    for (std::size_t rank = 0; rank < n; ++rank) {
      for (const std::size_t bytes : {kProgramWindow, exec::signal_bytes(kProgramBlocks, n)}) {
        auto memory = exec::CudaMemory::allocate(ranks.device(rank), bytes);
        if (!memory) return;
        (bytes == kProgramWindow ? windows : signals)
            .push_back(memories_.emplace_back(*std::move(memory)).data());
      }
    }
    for (std::size_t rank = 0; rank < n; ++rank) {
      if (!load_program_kernels(ranks.device(rank)).empty()) return;
      ProgramRank& one = all_.emplace_back();
      one.device = ranks.device(rank);
      one.stream = ranks.stream(rank);
      one.handle = exec::device_handle_of(ranks.mesh().rings(), static_cast<int>(rank),
                                          kProgramWindow, windows, kProgramBlocks, signals);
    }
  }

  template <class What, class Compare>
  std::string run(const What& what, Compare compare) {
    if (all_.empty()) return "no memory";
    std::string wrong;
    for (ProgramRank& one : all_) wrong += what.prepare(one);
    for (ProgramRank& one : all_) wrong += what.start(one);
    for (std::size_t rank = 0; rank < all_.size(); ++rank) {
      wrong += said(cudaStreamSynchronize(all_[rank].stream));
      wrong += said(ranks_.mesh().rings().check(static_cast<int>(rank)));
    }
    for (std::size_t rank = 0; rank < all_.size() && wrong.empty(); ++rank) wrong = compare(rank);
    return wrong;
  }
  std::string pass_on(std::size_t bytes, unsigned rounds) {
    const PassOn what(bytes, rounds);
    return run(what, [&](std::size_t rank) { return what.compare(all_[rank]); });
  }
  std::string reduce(ProgramReduction reduction, std::size_t count, std::uint64_t seed) {
    const ProgramReduce what(reduction, count, static_cast<int>(all_.size()), seed);
    return run(what, [&](std::size_t rank) {
      std::vector<std::byte> window(kProgramWindow);
      const std::string wrong = said(memories_[rank * 2].read(0, window.data(), window.size()));
      return wrong.empty() ? what.compare(all_[rank], window) : wrong;
    });
  }

 private:
  DeviceRanks& ranks_;
  std::vector<exec::CudaMemory> memories_;  // A window and signals of each rank.
  std::vector<ProgramRank> all_;
};

}  // namespace tutti::test
