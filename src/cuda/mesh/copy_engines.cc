#include "cuda/mesh/copy_engines.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "base/hash.h"
#include "cuda/mesh/tag.h"
#include "plan/partition.h"

namespace tutti::exec {
namespace {

constexpr auto kEntry = StreamSignals::Flag::kEntry, kExit = StreamSignals::Flag::kExit;

/// What ranks compare of a call: they wait for this value.
std::uint64_t flag_of(const plan::Shape& shape, const CudaCall& call) {
  CudaCallName name;
  name.collective = shape.collective;
  name.root = shape.root;
  name.type = call.type;
  name.count = call.count;
  name.places = call.places;
  const cuda::CallTag tag = tag_of(name);
  Hash hash;
  for (const std::uint32_t word : tag.words) hash.add(word);
  return hash.add(tag.digest).value() | 1;
}

/// The address of a chunk of a buffer, and its bytes.
template <class Byte>
std::pair<Byte*, std::size_t> part_of(Byte* buffer, const plan::Plan& plan, const CudaCall& call,
                                      std::uint32_t chunk) {
  const plan::Range range =
      plan::piece_of(call.count, plan.pieces, chunk % plan.pieces, cuda::grain_of(call.type));
  const std::size_t size = size_of(call.type);
  return {buffer + (chunk / plan.pieces * call.count + range.offset) * size, range.count * size};
}

/// Copies go on after a wait that was ended early. So they write nothing of a peer's.
bool is_copied(const plan::Lane& lane, const plan::Step& step) {
  const auto is_source = [](const plan::Location& at) {
    return at.place == plan::Place::kInput || plan::is_of_peer(at);
  };
  const auto is_target = [](const plan::Location& at) { return at.place == plan::Place::kOutput; };
  return std::ranges::all_of(lane.sources(step), is_source) &&
         std::ranges::all_of(lane.targets(step), is_target);
}

/// What of a rank's lane copies can't run; empty: nothing.
std::string unsuited(const plan::Lane& lane) {
  std::vector<std::uint16_t> told;
  bool waited = false;
  for (const plan::Step& step : lane.steps) {
    switch (step.kind) {
      case plan::StepKind::kWait: waited = true; break;
      case plan::StepKind::kSignal:
        if (std::ranges::find(told, step.peer) != told.end()) return "signals a rank twice";
        told.push_back(step.peer);
        break;
      case plan::StepKind::kMove:
        if (waited) return "moves something after a wait";
        if (step.source_count != 1) return "reduces";
        if (!is_copied(lane, step)) return "moves more than inputs to a rank's own output";
    }
  }
  return {};
}

}  // namespace

Status CopyEngines::suits(const plan::Plan& plan) {
  for (const plan::RankPlan& rank : plan.ranks) {
    const std::string why =
        rank.lanes.size() == 1 ? unsuited(rank.lanes.front()) : "has several lanes";
    if (!why.empty())
      return Error{Code::kUnsupported,
                   fmt::format("plan {} can't run on copy engines: it {}", plan.name, why)};
  }
  return ok();
}

Status CopyEngines::make(StreamSignals& signals, int rank, int rank_count) {
  signals_ = &signals;
  rank_ = rank;
  rank_count_ = rank_count;
  if (const Status reaches = signals.reaches(rank); !reaches)
    return Error{Code::kUnsupported, "TUTTI_ALGORITHM: copy_engines: " + reaches.error().what};
  const auto make_event = [](std::unique_ptr<CUevent_st, Destroy>& event) {
    cudaEvent_t made = nullptr;
    const cudaError_t error = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
    event.reset(made);
    return cuda_status(error, "making an event");
  };
  TUTTI_RETURN_IF_ERROR(make_event(begun_));
  // The highest priority but one: as far as a priority has hardware queues of its own, these
  // streams stand neither behind kernels that wait for this rank, nor before the stream by which
  // the library itself writes to the device (do_at_once), which has the highest.
  int least = 0, greatest = 0;
  TUTTI_RETURN_IF_ERROR(cuda_status(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                                    "asking for priorities of streams"));
  const int own = std::min(greatest + 1, least);
  for (Side& side : sides_) {
    cudaStream_t made = nullptr;
    TUTTI_RETURN_IF_ERROR(
        cuda_status(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, own),
                    "making a stream for copies"));
    side.stream.reset(made);
    TUTTI_RETURN_IF_ERROR(make_event(side.done));
  }
  return ok();
}

Status CopyEngines::fork(cudaStream_t stream) const {
  TUTTI_RETURN_IF_ERROR(
      cuda_status(cudaEventRecord(begun_.get(), stream), "recording an event before copies"));
  for (const Side& side : sides_) {
    TUTTI_RETURN_IF_ERROR(cuda_status(cudaStreamWaitEvent(side.stream.get(), begun_.get(), 0),
                                      "waiting for an event before copies"));
  }
  return ok();
}

Status CopyEngines::join(cudaStream_t stream) const {
  for (const Side& side : sides_) {
    TUTTI_RETURN_IF_ERROR(cuda_status(cudaEventRecord(side.done.get(), side.stream.get()),
                                      "recording an event behind copies"));
    TUTTI_RETURN_IF_ERROR(cuda_status(cudaStreamWaitEvent(stream, side.done.get(), 0),
                                      "waiting for an event behind copies"));
  }
  return ok();
}

/// Each copy on the stream of the peer that it is from.
Status CopyEngines::move(const plan::Plan& plan, const plan::Step& step,
                         const CudaCall& call) const {
  const plan::Lane& lane = plan.ranks[static_cast<std::size_t>(rank_)].lanes.front();
  const plan::Location& source = lane.sources(step).front();
  const bool of_peer = plan::is_of_peer(source);
  const int peer = of_peer ? source.peer : rank_;
  const auto [from, bytes] =
      part_of(!of_peer                                  ? call.input
              : source.place == plan::Place::kPeerInput ? call.peer_inputs[source.peer]
                                                        : call.peer_outputs[source.peer],
              plan, call, source.chunk);
  for (const plan::Location& target : lane.targets(step)) {
    std::byte* const to = part_of(call.output, plan, call, target.chunk).first;
    if (bytes == 0 || from == to) continue;
    TUTTI_RETURN_IF_ERROR(
        cuda_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, side_of(peer)),
                    fmt::format("copying {} bytes from rank {}", bytes, peer)));
  }
  return ok();
}

/// The rank's copies, and behind those from a peer its signal; `told`: which peers had one.
Status CopyEngines::run(const plan::Plan& plan, const CudaCall& call, std::uint64_t flag,
                        std::vector<bool>& told) const {
  for (const plan::Step& step : plan.ranks[static_cast<std::size_t>(rank_)].lanes.front().steps) {
    if (step.kind == plan::StepKind::kMove) TUTTI_RETURN_IF_ERROR(move(plan, step, call));
    if (step.kind != plan::StepKind::kSignal) continue;
    TUTTI_RETURN_IF_ERROR(signals_->set(step.peer, kExit, flag, side_of(step.peer)));
    told[step.peer] = true;
  }
  return ok();
}

Status CopyEngines::launch(const plan::Plan& plan, const CudaCall& call, cudaStream_t stream) {
  const std::uint64_t flag = flag_of(plan.shape, call);
  std::vector<bool> told(static_cast<std::size_t>(rank_count_), false);
  const auto tell_others = [&](StreamSignals::Flag which) -> Status {
    for (int peer = 0; peer < rank_count_; ++peer) {
      if (peer == rank_ || told[static_cast<std::size_t>(peer)]) continue;
      TUTTI_RETURN_IF_ERROR(signals_->set(peer, which, flag, stream));
    }
    return signals_->meet(which, flag, stream);
  };
  TUTTI_RETURN_IF_ERROR(tell_others(kEntry));
  TUTTI_RETURN_IF_ERROR(fork(stream));
  TUTTI_RETURN_IF_ERROR(run(plan, call, flag, told));
  TUTTI_RETURN_IF_ERROR(join(stream));
  return tell_others(kExit);
}

}  // namespace tutti::exec
