// Messages between devices, and groups.
//
// Messages of a group go at a time (cuda/mesh/messages.cc), those to oneself as copies. A group is
// one operation for all streams that it names of a communicator, as in NCCL ("Using multiple
// streams within the same group call", docs.nvidia.com/deeplearning/nccl): it begins when they have
// got there, and they go on when it is over.
#include <algorithm>

#include <fmt/format.h>

#include "cuda/comm/state.h"

namespace tutti {
namespace {

/// Calls and messages of a thread's group, by communicator.
class DeviceGroup : public GroupPart {
 public:
  void add(DeviceCommunicator::State& state, const Request& request, cudaStream_t stream) {
    calls_.push_back({&state, request, stream});
    note(state);
  }
  void add(DeviceCommunicator::State& state, const DeviceMessage& message) {
    note(state).push_back(message);
  }

  void add(DeviceCommunicator::State& state, const OneSided& one) {
    (one.kind == OneSided::Kind::kWait ? waits_ : puts_).emplace_back(&state, one);
  }

  /// First all is made that is needed: what is under way might keep it from being made. Waits for
  /// signals come last, as what they wait for may be in the peer's group, behind one of its own.
  Status end() override {
    for (const Call& call : calls_) TUTTI_RETURN_IF_ERROR(call.state->prepare(call.request));
    const auto streams = streams_by_communicator();
    for (const auto& [state, list] : streams) {
      const exec::OnDevice on(state->rank.device);
      TUTTI_RETURN_IF_ERROR(state->order.join(list));
    }
    Status first;
    const auto note_error = [&first](Status status) {
      if (!status && first) first = std::move(status);
    };
    for (const Call& call : calls_) note_error(call.state->launch(call.request, call.stream));
    for (auto& [state, messages] : messages_) {
      if (!messages.empty()) note_error(state->launch(std::move(messages)));
    }
    for (const auto* list : {&puts_, &waits_}) {
      for (const auto& [state, one] : *list) note_error(state->launch(one));
    }
    for (const auto& [state, list] : streams) {
      const exec::OnDevice on(state->rank.device);
      note_error(state->order.fork(list));
    }
    return first;
  }

 private:
  struct Call {
    DeviceCommunicator::State* state;
    Request request;
    cudaStream_t stream;
  };
  /// Each communicator's streams, in the order of their first launch.
  std::vector<std::pair<DeviceCommunicator::State*, std::vector<cudaStream_t>>>
  streams_by_communicator() const {
    std::vector<std::pair<DeviceCommunicator::State*, std::vector<cudaStream_t>>> all;
    const auto add_stream = [&all](DeviceCommunicator::State* state, cudaStream_t stream) {
      auto known = std::ranges::find(all, state, [](const auto& entry) { return entry.first; });
      if (known == all.end()) known = all.insert(known, {state, {}});
      if (std::ranges::count(known->second, stream) == 0) known->second.push_back(stream);
    };
    for (const Call& call : calls_) add_stream(call.state, call.stream);
    for (const auto& [state, messages] : messages_) {
      for (const DeviceMessage& message : messages) add_stream(state, message.stream);
    }
    for (const auto* list : {&puts_, &waits_}) {
      for (const auto& [state, one] : *list) add_stream(state, one.stream);
    }
    return all;
  }
  std::vector<DeviceMessage>& note(DeviceCommunicator::State& state) {
    for (auto& [known, messages] : messages_) {
      if (known == &state) return messages;
    }
    return messages_.emplace_back(&state, std::vector<DeviceMessage>{}).second;
  }

  std::vector<Call> calls_;
  std::vector<std::pair<DeviceCommunicator::State*, std::vector<DeviceMessage>>> messages_;
  std::vector<std::pair<DeviceCommunicator::State*, OneSided>> puts_, waits_;
};

DeviceGroup& group_of_thread() {
  auto& part = group_part();
  if (part == nullptr) part = std::make_unique<DeviceGroup>();
  return static_cast<DeviceGroup&>(*part);  // The only kind there is.
}

std::size_t bytes_of(const DeviceMessage& message) { return message.count * size_of(message.type); }

/// Copies what the rank sends itself, the first message to the first that it gets, and takes these
/// out.
Status match_own(Rank me, std::vector<DeviceMessage>& list, cudaStream_t stream) {
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
    if (receives[i].data == sends[i].data) continue;  // In place.
    TUTTI_RETURN_IF_ERROR(
        exec::cuda_status(cudaMemcpyAsync(receives[i].data, sends[i].data, bytes_of(sends[i]),
                                          cudaMemcpyDeviceToDevice, stream),
                          "copying a message to oneself"));
  }
  std::erase_if(list, [me](const DeviceMessage& one) { return one.peer == me.value; });
  return ok();
}

/// A rank that has an input sends to all that have an output: its block for each of them, or all it
/// has; and gets likewise.
std::vector<DeviceMessage> messages_of(const Request& request, Rank me, int rank_count,
                                       cudaStream_t stream) {
  const CollectiveTraits traits = traits_of(request.collective);
  const auto has_input = [&](Rank rank) {
    return tutti::has_input(request.collective, rank.value, request.root.value);
  };
  const auto has_output = [&](Rank rank) {
    return tutti::has_output(request.collective, rank.value, request.root.value);
  };
  // Nothing is written there.
  auto* input = const_cast<std::byte*>(static_cast<const std::byte*>(request.input));
  auto* output = static_cast<std::byte*>(request.output);
  std::vector<DeviceMessage> list;
  std::size_t input_end = 0,
              output_end = 0;  // Where the blocks so far end, if they follow one another.
  const auto add = [&](bool sends, int peer, bool each, const Blocks& blocks, std::byte* base,
                       std::size_t& end) {
    std::size_t count = request.count, offset = 0;
    if (each) {
      const auto at = static_cast<std::size_t>(peer);
      count = blocks.counts[at];
      offset = blocks.offsets.empty() ? end : blocks.offsets[at];
      end += count;
    }
    if (count == 0) return;
    list.push_back(
        {sends, peer, request.type, base + offset * size_of(request.type), count, stream});
  };
  for (int peer = 0; peer < rank_count; ++peer) {
    if (has_input(me) && has_output(Rank{peer}))
      add(true, peer, traits.input_each, request.input_blocks, input, input_end);
    if (has_output(me) && has_input(Rank{peer}))
      add(false, peer, traits.output_each, request.output_blocks, output, output_end);
  }
  return list;
}

}  // namespace

void add_to_group(DeviceCommunicator::State& state, const Request& request, cudaStream_t stream) {
  group_of_thread().add(state, request, stream);
}

void add_to_group(DeviceCommunicator::State& state, const OneSided& one) {
  group_of_thread().add(state, one);
}

Status DeviceCommunicator::State::check(const DeviceMessage& message) const {
  exec::Message host;
  host.sends = message.sends;
  host.peer = message.peer;
  host.type = message.type;
  host.data = message.data;
  host.count = message.count;
  TUTTI_RETURN_IF_ERROR(rank.host().check(host));
  return health.failure();
}

Status DeviceCommunicator::State::launch(std::vector<DeviceMessage> list) {
  const cudaStream_t stream = list.front().stream;
  return in_order(stream, [&]() -> Status {
    TUTTI_RETURN_IF_ERROR(match_own(rank.me, list, stream));
    std::vector<exec::CudaMessage> messages;
    cuda::LaunchMark mark = record.unrecorded();
    for (const DeviceMessage& message : list) {
      const cuda::LaunchMark own =
          record.begin_message(message.sends, message.peer, message.type, message.count);
      if (messages.empty()) mark = own;
      messages.push_back({message.sends, message.peer, message.data, bytes_of(message)});
    }
    return rank.mesh->launch_messages(rank.me.value, std::move(messages), stream, mark);
  });
}

Status DeviceCommunicator::State::start(std::vector<DeviceMessage> list) {
  if (list.empty()) return ok();
  if (in_group()) {
    for (const DeviceMessage& message : list) group_of_thread().add(*this, message);
    return ok();
  }
  return launch(std::move(list));
}

Status DeviceCommunicator::State::start_uneven(const Request& request, cudaStream_t stream) {
  return start(messages_of(request, rank.me, rank.rank_count, stream));
}

Status DeviceCommunicator::send(const void* data, std::size_t count, DataType type, Rank to,
                                Stream stream) {
  // Nothing is written there.
  auto* bytes = const_cast<std::byte*>(static_cast<const std::byte*>(data));
  const DeviceMessage message{true,  to.value, type,
                              bytes, count,    static_cast<cudaStream_t>(stream)};
  TUTTI_RETURN_IF_ERROR(state_->check(message));
  return count == 0 ? ok() : state_->start({message});
}

Status DeviceCommunicator::recv(void* data, std::size_t count, DataType type, Rank from,
                                Stream stream) {
  const DeviceMessage message{false, from.value,
                              type,  static_cast<std::byte*>(data),
                              count, static_cast<cudaStream_t>(stream)};
  TUTTI_RETURN_IF_ERROR(state_->check(message));
  return count == 0 ? ok() : state_->start({message});
}

}  // namespace tutti
