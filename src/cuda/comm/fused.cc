// Calls that do with a sum what comes next (cuda/mesh/fused.cc), of registered memory
// (registered.cc).
#include <algorithm>

#include <fmt/format.h>

#include "cuda/comm/state.h"
#include "plan/partition.h"

namespace tutti {
namespace {

constexpr std::size_t kMostElements = std::size_t{1} << 46;
constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16};

Error invalid(const std::string& what) { return {Code::kInvalidArgument, what}; }

/// Whatever keeps a call from being one; and whether there is nothing to do.
template <class Call>
Status check_call(const char* name, const Call& call, std::size_t elements,
                  std::initializer_list<const void*> buffers) {
  if (in_group()) return invalid(fmt::format("{} is not for groups; end the group first", name));
  if (std::find(std::begin(kTypes), std::end(kTypes), call.type) == std::end(kTypes)) {
    return Error{Code::kUnsupported, fmt::format("{} of {}; it takes float32, float16 and bfloat16",
                                                 name, to_string(call.type))};
  }
  if (elements > kMostElements)
    return invalid(fmt::format("{}: {} elements; up to 2^46 can be", name, elements));
  if (elements != 0 && std::find(buffers.begin(), buffers.end(), nullptr) != buffers.end())
    return invalid(fmt::format("{}: a buffer is null", name));
  return ok();
}

/// Whether kernels can add up all ranks' registered memory.
bool can_fuse(const DeviceRank& rank) {
  return static_cast<std::size_t>(rank.rank_count) <= cuda::kMostSources &&
         rank.network() == nullptr;
}

}  // namespace

Status DeviceCommunicator::State::start(const RmsNorm& norm, cudaStream_t stream) {
  constexpr const char* kName = "all_reduce_rms_norm";
  if (norm.columns != 0 && norm.rows > kMostElements / norm.columns)
    return invalid(fmt::format("{}: {} rows of {}", kName, norm.rows, norm.columns));
  const std::size_t count = norm.rows * norm.columns, bytes = count * size_of(norm.type);
  TUTTI_RETURN_IF_ERROR(
      check_call(kName, norm, count, {norm.input, norm.residual, norm.output, norm.weight}));
  TUTTI_RETURN_IF_ERROR(health.failure());
  if (count == 0) return ok();
  exec::CudaRmsNorm call;
  call.call.type = norm.type;
  const RegisteredMemory::Place input = memory.place_at(norm.input, bytes),
                                residual = memory.place_at(norm.residual, bytes),
                                output_at = memory.place_at(norm.output, bytes);
  input.list(call.call.peer_inputs);
  output_at.list(call.call.peer_outputs);
  residual.list(call.residuals);
  call.call.count = count;
  call.call.places = RegisteredMemory::places_of(
      {norm.columns, input.number(), residual.number(), output_at.number()});
  call.weight = static_cast<const std::byte*>(norm.weight);
  call.rows = norm.rows;
  call.columns = norm.columns;
  call.epsilon = norm.epsilon;
  const bool fused = can_fuse(rank) && !call.call.peer_inputs.empty() &&
                     !call.call.peer_outputs.empty() && !call.residuals.empty();
  if (!fused) {  // The sum goes where the output will.
    auto* output = static_cast<std::byte*>(norm.output);
    call.call.peer_inputs = {output};
    call.call.peer_outputs = {output};
    call.residuals = {static_cast<std::byte*>(norm.residual)};
    TUTTI_RETURN_IF_ERROR(rank.mesh->check_rms_norm(call));
    const Request request{.collective = Collective::kAllReduce,
                          .input = norm.input,
                          .output = norm.output,
                          .count = count,
                          .type = norm.type};
    TUTTI_RETURN_IF_ERROR(check(request));
    TUTTI_RETURN_IF_ERROR(prepare(request));
    TUTTI_RETURN_IF_ERROR(launch(request, stream));
  }
  return in_order(stream, [&] {
    call.call.mark = record.unrecorded();
    return rank.mesh->launch_rms_norm(rank.me.value, call, stream);
  });
}

Status DeviceCommunicator::State::start(const SgdStep& step, cudaStream_t stream) {
  constexpr const char* kName = "sgd_step";
  TUTTI_RETURN_IF_ERROR(check_call(kName, step, step.count, {step.gradients, step.parameters}));
  TUTTI_RETURN_IF_ERROR(health.failure());
  if (step.count == 0) return ok();
  const std::size_t bytes = step.count * size_of(step.type);
  exec::CudaSgd call;
  call.call.type = step.type;
  call.call.count = step.count;
  const RegisteredMemory::Place gradients = memory.place_at(step.gradients, bytes),
                                parameters = memory.place_at(step.parameters, bytes);
  gradients.list(call.call.peer_inputs);
  parameters.list(call.call.peer_outputs);
  call.call.places = RegisteredMemory::places_of({gradients.number(), parameters.number()});
  if (!can_fuse(rank) || call.call.peer_inputs.empty() || call.call.peer_outputs.empty()) {
    return Error{Code::kUnsupported,
                 fmt::format("{}: gradients and parameters have to be registered memory "
                             "(register_memory), of up to {} ranks on one host",
                             kName, cuda::kMostSources),
                 rank.me};
  }
  const auto piece =
      plan::piece_of(step.count, static_cast<std::uint32_t>(rank.rank_count),
                     static_cast<std::uint32_t>(rank.me.value), cuda::grain_of(step.type));
  if (piece.count != 0 && (step.master == nullptr || step.momentum == nullptr))
    return invalid(fmt::format("{}: master or momentum is null", kName));
  call.master = step.master;
  call.momentum = step.momentum;
  call.learning_rate = step.learning_rate;
  call.momentum_factor = step.momentum_factor;
  call.weight_decay = step.weight_decay;
  return in_order(stream, [&] {
    call.call.mark = record.unrecorded();
    return rank.mesh->launch_sgd(rank.me.value, call, stream);
  });
}

// ---- The public class ----

Status DeviceCommunicator::all_reduce_rms_norm(const RmsNorm& call, Stream stream) {
  return state_->start(call, static_cast<cudaStream_t>(stream));
}
Status DeviceCommunicator::sgd_step(const SgdStep& call, Stream stream) {
  return state_->start(call, static_cast<cudaStream_t>(stream));
}
DeviceCommunicator::Piece DeviceCommunicator::sgd_piece(std::size_t count, DataType type) const {
  if (count > kMostElements) return {};
  const auto piece =
      plan::piece_of(count, static_cast<std::uint32_t>(state_->rank.rank_count),
                     static_cast<std::uint32_t>(state_->rank.me.value), cuda::grain_of(type));
  return {static_cast<std::size_t>(piece.offset), static_cast<std::size_t>(piece.count)};
}

}  // namespace tutti
