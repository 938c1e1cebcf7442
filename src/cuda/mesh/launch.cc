// File: cuda/mesh/launch.cc: a rank's part of a call, as a kernel's arguments.
#include <algorithm>
#include <numeric>
#include <string>

#include "cuda/mesh/mesh.h"
#include "exec/lane.h"
#include "plan/partition.h"
#include "tutti/detail/wire_codec.h"

namespace tutti::exec {

using cuda::Arguments;
using cuda::LanePage;

/// What does not depend on a plan. `name`: what the call does not say of itself.
cuda::Arguments CudaMesh::arguments_of(int rank, const CudaCall& call, CudaCallName name) const {
  Arguments arguments = rings_.arguments(rank);
  arguments.input = call.input;
  arguments.output = call.output;
  arguments.count = call.count;
  arguments.scale = call.scale;
  arguments.integer_scale = call.integer_scale;
  arguments.scale_at = call.scale_at;
  arguments.op = call.op;
  arguments.mark = call.mark;
  name.type = call.type;
  name.op = call.op;
  name.count = call.count;
  name.places = call.places;
  name.wire = call.wire;
  arguments.tag = tag_of(name);
  arguments.scaled = call.op == ReduceOp::kPreMulSum;
  return arguments;
}

/// Where peers' buffers are. kInvalidArgument: the call does not say.
Status CudaMesh::add_peers(const CudaCall& call, bool inputs, bool outputs, Arguments& arguments) {
  const std::size_t ranks = arguments.ranks;
  if ((inputs && call.peer_inputs.size() != ranks) ||
      (outputs && call.peer_outputs.size() != ranks)) {
    return Error{Code::kInvalidArgument,
                 "peers' buffers are touched, and the call does not say where they are"};
  }
  if (inputs) std::copy(call.peer_inputs.begin(), call.peer_inputs.end(), arguments.peer_inputs);
  if (outputs) std::ranges::copy(call.peer_outputs, arguments.peer_outputs);
  return ok();
}

std::size_t CudaMesh::tile_elements(const CudaPlan& plan, const CudaCall& call,
                                    const Arguments& arguments) {
  if (!plan.tiled_) return cuda::kMostTileElements;
  if (call.wire.is_plain()) {
    const std::size_t unit = cuda::unit_elements(call.type);
    const Form widest = plan.partials_ || arguments.scaled ? Form::kPartial : Form::kResult;
    const std::size_t unit_bytes = unit * element_bytes(call.type, widest);
    return cuda::units_in_slot(arguments.format, arguments.slot_bytes, unit_bytes) * unit;
  }
  const std::size_t fits = kernels::encoded_elements(call.wire.format, arguments.slot_bytes);
  if (!plan.scratch_) return fits;  // A slot of 1024 bytes, the least, holds several blocks.
  const std::size_t values = arguments.scratch_bytes / sizeof(float);  // Scratch is not encoded.
  return std::min(fits, values / kernels::kWireBlock * kernels::kWireBlock);
}

cuda::Arguments CudaMesh::arguments_of(int rank, const CudaPlan& plan, const CudaCall& call) const {
  const auto me = static_cast<std::size_t>(rank);
  CudaCallName name;
  name.collective = plan.shape_.collective;
  name.root = plan.shape_.root;
  Arguments arguments = arguments_of(rank, call, name);
  if (plan.set_) rings_.take(*plan.set_, rank, arguments);
  const CudaPlan::OfRank& own = plan.ranks_[me];
  arguments.pages = reinterpret_cast<const LanePage*>(own.memory.data());
  arguments.page_count = own.page_count;
  arguments.scratch = own.memory.data() + own.scratch_at;
  arguments.scratch_bytes = arguments.slot_bytes;
  arguments.pieces = plan.pieces_;
  if (!plan.tiled_ && call.wire.is_plain())
    arguments.shares = std::gcd(plan.pieces_, static_cast<std::uint32_t>(plan.lanes_));
  arguments.scaled &= reduces(plan.shape_.collective);
  arguments.entry_barrier = plan.entry_barrier_;
  arguments.wire_stochastic = call.wire.rounding == Rounding::kStochastic;
  arguments.tile_elements = tile_elements(plan, call, arguments);
  const std::size_t largest = plan::piece_of(call.count, arguments.pieces / arguments.shares, 0,
                                             cuda::grain_of(call.type, call.wire.format))
                                  .count;
  arguments.tiles = (largest + arguments.tile_elements - 1) / arguments.tile_elements;
  return arguments;
}

Status CudaMesh::check_wire(const CudaPlan& plan, const CudaCall& call) {
  if (call.wire.is_plain()) return ok();
  const bool peers = plan.reads_peers_ || plan.writes_peers_;
  if (call.type == DataType::kFloat32 && !plan.set_ && !peers) return ok();
  return Error{Code::kUnsupported,
               "a call as " + to_string(call.wire) + " is of float32, and goes over simple slots"};
}

Status CudaMesh::launch(int rank, const CudaPlan& plan, const CudaCall& call, cudaStream_t stream) {
  const bool reduces_any = reduces(plan.shape_.collective);
  const ReduceOp op = reduces_any ? call.op : ReduceOp::kSum;
  TUTTI_RETURN_IF_ERROR(check_wire(plan, call));
  const void* kernel = call.wire.is_plain() ? cuda::interpreter_kernel(call.type, op)
                                            : cuda::wire_kernel(call.wire.format, op);
  if (kernel == nullptr) {
    return Error{Code::kUnsupported, std::string(to_string(call.op)) + " takes no " +
                                         std::string(to_string(call.type))};
  }
  if (reduces_any && call.op == ReduceOp::kPreMulSum && plan.reads_peers_) {
    return Error{Code::kUnsupported,
                 "premulsum can't run a plan that reads peers' inputs: their scales aren't known"};
  }
  if (call.count == 0) return ok();
  Arguments arguments = arguments_of(rank, plan, call);
  TUTTI_RETURN_IF_ERROR(add_peers(call, plan.reads_peers_, plan.writes_peers_, arguments));
  return start(rank, kernel, plan.lanes_, &arguments, stream, "the interpreter");
}

/// Starts a kernel that takes one structure; with no more threads than have to do in a block.
Status CudaMesh::start(int rank, const void* kernel, std::size_t blocks, void* arguments,
                       cudaStream_t stream, const char* what, std::size_t units) const {
  const std::size_t warps = (units + cuda::kWarpLanes - 1) / cuda::kWarpLanes;
  const auto threads =
      static_cast<unsigned>(std::min<std::size_t>(warps * cuda::kWarpLanes, options().threads));
  void* list[] = {arguments};
  const int device = options().devices[static_cast<std::size_t>(rank)];
  const OnDevice on(device);
  const cudaError_t started =
      cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(blocks)), dim3(threads), list, 0, stream);
  if (started == cudaSuccess) return ok();
  std::string doing = std::string("starting ") + what + " of rank " + std::to_string(rank);
  if (started == cudaErrorInvalidResourceHandle)
    doing += "; the stream must belong to device " + std::to_string(device);
  return cuda_status(started, doing);
}

namespace {

/// Elements of a block of the one-shot all-reduce.
std::size_t elements_in_area(std::size_t area_bytes, DataType type, ReduceOp op) {
  const Form form = op == ReduceOp::kPreMulSum ? Form::kPartial : Form::kContribution;
  const std::size_t unit = cuda::unit_elements(type);
  return cuda::units_in_slot(cuda::SlotFormat::kPacked, area_bytes,
                             unit * element_bytes(type, form)) *
         unit;
}

}  // namespace

std::size_t CudaMesh::one_shot_elements(DataType type, ReduceOp op) const {
  if (options().devices.size() > cuda::kMostSources || !rings_.is_mapped()) return 0;
  return options().lanes * elements_in_area(options().area_bytes, type, op);
}

Status CudaMesh::launch_one_shot(int rank, const CudaCall& call, cudaStream_t stream) {
  const void* kernel = cuda::one_shot_kernel(call.type, call.op);
  if (kernel == nullptr || call.count > one_shot_elements(call.type, call.op)) {
    return Error{Code::kUnsupported, "a one-shot all-reduce of " + std::to_string(call.count) +
                                         " " + std::string(to_string(call.type)) + " by " +
                                         std::string(to_string(call.op)) + "; it takes up to " +
                                         std::to_string(one_shot_elements(call.type, call.op))};
  }
  if (call.count == 0) return ok();
  cuda::OneShotArguments arguments;
  arguments.common = arguments_of(rank, call);
  for (std::size_t peer = 0; peer < options().devices.size(); ++peer) {
    arguments.areas[peer] = rings_.areas(peer);
  }
  arguments.area_bytes = options().area_bytes;
  arguments.elements_per_block = elements_in_area(options().area_bytes, call.type, call.op);
  const std::size_t blocks =
      (call.count + arguments.elements_per_block - 1) / arguments.elements_per_block;
  const std::size_t unit = cuda::unit_elements(call.type);
  const std::size_t most = std::min<std::size_t>(call.count, arguments.elements_per_block);
  return start(rank, kernel, blocks, &arguments, stream, "the one-shot all-reduce",
               (most + unit - 1) / unit);
}

/// Blocks that share `count` elements: fewer than lanes where threads would have nothing to do; the
/// same number for all ranks, as blocks meet.
unsigned CudaMesh::blocks_for(std::size_t count, DataType type) const {
  const std::size_t enough = options().threads * cuda::unit_elements(type);
  return static_cast<unsigned>(std::clamp<std::size_t>(count / enough, 1, options().lanes));
}

Status CudaMesh::check_two_shot(const CudaCall& call) const {
  const std::size_t ranks = options().devices.size();
  const std::size_t piece = largest_piece(call);
  const unsigned blocks = blocks_for(piece, call.type);
  const bool is_taken = cuda::two_shot_kernel(call.type, call.op) != nullptr &&
                        call.op != ReduceOp::kPreMulSum && ranks <= cuda::kMostSources;
  if (is_taken && piece / blocks <= cuda::kMostTileElements) return ok();
  std::string what = "a two-shot all-reduce of " + std::to_string(call.count) + " " +
                     std::string(to_string(call.type)) + " by " + std::string(to_string(call.op));
  if (is_taken) {
    what += " with " + std::to_string(blocks) + " lanes; a lane takes up to 2^30 elements";
  } else {
    what += " among " + std::to_string(ranks) +
            " ranks; it takes all operations but premulsum and up to " +
            std::to_string(cuda::kMostSources) + " ranks";
  }
  return Error{Code::kUnsupported, std::move(what)};
}

/// The largest of the pieces that ranks reduce.
std::size_t CudaMesh::largest_piece(const CudaCall& call) const {
  const auto ranks = static_cast<std::uint32_t>(options().devices.size());
  return plan::piece_of(call.count, ranks, 0, cuda::grain_of(call.type)).count;
}

Status CudaMesh::launch_two_shot(int rank, const CudaCall& call, cudaStream_t stream) {
  TUTTI_RETURN_IF_ERROR(check_two_shot(call));
  if (call.count == 0) return ok();
  Arguments arguments = arguments_of(rank, call);
  TUTTI_RETURN_IF_ERROR(add_peers(call, true, true, arguments));
  return start(rank, cuda::two_shot_kernel(call.type, call.op),
               blocks_for(largest_piece(call), call.type), &arguments, stream,
               "the two-shot all-reduce");
}

}  // namespace tutti::exec
