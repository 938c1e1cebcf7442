// File: cuda/mesh/multimem.cc: collectives over multicast memory (kernels/cuda/multimem.h).
#include <algorithm>
#include <string>

#include "cuda/mesh/mesh.h"
#include "kernels/cuda/fused.h"

namespace tutti::exec {
namespace {

constexpr const char* kWhat = "a collective over multicast memory";

}  // namespace

bool CudaMesh::takes_multimem(DataType type, ReduceOp op, const CudaMultimem& how) const {
  if (cuda::multimem_kernel(how.collective, type, how.any_order) == nullptr) return false;
  if (!reduces(how.collective)) return true;
  if (how.any_order) return op == ReduceOp::kSum;
  return (op == ReduceOp::kSum || op == ReduceOp::kAvg) &&
         options().devices.size() <= cuda::kMostSources;
}

Status CudaMesh::launch_multimem(int rank, const CudaCall& call, const CudaMultimem& how,
                                 const CudaMulticastStaging& staging, cudaStream_t stream) {
  if (!takes_multimem(call.type, call.op, how)) {
    return Error{Code::kUnsupported,
                 std::string(kWhat) + ": " + std::string(to_string(how.collective)) + " of " +
                     std::string(to_string(call.type)) + " by " + std::string(to_string(call.op))};
  }
  if (call.count == 0) return ok();
  const std::size_t ranks = options().devices.size();
  const std::size_t half = staging.bytes(options().lanes) / 2;
  cuda::MultimemArguments arguments;
  CudaCallName name;
  name.collective = how.collective;
  name.root = how.root;
  arguments.common = arguments_of(rank, call, name);
  arguments.collective = how.collective;
  arguments.root = static_cast<std::uint32_t>(how.root);
  arguments.bytes = call.count * size_of(call.type);
  arguments.area_bytes = staging.area_bytes;
  const bool sums = reduces(how.collective);
  arguments.input = {how.input != nullptr ? how.input : staging.multicast, staging.own,
                     sums && how.input == nullptr};
  arguments.output = {how.output != nullptr ? how.output : staging.multicast + half,
                      staging.own + half,
                      how.collective != Collective::kReduceScatter && how.output == nullptr};
  const bool canonical = sums && !how.any_order;
  if (canonical && arguments.input.staged) {
    std::ranges::copy(staging.everywhere, arguments.common.peer_inputs);
  } else if (canonical) {
    TUTTI_RETURN_IF_ERROR(add_peers(call, true, false, arguments.common));
  }
  const bool each =
      how.collective == Collective::kReduceScatter || how.collective == Collective::kAllGather;
  const std::size_t blocks = each ? ranks : 1;
  const bool staged = arguments.input.staged || arguments.output.staged;
  arguments.tile_bytes = staged
                             ? arguments.area_bytes / blocks / cuda::kTileGrain * cuda::kTileGrain
                             : arguments.bytes;
  const std::size_t words = blocks * arguments.bytes / size_of(DataType::kFloat32);
  return start(rank, cuda::multimem_kernel(how.collective, call.type, how.any_order),
               blocks_for(words, DataType::kFloat32), &arguments, stream, kWhat);
}

}  // namespace tutti::exec
