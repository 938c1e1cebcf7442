// Messages between devices, and groups.
//
// A message is a plan of two ranks: a verified broadcast, of which the sender's copy to itself is
// taken away. Those of a group are launched in rounds, to the rank r places on in round r and from
// the one r places back, what is sent on one stream and what comes on another. By induction over
// the rounds each of them finds its other half, however large they are.
#include <algorithm>

#include <fmt/format.h>

#include "comm/cuda_state.h"

namespace tutti {
namespace {

/// Calls of a thread's group, and on whose behalf.
class DeviceGroup : public GroupPart {
 public:
  void add(DeviceCommunicator::State& state, const Request& request, cudaStream_t stream) {
    calls_.push_back({&state, request, stream});
    note(state);
  }
  void add(DeviceCommunicator::State& state, const DeviceMessage& message) {
    note(state).push_back(message);
  }

  /// First all is made that is needed: what is under way might keep it from being made.
  Status end() override {
    for (const Call& call : calls_) TUTTI_CHECK_OK(call.state->prepare(call.request));
    for (const auto& [state, messages] : messages_) {
      for (const DeviceMessage& message : messages) TUTTI_CHECK_OK(state->prepare(message));
      if (messages.size() > 1) TUTTI_CHECK_OK(state->prepare_side());
    }
    Status first;
    const auto note_error = [&first](Status status) {
      if (!status && first) first = std::move(status);
    };
    for (const Call& call : calls_) note_error(call.state->launch(call.request, call.stream));
    for (auto& [state, messages] : messages_) {
      if (!messages.empty()) note_error(state->launch(std::move(messages)));
    }
    return first;
  }

 private:
  struct Call {
    DeviceCommunicator::State* state;
    Request request;
    cudaStream_t stream;
  };
  std::vector<DeviceMessage>& note(DeviceCommunicator::State& state) {
    for (auto& [known, messages] : messages_) {
      if (known == &state) return messages;
    }
    return messages_.emplace_back(&state, std::vector<DeviceMessage>{}).second;
  }

  std::vector<Call> calls_;
  std::vector<std::pair<DeviceCommunicator::State*, std::vector<DeviceMessage>>> messages_;
};

DeviceGroup& group_of_thread() {
  auto& part = group_part();
  if (part == nullptr) part = std::make_unique<DeviceGroup>();
  return static_cast<DeviceGroup&>(*part);  // The only kind there is.
}

std::size_t bytes_of(const DeviceMessage& message) { return message.count * size_of(message.type); }

/// The plan of a message from rank 0 to rank 1.
Result<plan::Plan> message_plan(std::uint32_t lanes) {
  planner::Recipe recipe;
  recipe.algorithm = find_algorithm(Collective::kBroadcast, "direct");
  recipe.shape = plan::Shape{Collective::kBroadcast, 2, 0};
  recipe.lanes = lanes;
  TUTTI_TRY(const planner::VerifiedPlan* verified, planner::prepare(recipe));
  plan::Plan plan = verified->plan;
  // The sender keeps nothing of it. What the other gets is not touched by that.
  for (plan::Lane& lane : plan.ranks[0].lanes) {
    for (plan::Step& step : lane.steps) {
      const auto first = lane.locations.begin() + step.first + step.source_count;
      const auto end =
          std::remove_if(first, first + step.target_count,
                         [](const plan::Location& at) { return at.place == plan::Place::kOutput; });
      step.target_count = static_cast<std::uint16_t>(end - first);
    }
  }
  return plan;
}

}  // namespace

void add_to_group(DeviceCommunicator::State& state, const Request& request, cudaStream_t stream) {
  group_of_thread().add(state, request, stream);
}

Status DeviceCommunicator::State::check(const DeviceMessage& message) const {
  exec::Message host;
  host.sends = message.sends;
  host.peer = message.peer;
  host.type = message.type;
  host.data = message.data;
  host.count = message.count;
  TUTTI_CHECK_OK(control_state().check(host));
  return failure();
}

DeviceCommunicator::State::MessageKey DeviceCommunicator::State::key_of(
    const DeviceMessage& message) const {
  // What is sent and what comes run at a time; both together have the mesh's lanes.
  const bool large = bytes_of(message) > machine.slot_bytes;
  return {message.sends, message.peer, large ? std::max(1U, machine.lanes / 2) : 1};
}

Status DeviceCommunicator::State::prepare(const DeviceMessage& message) {
  if (message.peer == me.value) return ok();
  const MessageKey key = key_of(message);
  const void* kernel = cuda::interpreter_kernel(message.type, ReduceOp::kSum);
  if (kernels.contains(kernel) && messages.contains(key)) return ok();
  const RelaxedCapture relaxed;
  const exec::OnDevice on(device);
  TUTTI_CHECK_OK(load_kernel(kernel));
  if (messages.contains(key)) return ok();
  TUTTI_TRY(const plan::Plan plan, message_plan(std::get<2>(key)));
  const int members[] = {message.sends ? me.value : message.peer,
                         message.sends ? message.peer : me.value};
  TUTTI_TRY(auto loaded, mesh->load(plan, members));
  messages.emplace(key, std::move(loaded));
  return ok();
}

DeviceCommunicator::State::~State() {
  if (side != nullptr) cudaStreamDestroy(side);
}

Status DeviceCommunicator::State::prepare_side() {
  if (side != nullptr) return ok();
  const RelaxedCapture relaxed;
  const exec::OnDevice on(device);
  return exec::cuda_status(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking),
                           "making a stream");
}

/// Copies what the rank sends itself, the first message to the first that it gets, and takes these
/// out.
Status DeviceCommunicator::State::match_own(std::vector<DeviceMessage>& list,
                                            cudaStream_t stream) const {
  std::vector<DeviceMessage> sends, receives;
  for (const DeviceMessage& message : list) {
    if (message.peer == me.value) (message.sends ? sends : receives).push_back(message);
  }
  if (sends.size() != receives.size()) {
    return Error{Code::kInvalidArgument,
                 "a message to oneself needs its other half in the same group", me};
  }
  for (std::size_t i = 0; i < sends.size(); ++i) {
    if (bytes_of(sends[i]) != bytes_of(receives[i])) {
      return Error{Code::kMismatch,
                   fmt::format("a message of {} bytes to oneself, of which {} are expected",
                               bytes_of(sends[i]), bytes_of(receives[i])),
                   me};
    }
    TUTTI_CHECK_OK(
        exec::cuda_status(cudaMemcpyAsync(receives[i].data, sends[i].data, bytes_of(sends[i]),
                                          cudaMemcpyDeviceToDevice, stream),
                          "copying a message to oneself"));
  }
  std::erase_if(list, [this](const DeviceMessage& one) { return one.peer == me.value; });
  return ok();
}

/// Those of one direction, in the order of `list`.
Status DeviceCommunicator::State::send_receive(const std::vector<DeviceMessage>& list, bool sends,
                                               cudaStream_t stream) {
  for (const DeviceMessage& message : list) {
    if (message.sends != sends) continue;
    exec::CudaCall call;
    call.type = message.type;
    call.count = message.count;
    if (sends) call.input = message.data;
    if (!sends) call.output = message.data;
    TUTTI_CHECK_OK(mesh->launch(me.value, messages.at(key_of(message)), call, stream));
  }
  return ok();
}

Status DeviceCommunicator::State::launch(std::vector<DeviceMessage> list) {
  const exec::OnDevice on(device);
  const cudaStream_t main = list.front().stream;
  TUTTI_CHECK_OK(enter(main));
  std::vector<cudaStream_t> others;
  for (const DeviceMessage& message : list) {
    const cudaStream_t other = message.stream;
    if (other == main || std::count(others.begin(), others.end(), other) != 0) continue;
    others.push_back(other);
    TUTTI_CHECK_OK(fork.record(other));
    TUTTI_CHECK_OK(fork.hold(main));
  }
  TUTTI_CHECK_OK(match_own(list, main));
  const auto round = [this](const DeviceMessage& one) {
    const int way = one.sends ? one.peer - me.value : me.value - one.peer;
    return (way + rank_count) % rank_count;
  };
  std::stable_sort(list.begin(), list.end(), [&](const DeviceMessage& a, const DeviceMessage& b) {
    return round(a) < round(b);
  });
  const auto sent =
      std::count_if(list.begin(), list.end(), [](const auto& one) { return one.sends; });
  const bool both = sent != 0 && sent != static_cast<std::ptrdiff_t>(list.size());
  if (both) {
    TUTTI_CHECK_OK(fork.record(main));
    TUTTI_CHECK_OK(fork.hold(side));
  }
  TUTTI_CHECK_OK(send_receive(list, true, both ? side : main));
  TUTTI_CHECK_OK(send_receive(list, false, main));
  if (both) {
    TUTTI_CHECK_OK(side_done.record(side));
    TUTTI_CHECK_OK(side_done.hold(main));
  }
  TUTTI_CHECK_OK(leave(main));
  for (const cudaStream_t other : others) TUTTI_CHECK_OK(current->event.hold(other));
  return ok();
}

namespace {

Status start(DeviceCommunicator::State& state, const DeviceMessage& message) {
  TUTTI_CHECK_OK(state.check(message));
  if (message.count == 0) return ok();
  if (in_group()) {
    group_of_thread().add(state, message);
    return ok();
  }
  TUTTI_CHECK_OK(state.prepare(message));
  return state.launch({message});
}

}  // namespace

Status DeviceCommunicator::send(const void* data, std::size_t count, DataType type, Rank to,
                                Stream stream) {
  // Nothing is written there.
  auto* bytes = const_cast<std::byte*>(static_cast<const std::byte*>(data));
  return start(*state_, {true, to.value, type, bytes, count, static_cast<cudaStream_t>(stream)});
}

Status DeviceCommunicator::recv(void* data, std::size_t count, DataType type, Rank from,
                                Stream stream) {
  return start(*state_, {false, from.value, type, static_cast<std::byte*>(data), count,
                         static_cast<cudaStream_t>(stream)});
}

}  // namespace tutti
