// File: cuda/mesh/mesh.h: runs verified plans, and calls that need no plan, on ranks' devices.
//
// Model. Each rank has a device; several may share one. A mesh is of all ranks, or of one, which
// joins the others'; between any two there are rings (rings.h). A plan is loaded once, for all
// ranks, and then launched by each rank on a stream of its own: one kernel, a block for each lane
// (kernels/cuda/interpreter.h). A launch returns at once, allocates nothing and may be captured
// into a graph. Ranks launch the same plans in the same order.
//
// All blocks of the message are of `count` elements. Making a mesh loads all kernels, once for each
// device of the process (cuda/driver/kernels.h).
//
// Blocks of a rank wait for those of others, so all of them have to run at a time. Making a mesh
// checks that the device has room for so many (residency.h).
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cuda/driver/memory.h"
#include "cuda/mesh/residency.h"
#include "cuda/mesh/rings.h"
#include "cuda/mesh/tag.h"
#include "kernels/cuda/interpreter.h"
#include "plan/plan.h"
#include "tutti/result.h"
#include "tutti/wire.h"

namespace tutti::exec {

/// A plan in the devices' memory.
class CudaPlan {
 public:
  std::size_t bytes() const;

 private:
  friend class CudaMesh;
  plan::Shape shape_;
  std::uint32_t pieces_ = 1;
  std::uint32_t lanes_ = 1;
  bool entry_barrier_ = false, tiled_ = false, partials_ = false;
  bool scratch_ = false;            // Some rank has some; all have tiles of one size.
  std::optional<std::size_t> set_;  // In CudaMeshOptions::more; none: the mesh's own rings.
  bool reads_peers_ = false, writes_peers_ = false;  // Their inputs, and their outputs.
  struct OfRank {
    CudaMemory memory;             // Lanes' pages, then scratch.
    std::uint32_t page_count = 0;  // For each lane.
    std::size_t scratch_at = 0;
  };
  std::vector<OfRank> ranks_;
};

/// One rank's part of a call. Buffers are memory that its device can access.
struct CudaCall {
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t count = 0;  // Elements of a block.
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  // By rank; for plans that touch peers' buffers. Null: the peer is on another host.
  std::vector<const std::byte*> peer_inputs;
  std::vector<std::byte*> peer_outputs;
  double scale = 1;
  std::int64_t integer_scale = 1;
  const void* scale_at = nullptr;  // In the device's memory: goes before the two above.
  Wire wire;  // For float32 and simple slots; the plan touches no peer's buffers.
  /// A hash of where its buffers are in registered memory, alike on all ranks; 0: nowhere.
  std::uint64_t places = 0;
  cuda::LaunchMark mark;
};

/// What a rank sends to a peer or gets from it, another one, on memory that its device can access.
struct CudaMessage {
  bool sends = false;
  int peer = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// All-reduce of rows, plus a residual, and RMSNorm. Uses type, peer_inputs and peer_outputs of
/// `call`; the normalised rows go to the latter. With one residual: what follows the all-reduce.
struct CudaRmsNorm {
  CudaCall call;
  std::vector<std::byte*> residuals;  // By rank: what is added, and then the sum.
  const std::byte* weight = nullptr;  // By column.
  std::size_t rows = 0, columns = 0;
  float epsilon = 1e-6F;
};

/// Reduce-scatter of gradients, a step of SGD, and all-gather of parameters. Uses type, count,
/// peer_inputs (gradients) and peer_outputs (parameters) of `call`.
struct CudaSgd {
  CudaCall call;
  float* master = nullptr;    // This rank's piece of the parameters (piece_of), in float32,
  float* momentum = nullptr;  // and of their momentum.
  float learning_rate = 0, momentum_factor = 0, weight_decay = 0;
};

/// Multicast memory of all ranks, for buffers that are not in such (kernels/cuda/multimem.h).
struct CudaMulticastStaging {
  std::size_t area_bytes = std::size_t{256} << 10;  // A lane's tile: a multiple of 64 a rank.
  /// What a mesh of so many lanes takes: a tile for each lane, on both sides, twice.
  std::size_t bytes(std::uint32_t lanes) const { return area_bytes * lanes * 4; }
  std::byte* multicast = nullptr;      // Stands for all ranks'.
  std::byte* own = nullptr;            // This rank's,
  std::vector<std::byte*> everywhere;  // and that of each rank, as this one sees it.
};

/// All-reduce, reduce-scatter, all-gather or broadcast over multicast memory. A sum by the switch
/// (`any_order`) takes the operation sum alone, a canonical one also avg, for an all-reduce.
struct CudaMultimem {
  Collective collective = Collective::kAllReduce;
  int root = 0;
  bool any_order = false;
  /// Addresses that stand for all ranks' buffers; null: it is staged, or a rank's own alone.
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  /// Whether kernels can use a buffer there, with blocks of so many bytes.
  static bool takes(const std::byte* at, std::size_t block_bytes) {
    return reinterpret_cast<std::uintptr_t>(at) % 16 == 0 && block_bytes % 16 == 0;
  }
};

/// It has more than 20 functions: each kind of kernel has a check and a launch.
class CudaMesh {
 public:
  /// All ranks are of this process. kInvalidArgument: options that make no sense. kUnsupported:
  /// devices without access to each other, or without room for all blocks. kSystem: what the
  /// runtime said.
  static Result<std::unique_ptr<CudaMesh>> create(CudaMeshOptions options);

  /// One rank; with the same options for all, but that only its own device's number matters. To be
  /// joined before it is used, and kept until all ranks have ended their calls.
  static Result<std::unique_ptr<CudaMesh>> create(CudaMeshOptions options, int rank);
  CudaMesh(const CudaMesh&) = delete;
  CudaMesh& operator=(const CudaMesh&) = delete;

  /// Ends the count of the mesh's blocks once what is returned goes: when its last kernel has
  /// ended. The mesh may stay longer, as its memory does. Not while another thread does the same.
  std::vector<CudaResidency> take_residency() { return std::exchange(residency_, {}); }

  /// Where calls run: to be joined, checked and aborted.
  CudaRings& rings() { return rings_; }
  const CudaRings& rings() const { return rings_; }

  /// Whether kernels can take the plan; kUnsupported: why not. `format`: over the rings of that
  /// format; none: over the mesh's own.
  Status suits(const plan::Plan& plan, std::optional<cuda::SlotFormat> format = {}) const;
  /// For the ranks here. The plan has to be verified, with as many slots as there are or fewer.
  /// kUnsupported: it has more lanes than the mesh, steps with more locations than a kernel takes,
  /// or multicasts.
  Result<CudaPlan> load(const plan::Plan& plan, std::optional<cuda::SlotFormat> format = {}) const;

  /// Starts rank `rank`'s part on a stream of its device. The plan and the mesh have to outlive it.
  /// One thread at a time for each rank. kUnsupported: an operation or a wire that kernels don't
  /// take.
  Status launch(int rank, const CudaPlan& plan, const CudaCall& call, cudaStream_t stream);

  /// The same for messages: all of the list go at a time, those of one peer and direction in their
  /// order (kernels/cuda/messages.h). Both ends of a message have lists that begin together.
  Status launch_messages(int rank, std::vector<CudaMessage> list, cudaStream_t stream,
                         const cuda::LaunchMark& mark = {});

  /// The same for an all-reduce of few elements, without a plan (kernels/cuda/one_shot.h).
  /// kUnsupported: more than one_shot_elements, or too many ranks for a step.
  Status launch_one_shot(int rank, const CudaCall& call, cudaStream_t stream);
  /// How many elements that takes; none where some ranks don't reach each other's memory.
  std::size_t one_shot_elements(DataType type, ReduceOp op) const;

  /// The same for an all-reduce over mapped peers (kernels/cuda/two_shot.h): `peer_inputs` and
  /// `peer_outputs` say where all ranks' buffers are. kUnsupported: premulsum, as peers' scales are
  /// not known; too many ranks for a step; more than 2^30 elements for a lane.
  Status launch_two_shot(int rank, const CudaCall& call, cudaStream_t stream);
  Status check_two_shot(const CudaCall& call) const;  // As it will be when launched.

  /// The same for collectives over multicast memory. kUnsupported: not takes_multimem.
  Status launch_multimem(int rank, const CudaCall& call, const CudaMultimem& how,
                         const CudaMulticastStaging& staging, cudaStream_t stream);
  bool takes_multimem(DataType type, ReduceOp op, const CudaMultimem& how) const;

  /// What a model does next, in the same kernel (kernels/cuda/rms_norm.h, sgd.h), for float32,
  /// float16 and bfloat16 and up to eight ranks; else kUnsupported. kInvalidArgument: what is not
  /// aligned to 16 bytes, or rows that are not of whole units of 16 bytes.
  Status check_rms_norm(const CudaRmsNorm& call) const;  // As it will be when launched.
  Status launch_rms_norm(int rank, const CudaRmsNorm& call, cudaStream_t stream);
  Status launch_sgd(int rank, const CudaSgd& call, cudaStream_t stream);

 private:
  CudaMesh(CudaMeshOptions options, int only) : rings_(std::move(options), only) {}
  const CudaMeshOptions& options() const { return rings_.options(); }
  Result<std::optional<std::size_t>> set_of(std::optional<cuda::SlotFormat> format) const;
  cuda::Arguments arguments_of(int rank, const CudaCall& call, CudaCallName name = {}) const;
  cuda::Arguments arguments_of(int rank, const CudaPlan& plan, const CudaCall& call) const;
  static Status check_wire(const CudaPlan& plan, const CudaCall& call);
  static std::size_t tile_elements(const CudaPlan& plan, const CudaCall& call,
                                   const cuda::Arguments& arguments);
  static Status add_peers(const CudaCall& call, bool inputs, bool outputs,
                          cuda::Arguments& arguments);
  unsigned blocks_for(std::size_t count, DataType type) const;
  std::size_t largest_piece(const CudaCall& call) const;
  Status start(int rank, const void* kernel, std::size_t blocks, void* arguments,
               cudaStream_t stream, const char* what, std::size_t units = cuda::kMostThreads) const;

  std::vector<CudaResidency> residency_;
  CudaRings rings_;
};

}  // namespace tutti::exec
