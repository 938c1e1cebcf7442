// File: cuda/mesh/mesh.h: ranks whose devices map each other's memory: their rings, and running
// verified plans on them.
//
// Model. Each rank has a device; several may share one. A mesh is of all ranks, or of one, which
// joins the others' (`join`), of this process or of others (cuda/driver/share.h). Between any two
// there is a ring of slots for each lane and direction, in the reader's memory; or, where their
// devices don't reach each other's (`staged`), in memory of the host; or, between hosts (`away`), a
// ring at each side, whose slots are carried from one to the other. A plan is loaded
// once, for all ranks, and then launched by each rank on a stream of its own: one kernel, a block
// for each lane (kernels/cuda/interpreter.h). A launch returns at once, allocates nothing and may
// be captured into a graph. Ranks launch the same plans in the same order.
//
// All blocks of the message are of `count` elements. To make a mesh loads all kernels, once for
// each device of the process (cuda/driver/kernels.h).
//
// Blocks of a rank wait for those of others, so all of them have to run at a time: how many blocks
// a device has room for is checked when the mesh is made.
#pragma once
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cuda/driver/memory.h"
#include "cuda/driver/multicast.h"
#include "cuda/driver/share.h"
#include "cuda/driver/staging.h"
#include "cuda/mesh/room.h"
#include "cuda/mesh/tag.h"
#include "kernels/cuda/interpreter.h"
#include "plan/plan.h"
#include "transport/region.h"
#include "tutti/result.h"

namespace tutti::exec {

struct CudaMeshOptions {
  std::vector<int> devices;  // By rank.
  /// By rank, of a mesh of one: whose rings with this one are in the host's memory. Empty:
  /// nobody's.
  std::vector<bool> staged;
  /// By rank, of a mesh of one: who is on another host. Rings with it are those of `network`, which
  /// has the mesh's lanes and slots and is carried (network.h). Empty: nobody.
  std::vector<bool> away;
  Region network;
  std::uint32_t lanes = 1;  // The most that a plan may have.
  std::uint32_t slot_count = 8;
  std::size_t slot_bytes = std::size_t{128} << 10;
  cuda::SlotFormat format = cuda::SlotFormat::kSimple;
  /// Of a rank's contribution to a one-shot all-reduce, in each lane: half of it is data.
  std::size_t area_bytes = std::size_t{8} << 10;
  unsigned threads = 512;                                       // Of a block: whole warps.
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);  // Of a kernel that waits.
};

/// A plan in the devices' memory.
class CudaPlan {
 public:
  std::size_t bytes() const;

 private:
  friend class CudaMesh;
  plan::Shape shape_;
  std::uint32_t pieces_ = 1;
  std::uint32_t lanes_ = 1;
  bool together_ = false, tiled_ = false, partials_ = false;
  bool reads_peers_ = false, writes_peers_ = false;  // Their inputs, and their outputs.
  std::vector<CudaMemory> programs_, scratches_;     // By rank.
};

/// One rank's part of a call. Buffers are memory that its device can access.
struct CudaCall {
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t count = 0;  // Elements of a block.
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  // By rank; for plans that touch peers' buffers, and of those which they touch. Null: of another
  // host.
  std::vector<const std::byte*> peer_inputs;
  std::vector<std::byte*> peer_outputs;
  double scale = 1;
  std::int64_t integer_scale = 1;
  /// A hash of where its buffers are in registered memory, alike on all ranks; 0: nowhere.
  std::uint64_t places = 0;
};

/// What a rank sends to a peer or gets from it, another one, on memory that its device can access.
struct CudaMessage {
  bool sends = false;
  int peer = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// All-reduce of rows, plus a residual, and RMSNorm. Of `call`: type, peer_inputs, and
/// peer_outputs, where the normalised rows go. Of one rank alone: what follows the all-reduce.
struct CudaRmsNorm {
  CudaCall call;
  std::vector<std::byte*> residuals;  // By rank: what is added, and then the sum.
  const std::byte* weight = nullptr;  // By column.
  std::size_t rows = 0, columns = 0;
  float epsilon = 1e-6F;
};

/// Reduce-scatter of gradients, a step of SGD, and all-gather of parameters. Of `call`: type,
/// count, peer_inputs (gradients), and peer_outputs (parameters).
struct CudaSgd {
  CudaCall call;
  float* master = nullptr;    // This rank's piece of the parameters (piece_of), in float32,
  float* momentum = nullptr;  // and of their momentum.
  float learning_rate = 0, momentum_factor = 0, weight_decay = 0;
};

/// Some of a mesh's ranks, a bit for each.
using CudaRanks = std::uint64_t;
static_assert(cuda::kMostRanks <= 64);

/// What a rank tells the others; plain bytes.
struct CudaMeshHandle {
  CudaName memory;
  CudaRanks mapped = 0, staged = 0;  // Whose rings with it are in its memory, and in the host's.
  CudaStaging::Name staging = {};    // If some rings are in the host's memory.
};

/// Bytes between counters in a rank's memory, and what everything there begins at.
inline constexpr std::size_t kCudaMeshLine = 128;

class CudaMesh {
 public:
  /// All ranks are of this process. kInvalidArgument: options that make no sense. kUnsupported:
  /// devices without access to each other, or without room for all blocks. kSystem: what the
  /// runtime said.
  static Result<std::unique_ptr<CudaMesh>> create(CudaMeshOptions options);

  /// One rank; with the same options for all, but that only its own device's number matters. To be
  /// joined before it is used, and kept until all ranks have ended their calls.
  static Result<std::unique_ptr<CudaMesh>> create(CudaMeshOptions options, int rank);
  Result<CudaMeshHandle> handle();
  /// By rank, of all ranks.
  Status join(std::span<const CudaMeshHandle> handles);
  CudaMesh(const CudaMesh&) = delete;
  CudaMesh& operator=(const CudaMesh&) = delete;

  /// Whether kernels can take the plan; kUnsupported: why not.
  Status suits(const plan::Plan& plan) const;
  /// For the ranks here. The plan has to be verified, with as many slots as there are or fewer.
  /// kUnsupported: it has more lanes than the mesh, steps with more locations than a kernel takes,
  /// or multicasts.
  Result<CudaPlan> load(const plan::Plan& plan) const;

  /// Starts rank `rank`'s part on a stream of its device. The plan and the mesh have to outlive it.
  /// One thread at a time for each rank.
  Status launch(int rank, const CudaPlan& plan, const CudaCall& call, cudaStream_t stream);

  /// The same for messages: all of the list go at a time, those of one peer and direction in their
  /// order (kernels/cuda/messages.h). Both ends of a message have lists that begin together.
  Status launch_messages(int rank, std::vector<CudaMessage> list, cudaStream_t stream);

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

  // On memory of all devices (kernels/cuda/multimem.h), for float32, float16 and bfloat16, in whole
  // units of 16 bytes; other than that, kUnsupported. Offsets are in bytes of `memory`, multiples
  // of 16, and the same for all ranks; in place is possible. Sums are of the relaxed contract.
  Status launch_multimem_all_reduce(int rank, const CudaMulticast& memory, DataType type,
                                    std::size_t input, std::size_t output, std::size_t count,
                                    cudaStream_t stream);
  /// `input` is the root's own, and may be any memory that its device can access.
  Status launch_multimem_broadcast(int rank, const CudaMulticast& memory, int root,
                                   const std::byte* input, std::size_t output, std::size_t bytes,
                                   cudaStream_t stream);

  /// What a model does next, in the same kernel (kernels/cuda/rms_norm.h, sgd.h), for float32,
  /// float16 and bfloat16 and up to eight ranks; else kUnsupported. kInvalidArgument: what is not
  /// aligned to 16 bytes, or rows that are not of whole units of 16 bytes.
  Status check_rms_norm(const CudaRmsNorm& call) const;  // As it will be when launched.
  Status launch_rms_norm(int rank, const CudaRmsNorm& call, cudaStream_t stream);
  Status launch_sgd(int rank, const CudaSgd& call, cudaStream_t stream);

  /// Ok, or why the rank's calls ended early, which may be asked at any time, by any thread. Then
  /// no more can be run on this mesh.
  Status check(int rank) const;
  /// Ends all that waits in the rank's kernels, now and from now on; their streams go on. Any
  /// thread.
  void abort(int rank);

  /// Of all devices' memory that the mesh took, and of the host's, for rings that are staged.
  std::size_t bytes() const;
  std::size_t staged_bytes() const;

 private:
  CudaMesh(CudaMeshOptions options, int only) : options_(std::move(options)), only_(only) {}
  Status allocate();
  void divide(std::size_t rank);
  Status connect(std::size_t rank);
  Status open_to_all();
  struct Ends {
    cuda::RingEnd inbox, outbox;
    cuda::SignalEnd signal;
  };
  Ends ends_away(std::size_t me, std::size_t peer, std::size_t lane) const;
  Ends ends_of(std::size_t me, std::size_t peer, std::size_t lane) const;
  std::size_t ring_bytes() const { return options_.slot_count * options_.slot_bytes; }
  /// Where the slots of a ring are, in memory that has those of `ranks`.
  std::size_t slots_at(CudaRanks ranks, std::size_t lane, std::size_t peer) const;
  bool is_staged(std::size_t peer) const {
    return peer < options_.staged.size() && options_.staged[peer];
  }
  bool is_away(std::size_t peer) const {
    return peer < options_.away.size() && options_.away[peer];
  }
  /// Whether all ranks reach each other's memory.
  bool is_mapped() const;
  bool is_here(std::size_t rank) const {
    return only_ < 0 || rank == static_cast<std::size_t>(only_);
  }

  /// Where things are in a rank's memory, in bytes; the same for all ranks, but that slots come
  /// last and are of some ranks only.
  struct Layout {
    std::size_t heads, tails, signals, inboxes, outboxes, signal_ends, areas, states, counts, board,
        slots;
  };
  Layout layout() const;
  std::size_t ends() const { return options_.lanes * options_.devices.size(); }
  std::size_t index(std::size_t lane, std::size_t peer) const {
    return lane * options_.devices.size() + peer;
  }

  cuda::Arguments base_arguments(int rank) const;
  void add_boards(std::size_t rank, cuda::Arguments& arguments) const;
  /// Blocks of a kernel, at most.
  std::size_t most_blocks() const;
  cuda::Arguments arguments_of(int rank, const CudaCall& call) const;
  static cuda::CallTag tag_of_call(const CudaCall& call, CudaCallName name = {});
  static Status add_peers(const CudaCall& call, bool inputs, bool outputs,
                          cuda::Arguments& arguments);
  cuda::Arguments arguments_of(int rank, const CudaPlan& plan, const CudaCall& call) const;
  unsigned blocks_for(std::size_t count, DataType type) const;
  std::size_t largest_piece(const CudaCall& call) const;
  Status start(int rank, const void* kernel, std::size_t blocks, void* arguments,
               cudaStream_t stream, const char* what, std::size_t units = cuda::kMostThreads) const;
  cuda::Report* report_of(int rank) const;

  CudaMeshOptions options_;
  std::vector<CudaRoom> room_;
  int only_;                                // The rank of this process; -1: all are.
  std::vector<CudaMemory> memories_;        // By rank; empty where a rank is elsewhere,
  std::vector<std::byte*> bases_;           // and how this process sees all of them.
  std::vector<CudaRanks> mapped_, staged_;  // By rank: whose rings are there.
  CudaExport exported_;                     // Of a mesh of one rank: its memory,
  std::vector<CudaImport> opened_;          // and that of the others.
  CudaStaging staging_;                     // Laid out like memories_, for rings that are staged,
  std::vector<std::byte*> staged_bases_;    // and where this process sees those of others.
  std::vector<CudaStaging> staged_elsewhere_;
  CudaHostMemory reports_;  // A line for each rank.
};

}  // namespace tutti::exec
