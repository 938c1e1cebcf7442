// File: cuda/mesh/multimem.cc: collectives over multicast memory (kernels/cuda/multimem.h).
#include <algorithm>
#include <string>

#include "cuda/mesh/mesh.h"
#include "kernels/cuda/fused.h"

namespace tutti::exec {
namespace {

constexpr const char* kWhat = "a collective over multicast memory";

std::size_t bytes_of(const CudaCall& call) { return call.count * size_of(call.type); }

}  // namespace

bool CudaMesh::takes_multimem(const CudaMultimem& asked) const {
  const CudaCall& call = asked.call;
  if (cuda::multimem_kernel(asked.collective, call.type, asked.any_order) == nullptr) return false;
  if (!reduces(asked.collective)) return true;
  if (asked.any_order) return call.op == ReduceOp::kSum;
  return (call.op == ReduceOp::kSum || call.op == ReduceOp::kAvg) &&
         options().devices.size() <= cuda::kMostSources;
}

bool CudaMultimem::can_lie_at(std::size_t offset) const {
  return offset % sizeof(std::uint64_t[2]) == 0 && bytes_of(call) % sizeof(std::uint64_t[2]) == 0;
}

Status CudaMesh::launch_multimem(int rank, const CudaMultimem& asked,
                                 const CudaMulticastStaging& staging, cudaStream_t stream) {
  if (!takes_multimem(asked)) {
    return Error{Code::kUnsupported, std::string(kWhat) + ": " +
                                         std::string(to_string(asked.collective)) + " of " +
                                         std::string(to_string(asked.call.type)) + " by " +
                                         std::string(to_string(asked.call.op))};
  }
  const CudaCall& call = asked.call;
  if (call.count == 0) return ok();
  const std::size_t ranks = options().devices.size();
  const std::size_t half = staging.bytes(options().lanes) / 2;
  cuda::MultimemArguments arguments;
  CudaCallName name;
  name.collective = asked.collective;
  name.root = asked.root;
  arguments.common = arguments_of(rank, call, name);
  arguments.collective = asked.collective;
  arguments.root = static_cast<std::uint32_t>(asked.root);
  arguments.bytes = bytes_of(call);
  arguments.area_bytes = staging.area_bytes;
  const bool sums = reduces(asked.collective);
  arguments.input = {asked.input != nullptr ? asked.input : staging.multicast, staging.own,
                     sums && asked.input == nullptr};
  arguments.output = {asked.output != nullptr ? asked.output : staging.multicast + half,
                      staging.own + half,
                      asked.collective != Collective::kReduceScatter && asked.output == nullptr};
  const bool canonical = sums && !asked.any_order;
  if (canonical && arguments.input.staged) {
    std::ranges::copy(staging.everywhere, arguments.common.peer_inputs);
  } else if (canonical) {
    TUTTI_RETURN_IF_ERROR(add_peers(call, true, false, arguments.common));
  }
  const bool each =
      asked.collective == Collective::kReduceScatter || asked.collective == Collective::kAllGather;
  const std::size_t blocks = each ? ranks : 1;
  const bool staged = arguments.input.staged || arguments.output.staged;
  arguments.tile_bytes = staged
                             ? arguments.area_bytes / blocks / cuda::kTileGrain * cuda::kTileGrain
                             : arguments.bytes;
  const std::size_t words = blocks * arguments.bytes / size_of(DataType::kFloat32);
  return start(rank, cuda::multimem_kernel(asked.collective, call.type, asked.any_order),
               blocks_for(words, DataType::kFloat32), &arguments, stream, kWhat);
}

}  // namespace tutti::exec
