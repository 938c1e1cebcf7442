// File: kernels/cuda/fused.h: what the host and the fused kernels both know: collectives on
// multicast memory, and collectives that do with the sum what comes next in a model, before it is
// stored.
//
// All of them take float32, float16 and bfloat16, and up to kMostSources ranks, which map each
// other's buffers: `common` says where those are. Grids are of any size, the same for all ranks, as
// blocks of one number meet; blocks have whole warps, kMostThreads at most. A null handle: not of
// these types.
#pragma once
#include "kernels/cuda/interpreter.h"

namespace tutti::cuda {

/// All-reduce and broadcast on multicast memory (multimem.h). They use count, report, timeout_ns,
/// ranks and rank of `common`. Both addresses are multiples of 16 bytes.
struct MultimemArguments {
  Arguments common;
  const std::byte* input = nullptr;   // All-reduce: multicast. Broadcast: the root's own.
  std::byte* output = nullptr;        // Multicast.
  std::uint64_t* counters = nullptr;  // Multicast, by block, kCounterBytes apart: how many came,
  const std::uint64_t* arrived = nullptr;  // this rank's own address of them,
  std::uint64_t* rounds = nullptr;         // and by block how often it has met.
  std::uint32_t root = 0;
};
inline constexpr std::size_t kCounterBytes = 128;
const void* multimem_all_reduce_kernel(DataType type);
/// Moves bits: `count` is of bytes.
const void* multimem_broadcast_kernel();

/// All-reduce of `rows` rows of `columns`, plus a residual, and RMSNorm (rms_norm.h). It uses the
/// peers' inputs of `common`, and writes normalised rows to peer_outputs. Rows are of whole units.
struct RmsNormArguments {
  Arguments common;
  std::byte* residuals[kMostSources] = {};  // By rank: a summand, and then the sum.
  const std::byte* weight = nullptr;        // By column.
  std::uint64_t rows = 0, columns = 0;
  float epsilon = 0;
};
const void* rms_norm_kernel(DataType type);

/// Reduce-scatter of gradients, a step of SGD, and all-gather of parameters (sgd.h). It uses the
/// peers' inputs of `common`, which are gradients, and writes parameters to peer_outputs.
struct SgdArguments {
  Arguments common;
  float* master = nullptr;    // This rank's piece of the parameters, in float32,
  float* momentum = nullptr;  // and of their momentum.
  float learning_rate = 0, momentum_factor = 0, weight_decay = 0;
};
const void* sgd_kernel(DataType type);

}  // namespace tutti::cuda
