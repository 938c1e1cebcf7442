// Memory that ranks register with each other, and calls that do with a sum what comes next
// (exec/cuda_mesh_fused.cc).
//
// Which kernels a call takes follows from whether its buffers are registered, which they are on all
// ranks or on none; so ranks choose alike without a word.
#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "comm/cuda_state.h"
#include "comm/cuda_tell.h"
#include "plan/partition.h"

namespace tutti {
namespace {

/// A rank's memory, for the others.
struct Shown {
  Trouble trouble;
  exec::CudaName name;
  std::uint64_t bytes = 0;
};
struct Done {
  Trouble trouble;
  std::uint64_t number = 0;  // Of the memory that is deregistered.
};

constexpr std::size_t kMostElements = std::size_t{1} << 46;
constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16};

Error invalid(const std::string& what) { return {Code::kInvalidArgument, what}; }

/// Of what all ranks have alike.
Status check_reach(const planner::DeviceMachine& machine, std::size_t ranks) {
  if (ranks > cuda::kMostSources) {
    return Error{Code::kUnsupported, fmt::format("register_memory among {} ranks; up to {} can be",
                                                 ranks, cuda::kMostSources)};
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      if (rank == peer || machine.link(rank, peer) < planner::DeviceLink::kHost) continue;
      return Error{Code::kUnsupported,
                   fmt::format("register_memory: devices of ranks {} and {} don't reach each "
                               "other's memory; all_reduce_rms_norm works without it",
                               rank, peer)};
    }
  }
  return ok();
}

/// Whether both ends are of the device. What lies between is looked at where it is exported.
Status check_memory(int device, const std::byte* data, std::size_t bytes) {
  if (data == nullptr || bytes == 0 || bytes > std::size_t{1} << 46)
    return invalid("register_memory: no memory given, or more than 2^46 bytes");
  for (const std::byte* const at : {data, data + bytes - 1}) {
    cudaPointerAttributes attributes = {};
    TUTTI_CHECK_OK(exec::cuda_status(cudaPointerGetAttributes(&attributes, at),
                                     "asking whose memory an address is"));
    if (attributes.type == cudaMemoryTypeDevice && attributes.device == device) continue;
    return invalid(fmt::format("register_memory: of these {} bytes not all are memory of device {}",
                               bytes, device));
  }
  return ok();
}

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

std::vector<const std::byte*> constant(const std::vector<std::byte*>& list) {
  return {list.begin(), list.end()};
}

}  // namespace

Status DeviceCommunicator::State::register_memory(void* data, std::size_t bytes) {
  if (in_group()) return invalid("register_memory is not for groups; end the group first");
  TUTTI_CHECK_OK(check_reach(machine, static_cast<std::size_t>(rank_count)));
  const RelaxedCapture relaxed;
  const exec::OnDevice on(device);
  Registered made;
  made.data = static_cast<std::byte*>(data);
  made.bytes = bytes;
  Shown mine;
  mine.bytes = bytes;
  Status status = check_memory(device, made.data, bytes);
  const auto first = std::find_if(registered.begin(), registered.end(), [&](const auto& one) {
    return std::less<>()(one.data, made.data + bytes) &&
           std::less<>()(made.data, one.data + one.bytes);
  });
  if (status && first != registered.end())
    status = invalid("register_memory: part of this memory is registered already");
  if (status) {
    auto exported = exec::CudaExport::of(device, made.data, bytes);
    if (exported)
      made.exported = std::move(*exported);
    else
      status = std::move(exported.error());
    mine.name = made.exported.name();
  }
  mine.trouble = Trouble(status);
  TUTTI_TRY(const auto shown, tell(control, mine, status));
  for (std::size_t rank = 0; rank < shown.size() && status; ++rank) {
    if (shown[rank].bytes != bytes) {
      status = Error{Code::kMismatch,
                     fmt::format("register_memory: {} bytes here, {} on rank {}", bytes,
                                 shown[rank].bytes, rank),
                     me, Rank{static_cast<int>(rank)}};
      break;
    }
    made.everywhere.push_back(made.data);
    if (rank == static_cast<std::size_t>(me.value)) continue;
    auto opened =
        exec::CudaImport::open(device, shown[rank].name, Deadline::after(settings.timeout));
    if (opened) {
      made.everywhere.back() = made.opened.emplace_back(std::move(*opened)).data();
    } else {
      status = std::move(opened.error());
    }
  }
  Done done;
  done.trouble = Trouble(status);
  TUTTI_TRY([[maybe_unused]] const auto all, tell(control, done, status));
  made.number = ++registrations;
  registered.push_back(std::move(made));
  return ok();
}

/// Nobody closes anything before all have ended their calls, nor returns before all have closed.
Status DeviceCommunicator::State::deregister_memory(void* data) {
  if (in_group()) return invalid("deregister_memory is not for groups; end the group first");
  const auto found = std::find_if(registered.begin(), registered.end(),
                                  [data](const Registered& one) { return one.data == data; });
  Done done;
  Status status = found != registered.end()
                      ? ok()
                      : invalid("deregister_memory: this memory is not registered");
  const RelaxedCapture relaxed;
  const exec::OnDevice on(device);
  if (status && eager.there) status = eager.event.synchronize();
  done.trouble = Trouble(status);
  if (status) done.number = found->number;
  TUTTI_TRY(const auto ended, tell(control, done, status));
  for (std::size_t rank = 0; rank < ended.size(); ++rank) {
    if (ended[rank].number == done.number) continue;
    return Error{
        Code::kMismatch,
        fmt::format("deregister_memory: the memory registered as number {} here, as number "
                    "{} on rank {}; nothing was deregistered",
                    done.number, ended[rank].number, rank),
        me, Rank{static_cast<int>(rank)}};
  }
  registered.erase(found);
  const Done closing;
  TUTTI_TRY([[maybe_unused]] const auto closed, tell(control, closing, ok()));
  return ok();
}

std::vector<std::byte*> DeviceCommunicator::State::everywhere(const void* buffer,
                                                              std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(buffer);
  for (const Registered& one : registered) {
    const auto begin = reinterpret_cast<std::uintptr_t>(one.data);
    if (address < begin || address - begin > one.bytes || bytes > one.bytes - (address - begin))
      continue;
    std::vector<std::byte*> list = one.everywhere;
    for (std::byte*& at : list) at += address - begin;
    return list;
  }
  return {};
}

Status DeviceCommunicator::State::start(const RmsNorm& norm, cudaStream_t stream) {
  constexpr const char* kName = "all_reduce_rms_norm";
  if (norm.columns != 0 && norm.rows > kMostElements / norm.columns)
    return invalid(fmt::format("{}: {} rows of {}", kName, norm.rows, norm.columns));
  const std::size_t count = norm.rows * norm.columns, bytes = count * size_of(norm.type);
  TUTTI_CHECK_OK(
      check_call(kName, norm, count, {norm.input, norm.residual, norm.output, norm.weight}));
  TUTTI_CHECK_OK(failure());
  if (count == 0) return ok();
  exec::CudaRmsNorm call;
  call.call.type = norm.type;
  call.call.peer_inputs = constant(everywhere(norm.input, bytes));
  call.call.peer_outputs = everywhere(norm.output, bytes);
  call.residuals = everywhere(norm.residual, bytes);
  call.weight = static_cast<const std::byte*>(norm.weight);
  call.rows = norm.rows;
  call.columns = norm.columns;
  call.epsilon = norm.epsilon;
  const bool fused =
      !call.call.peer_inputs.empty() && !call.call.peer_outputs.empty() && !call.residuals.empty();
  if (!fused) {  // The sum goes where the output will.
    auto* output = static_cast<std::byte*>(norm.output);
    call.call.peer_inputs = {output};
    call.call.peer_outputs = {output};
    call.residuals = {static_cast<std::byte*>(norm.residual)};
    TUTTI_CHECK_OK(mesh->check_rms_norm(call));
    const Request request{.collective = Collective::kAllReduce,
                          .input = norm.input,
                          .output = norm.output,
                          .count = count,
                          .type = norm.type};
    TUTTI_CHECK_OK(check(request));
    TUTTI_CHECK_OK(prepare(request));
    TUTTI_CHECK_OK(launch(request, stream));
  }
  const exec::OnDevice on(device);
  TUTTI_CHECK_OK(enter(stream));
  TUTTI_CHECK_OK(mesh->launch_rms_norm(me.value, call, stream));
  return leave(stream);
}

Status DeviceCommunicator::State::start(const SgdStep& step, cudaStream_t stream) {
  constexpr const char* kName = "sgd_step";
  TUTTI_CHECK_OK(check_call(kName, step, step.count, {step.gradients, step.parameters}));
  TUTTI_CHECK_OK(failure());
  if (step.count == 0) return ok();
  const std::size_t bytes = step.count * size_of(step.type);
  exec::CudaSgd call;
  call.call.type = step.type;
  call.call.count = step.count;
  call.call.peer_inputs = constant(everywhere(step.gradients, bytes));
  call.call.peer_outputs = everywhere(step.parameters, bytes);
  if (call.call.peer_inputs.empty() || call.call.peer_outputs.empty()) {
    return Error{Code::kUnsupported,
                 fmt::format("{}: gradients and parameters have to be registered memory "
                             "(register_memory)",
                             kName),
                 me};
  }
  const auto piece =
      plan::piece_of(step.count, static_cast<std::uint32_t>(rank_count),
                     static_cast<std::uint32_t>(me.value), cuda::grain_of(step.type));
  if (piece.count != 0 && (step.master == nullptr || step.momentum == nullptr))
    return invalid(fmt::format("{}: master or momentum is null", kName));
  call.master = step.master;
  call.momentum = step.momentum;
  call.learning_rate = step.learning_rate;
  call.momentum_factor = step.momentum_factor;
  call.weight_decay = step.weight_decay;
  const exec::OnDevice on(device);
  TUTTI_CHECK_OK(enter(stream));
  TUTTI_CHECK_OK(mesh->launch_sgd(me.value, call, stream));
  return leave(stream);
}

// ---- The public class ----

Status DeviceCommunicator::register_memory(void* data, std::size_t bytes) {
  return state_->register_memory(data, bytes);
}
Status DeviceCommunicator::deregister_memory(void* data) { return state_->deregister_memory(data); }
Status DeviceCommunicator::all_reduce_rms_norm(const RmsNorm& call, Stream stream) {
  return state_->start(call, static_cast<cudaStream_t>(stream));
}
Status DeviceCommunicator::sgd_step(const SgdStep& call, Stream stream) {
  return state_->start(call, static_cast<cudaStream_t>(stream));
}
DeviceCommunicator::Piece DeviceCommunicator::sgd_piece(std::size_t count, DataType type) const {
  if (count > kMostElements) return {};
  const auto piece =
      plan::piece_of(count, static_cast<std::uint32_t>(state_->rank_count),
                     static_cast<std::uint32_t>(state_->me.value), cuda::grain_of(type));
  return {static_cast<std::size_t>(piece.offset), static_cast<std::size_t>(piece.count)};
}

}  // namespace tutti
