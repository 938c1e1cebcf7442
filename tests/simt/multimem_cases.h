// File: simt/multimem_cases.h: multicast memory of ranks of one process, and collectives over it,
// compared with the reference on the host.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "cuda/driver/multicast.h"
#include "simt/communicator/device_ranks.h"

namespace tutti::test {

/// For several tiles of few bytes; the least that a collective of 8 ranks takes.
inline constexpr std::size_t kSmallArea = 1024;

/// Which of a call's buffers lie in multicast memory; the others are staged.
struct Lies {
  bool input = false, output = false;
};

class MulticastRanks {
 public:
  /// Each rank has memory for inputs and for outputs, `half` bytes each, and for staging.
  MulticastRanks(DeviceRanks& ranks, int count, std::size_t half, std::uint32_t lanes,
                 std::string& complaint)
      : ranks_(ranks), count_(static_cast<std::size_t>(count)), half_(half) {
    staging_.area_bytes = kSmallArea;
    complaint = make(buffers_, 2 * half);
    if (complaint.empty()) complaint = make(stagings_, staging_.bytes(lanes));
  }

  /// Several calls in a row, each with data of its own; what is wrong.
  std::string run(const Case& test, bool any_order, Lies lies, std::uint64_t seed) {
    const std::vector<std::unique_ptr<exec::CudaMemory>>& memory = buffers_.memory;
    return ranks_.run_mapped(
        test, seed, [&](int rank, const exec::CudaCall& plain, cudaStream_t stream) -> Status {
          const auto at = static_cast<std::size_t>(rank);
          exec::CudaMultimem how{test.collective, test.root, any_order};
          exec::CudaCall call = plain;
          std::byte* const base = memory[at]->data();
          exec::CudaMulticastStaging staging = staging_;
          staging.multicast = stagings_.objects[at].data();
          staging.own = stagings_.memory[at]->data();
          for (std::size_t peer = 0; peer < count_; ++peer) {
            staging.everywhere.push_back(stagings_.memory[peer]->data());
            call.peer_inputs[peer] = memory[peer]->data();
          }
          if (lies.input) {
            how.input = buffers_.objects[at].data();
            cudaMemcpyAsync(base, plain.input, test.input_bytes(), cudaMemcpyDefault, stream);
          }
          if (lies.output) how.output = buffers_.objects[at].data() + half_;
          TUTTI_RETURN_IF_ERROR(ranks_.mesh().launch_multimem(rank, call, how, staging, stream));
          if (lies.output)
            cudaMemcpyAsync(plain.output, base + half_, test.output_bytes(), cudaMemcpyDefault,
                            stream);
          return ok();
        });
  }

 private:
  struct Shared {
    std::vector<std::unique_ptr<exec::CudaMemory>> memory;
    std::vector<exec::CudaMulticast> objects;
  };

  std::string make(Shared& shared, std::size_t bytes) {
    for (std::size_t rank = 0; rank < count_; ++rank) {
      auto made = exec::CudaMemory::allocate_for_peers(ranks_.device(rank), bytes);
      if (!made) return made.error().to_string();
      shared.memory.push_back(std::make_unique<exec::CudaMemory>(*std::move(made)));
      if (const Status allowed = shared.memory.back()->allow_peers(); !allowed)
        return said(allowed);
    }
    const std::size_t whole = shared.memory[0]->size();
    exec::CudaMulticastName name;
    auto first = exec::CudaMulticast::make(static_cast<unsigned>(count_), whole, name);
    if (!first) return first.error().to_string();
    shared.objects.push_back(*std::move(first));
    while (shared.objects.size() < count_) {
      auto opened =
          exec::CudaMulticast::open(name, whole, Deadline::after(std::chrono::minutes(5)));
      if (!opened) return opened.error().to_string();
      shared.objects.push_back(*std::move(opened));
    }
    std::string wrong;
    for (std::size_t rank = 0; rank < count_; ++rank)
      wrong += said(shared.objects[rank].add(ranks_.device(rank)));
    for (std::size_t rank = 0; rank < count_; ++rank)
      wrong += said(shared.objects[rank].bind(shared.memory[rank]->data()));
    for (exec::CudaMulticast& object : shared.objects) wrong += said(object.map());
    return wrong;
  }

  DeviceRanks& ranks_;
  const std::size_t count_, half_;
  exec::CudaMulticastStaging staging_;
  Shared buffers_, stagings_;
};

}  // namespace tutti::test
