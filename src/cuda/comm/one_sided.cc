// Puts into registered memory of peers, and signals: operations of streams, without kernels.
#include <limits>

#include <fmt/format.h>

#include "cuda/comm/state.h"

namespace tutti {
namespace {

static_assert(DeviceCommunicator::kSignals == exec::kStreamSignals);

constexpr const char* name_of(OneSided::Kind kind) {
  switch (kind) {
    case OneSided::Kind::kPut: return "put";
    case OneSided::Kind::kSignal: return "signal";
    case OneSided::Kind::kWait: break;
  }
  return "wait_signal";
}

/// kUnsupported within a capture: a replay would write and wait for the same numbers again.
Status check_capture(const char* name, cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  TUTTI_RETURN_IF_ERROR(exec::cuda_status(cudaStreamIsCapturing(stream, &status),
                                          "asking a stream whether it is captured"));
  if (status == cudaStreamCaptureStatusNone) return ok();
  return Error{Code::kUnsupported,
               fmt::format("{}: one-sided operations can't be captured; send and recv can", name)};
}

}  // namespace

Status DeviceCommunicator::State::check(const OneSided& one) const {
  const char* const name = name_of(one.kind);
  const auto invalid = [&](const std::string& what) {
    return Error{Code::kInvalidArgument, fmt::format("{}: {}", name, what), rank.me};
  };
  TUTTI_RETURN_IF_ERROR(health.failure());
  if (one.peer < 0 || one.peer >= rank.rank_count)
    return invalid(fmt::format("rank {} of {} ranks", one.peer, rank.rank_count));
  if (one.number < 0 || one.number >= kSignals)
    return invalid(fmt::format("signal number {}; there are {}", one.number, kSignals));
  if (one.count > std::numeric_limits<std::uint32_t>::max())
    return invalid(fmt::format("{} signals; at most 2^32 - 1 are waited for", one.count));
  if (const Status reaches = signals.reaches(one.peer); !reaches)
    return Error{reaches.error().code, fmt::format("{}: {}", name, reaches.error().what), rank.me};
  const exec::OnDevice on(rank.device);
  return check_capture(name, one.stream);
}

Status DeviceCommunicator::State::launch(const OneSided& one) {
  return in_order(one.stream, [&]() -> Status {
    switch (one.kind) {
      case OneSided::Kind::kPut: break;
      case OneSided::Kind::kSignal: return signals.signal(one.peer, one.number, one.stream);
      case OneSided::Kind::kWait: return signals.wait(one.peer, one.number, one.count, one.stream);
    }
    return exec::cuda_status(
        cudaMemcpyAsync(one.target, one.data, one.bytes, cudaMemcpyDefault, one.stream),
        fmt::format("putting {} bytes to rank {}", one.bytes, one.peer));
  });
}

Status DeviceCommunicator::State::start(const OneSided& one) {
  TUTTI_RETURN_IF_ERROR(check(one));
  const bool empty = one.kind == OneSided::Kind::kPut ? one.bytes == 0 : one.count == 0;
  if (empty) return ok();
  if (!in_group()) return launch(one);
  add_to_group(*this, one);
  return ok();
}

Status DeviceCommunicator::put(const void* data, void* target, std::size_t bytes, Rank to,
                               Stream stream) {
  const auto invalid = [](const char* what) { return Error{Code::kInvalidArgument, what}; };
  OneSided one{.peer = to.value, .data = data, .bytes = bytes};
  one.stream = static_cast<cudaStream_t>(stream);
  if (data == nullptr && bytes != 0) return invalid("put: no data given");
  const RegisteredMemory::Place place = state_->memory.place_at(target, bytes);
  if (place.memory == nullptr)
    return invalid("put: the target is not in registered memory or a window as a whole");
  if (to.value >= 0 && to.value < rank_count()) {
    std::byte* const at = place.memory->everywhere[static_cast<std::size_t>(to.value)];
    one.target = at == nullptr ? nullptr : at + place.offset;  // Null: refused, as out of reach.
  }
  return state_->start(one);
}

Status DeviceCommunicator::signal(Rank to, int number, Stream stream) {
  return state_->start({.kind = OneSided::Kind::kSignal,
                        .peer = to.value,
                        .number = number,
                        .stream = static_cast<cudaStream_t>(stream)});
}

Status DeviceCommunicator::wait_signal(Rank from, int number, std::uint64_t count, Stream stream) {
  return state_->start({.kind = OneSided::Kind::kWait,
                        .peer = from.value,
                        .number = number,
                        .count = count,
                        .stream = static_cast<cudaStream_t>(stream)});
}

}  // namespace tutti
