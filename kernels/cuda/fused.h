// File: kernels/cuda/fused.h: what the host and the fused kernels both know: collectives on
// multicast memory, and collectives that do with the sum what comes next in a model, before it is
// stored.
//
// All sums are of float32, float16 and bfloat16, and of up to kMostSources ranks but for those of a
// switch. Ranks map each other's buffers: `common` says where those are. Grids are of any size, the
// same for all ranks, as blocks of one number meet; blocks have whole warps, kMostThreads at most.
// A null handle: not of these types.
#pragma once
#include "kernels/cuda/interpreter.h"

namespace tutti::cuda {

/// One side of a call over multicast memory. Addresses are multiples of 16 bytes.
struct MultimemSide {
  std::byte* multicast = nullptr;  // Stands for all ranks' buffer, or for their staging memory,
  std::byte* own = nullptr;        // and this rank's own address of that.
  bool staged = false;
};
/// Collectives over multicast memory (multimem.h). A canonical sum also uses peer_inputs: by rank,
/// its memory of the input's side. A side that is not staged has blocks of whole vectors.
struct MultimemArguments {
  Arguments common;
  MultimemSide input, output;    // What is reduced; what is stored by the switch.
  std::uint64_t bytes = 0;       // A block of the message has so many,
  std::uint64_t tile_bytes = 0;  // and a tile of it: a multiple of kTileGrain, or all.
  std::uint64_t area_bytes = 0;  // A tile's place in staging memory.
  Collective collective = Collective::kAllReduce;
  std::uint32_t root = 0;
};
inline constexpr std::size_t kTileGrain = 64;
/// Sums by the switch, in any order, or canonical ones. Null: the type or the collective has none.
/// Collectives that reduce nothing move bits.
const void* multimem_kernel(Collective collective, DataType type, bool any_order);

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
