// File: cuda/mesh/fused.cc: calls of the fused kernels (kernels/cuda/fused.h).
#include <algorithm>
#include <string>

#include "cuda/mesh/mesh.h"
#include "kernels/cuda/fused.h"
#include "plan/partition.h"

namespace tutti::exec {
namespace {

Error invalid(const char* what, const std::string& why) {
  return {Code::kInvalidArgument, std::string(what) + ": " + why};
}

Status check_type(const void* kernel, const char* what, DataType type) {
  if (kernel != nullptr) return ok();
  return Error{Code::kUnsupported, std::string(what) + " of " + std::string(to_string(type)) +
                                       "; it takes float32, float16 and bfloat16"};
}

template <class T>
bool aligned(const T* at) {
  return reinterpret_cast<std::uintptr_t>(at) % 16 == 0;
}
template <class List>
bool all_aligned(const List& list) {
  return std::all_of(list.begin(), list.end(), [](const auto* at) { return aligned(at); });
}

constexpr const char* kRmsNorm = "an all-reduce with RMSNorm";

}  // namespace

Status CudaMesh::check_rms_norm(const CudaRmsNorm& norm) const {
  const CudaCall& call = norm.call;
  TUTTI_RETURN_IF_ERROR(check_type(cuda::rms_norm_kernel(call.type), kRmsNorm, call.type));
  const std::size_t ranks = norm.residuals.size();
  if (ranks != 1 && ranks != options().devices.size())
    return invalid(kRmsNorm, "it takes a residual for each rank");
  if (ranks > cuda::kMostSources)
    return Error{Code::kUnsupported, std::string(kRmsNorm) + " of more than eight ranks"};
  if (norm.columns % cuda::unit_elements(call.type) != 0 || norm.columns >> 30 != 0 ||
      !aligned(norm.weight) || !all_aligned(norm.residuals) || !all_aligned(call.peer_inputs) ||
      !all_aligned(call.peer_outputs)) {
    return invalid(kRmsNorm, "rows of " + std::to_string(norm.columns) + " " +
                                 std::string(to_string(call.type)) +
                                 ", or not aligned; whole units of 16 bytes are possible");
  }
  return ok();
}

Status CudaMesh::launch_rms_norm(int rank, const CudaRmsNorm& norm, cudaStream_t stream) {
  TUTTI_RETURN_IF_ERROR(check_rms_norm(norm));
  const CudaCall& call = norm.call;
  const std::size_t ranks = norm.residuals.size();
  cuda::RmsNormArguments arguments;
  arguments.common = arguments_of(rank, call, {.kind = CudaCallName::kRmsNorm});
  arguments.common.op = ReduceOp::kSum;
  arguments.common.ranks = static_cast<std::uint32_t>(ranks);
  if (ranks == 1) {  // Peers have compared the call that this is a part of.
    arguments.common.rank = 0;
    std::fill(std::begin(arguments.common.boards), std::end(arguments.common.boards), nullptr);
    arguments.common.staged_board = nullptr;
    arguments.common.states = nullptr;
  }
  TUTTI_RETURN_IF_ERROR(add_peers(call, true, true, arguments.common));
  if (norm.rows == 0 || norm.columns == 0) return ok();
  std::copy(norm.residuals.begin(), norm.residuals.end(), arguments.residuals);
  arguments.weight = norm.weight;
  arguments.rows = norm.rows;
  arguments.columns = norm.columns;
  arguments.epsilon = norm.epsilon;
  const std::size_t most_rows = (norm.rows + ranks - 1) / ranks;
  return start(rank, cuda::rms_norm_kernel(call.type),
               std::min<std::size_t>(most_rows, options().lanes), &arguments, stream, kRmsNorm);
}

Status CudaMesh::launch_sgd(int rank, const CudaSgd& step, cudaStream_t stream) {
  constexpr const char* kWhat = "a reduce-scatter with SGD";
  const CudaCall& call = step.call;
  const std::size_t ranks = options().devices.size();
  const void* kernel = cuda::sgd_kernel(call.type);
  TUTTI_RETURN_IF_ERROR(check_type(kernel, kWhat, call.type));
  const std::size_t piece =
      plan::piece_of(call.count, static_cast<std::uint32_t>(ranks), 0, cuda::grain_of(call.type))
          .count;
  const unsigned blocks = blocks_for(piece, call.type);
  if (ranks > cuda::kMostSources || piece / blocks >> 30 != 0) {
    return Error{Code::kUnsupported,
                 std::string(kWhat) + " of more than eight ranks, or 2^30 elements a lane"};
  }
  cuda::SgdArguments arguments;
  arguments.common = arguments_of(rank, call, {.kind = CudaCallName::kSgd});
  arguments.common.op = ReduceOp::kSum;  // The kernel takes the average before the step.
  TUTTI_RETURN_IF_ERROR(add_peers(call, true, true, arguments.common));
  if (!aligned(step.master) || !aligned(step.momentum)) {
    return invalid(kWhat, "master or momentum is not aligned to 16 bytes");
  }
  if (call.count == 0) return ok();
  arguments.master = step.master;
  arguments.momentum = step.momentum;
  arguments.learning_rate = step.learning_rate;
  arguments.momentum_factor = step.momentum_factor;
  arguments.weight_decay = step.weight_decay;
  return start(rank, kernel, blocks, &arguments, stream, kWhat);
}

}  // namespace tutti::exec
