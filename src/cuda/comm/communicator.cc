#include <cstdint>

#include <fmt/format.h>

#include "cuda/comm/state.h"

namespace tutti {
namespace {

Error invalid(const std::string& what) { return {Code::kInvalidArgument, what}; }

cudaStream_t cuda_stream(Stream stream) { return static_cast<cudaStream_t>(stream); }

/// As the host cuts it; what no integer holds is 0.
std::int64_t integer_scale_of(double scale) {
  constexpr double kEnd = 9223372036854775808.0;
  return scale >= -kEnd && scale < kEnd ? static_cast<std::int64_t>(scale) : 0;
}

}  // namespace

Status DeviceCommunicator::State::check(const Request& request) const {
  const bool reduces_vector = request.vector_variant && reduces(request.collective);
  if (reduces_vector || !request.algorithm.empty()) {
    return Error{Code::kUnsupported,
                 fmt::format("{}: on devices {}", to_string(request.collective),
                             reduces_vector ? "blocks that are reduced are of one size"
                                            : "no algorithm is named for one call; set "
                                              "TUTTI_ALGORITHM"),
                 rank.me};
  }
  TUTTI_TRY(const exec::Call call, rank.host().make_call(request));
  TUTTI_RETURN_IF_ERROR(rank.host().check(call));
  return health.failure();
}

Request with_wire(Request request, const Settings& settings) {
  exec::Call call;
  call.collective = request.collective;
  call.type = request.type;
  call.op = request.reduction.op;
  if (request.wire.is_plain() && !request.vector_variant && takes_wire(call))
    request.wire = settings.wire;
  return request;
}

exec::CudaCall& DeviceCommunicator::State::call_of(const Request& request) {
  exec::CudaCall& call = next_call;
  call.type = request.type;
  call.op = request.reduction.op;
  call.count = request.count;
  call.input = static_cast<const std::byte*>(request.input);
  call.output = static_cast<std::byte*>(request.output);
  call.scale = request.reduction.scale;
  call.integer_scale = integer_scale_of(call.scale);
  call.scale_at = request.device_scale;
  call.wire = request.wire;
  memory.add_peers(request, call);
  return call;
}

std::optional<exec::CudaMultimem> DeviceCommunicator::State::multimem_of(
    const Request& request) const {
  exec::CudaMultimem how;
  how.collective = request.collective;
  how.root = has_root(request.collective) ? request.root.value : 0;
  // As it was estimated: what the switch can't add up goes by the plan that is next.
  how.any_order = rank.settings.contract == Contract::kRelaxed;
  if (!rank.mesh->takes_multimem(request.type, request.reduction.op, how)) return std::nullopt;
  if (reduces(how.collective)) how.input = memory.multicast_of(request, true);
  if (how.collective != Collective::kReduceScatter)
    how.output = memory.multicast_of(request, false);
  return how;
}

Status DeviceCommunicator::State::launch(const Request& request, cudaStream_t stream) {
  return in_order(stream, [&] {
    const int me = rank.me.value;
    exec::CudaCall& call = call_of(request);
    if (plans.is_eager(request)) {
      call.mark = record.begin(request, "one_shot");
      return rank.mesh->launch_one_shot(me, call, stream);
    }
    const PlanCache::Route& route = plans.route(request, memory.mapped_of(request));
    call.mark = record.begin(request, route.name, route.copies != nullptr);
    if (route.copies != nullptr) return copies.launch(*route.copies, call, stream);
    if (const auto how = route.multimem ? multimem_of(request) : std::nullopt)
      return rank.mesh->launch_multimem(me, call, *how, memory.multicast().staging, stream);
    if (route.two_shot && rank.mesh->check_two_shot(call))
      return rank.mesh->launch_two_shot(me, call, stream);
    return rank.mesh->launch(me, *route.plan, call, stream);
  });
}

std::size_t DeviceCommunicator::State::device_bytes() const {
  return rank.mesh->rings().bytes() + rank.sample.memory.size() +
         rank.between_hosts.gpudirect.bytes() + memory.multicast().memory.size() + plans.bytes();
}

std::string DeviceCommunicator::State::describe() const {
  const planner::DeviceMachine& machine = rank.machine;
  const auto mib = [](std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::string text = fmt::format(
      "communicator of {} ranks on devices, this is rank {} on device {}; joined in {:.1f} ms\n",
      rank.rank_count, rank.me.value, rank.device, rank.created_ms);
  text += fmt::format("slots of {} KiB, {} a ring; {} lanes\n", machine.slot_bytes / 1024,
                      machine.slots, machine.lanes);
  text += fmt::format(
      "device memory of this rank: {:.2f} MiB: rings {:.2f}, {} plans {:.2f}, for others to try "
      "{:.2f}\n",
      mib(device_bytes()), mib(rank.mesh->rings().bytes() + rank.between_hosts.gpudirect.bytes()),
      plans.count(), mib(plans.bytes()), mib(rank.sample.memory.size()));
  if (const auto room = exec::blocks_of_device(rank.device)) {
    text += fmt::format(
        "blocks at a time: {}; of all communicators of this process on the device {} of {}\n",
        rank.mesh->rings().options().blocks(), exec::CudaResidency::taken(rank.device), *room);
  }
  if (rank.mesh->rings().staged_bytes() != 0) {
    text += fmt::format(
        "host memory for rings between devices that don't reach each other: "
        "{:.2f} MiB\n",
        mib(rank.mesh->rings().staged_bytes()));
  }
  text += rank.topology.why_not.empty()
              ? fmt::format("plans by: {}\n", rank.topology.source)
              : fmt::format("plans without the host's topology: {}\n", rank.topology.why_not);
  text += memory.multicast().why_not.empty()
              ? fmt::format("multicast memory: {:.2f} MiB of this rank's for staging\n",
                            mib(memory.multicast().memory.size()))
              : fmt::format("no multicast memory: {}\n", memory.multicast().why_not);
  text += memory.describe();
  if (rank.network() != nullptr) {
    text += fmt::format("{} hosts, joined by {}; host memory for rings between them: {:.2f} MiB\n",
                        planner::ranks_on(machine.hosts.of).size(), rank.host().transport,
                        mib(rank.network()->pinned_bytes()));
    text += fmt::format("slots to other hosts: {}\n", rank.between_hosts.slots_words);
    text += to_lines(rank.network()->nics());
  }
  for (std::size_t peer = 0; peer < static_cast<std::size_t>(rank.rank_count); ++peer) {
    if (peer == rank.index()) continue;
    const std::string& refusal = rank.refusals[peer];
    const double direct = machine.direct_rate(rank.index(), peer);
    text += fmt::format("to rank {}: {}{}{}\n", peer,
                        planner::to_string(machine.link(rank.index(), peer)),
                        direct > 0 ? fmt::format(", {:.3g} GB/s to it alone", direct) : "",
                        refusal.empty() ? "" : "; " + refusal);
  }
  const std::string choices = plans.choices();
  return text + (choices.empty() ? "plans: none chosen yet\n" : "plans chosen:\n" + choices);
}

// ---- The public class ----

DeviceCommunicator::DeviceCommunicator(std::unique_ptr<State> state) : state_(std::move(state)) {}
DeviceCommunicator::DeviceCommunicator(DeviceCommunicator&&) noexcept = default;
DeviceCommunicator& DeviceCommunicator::operator=(DeviceCommunicator&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}
DeviceCommunicator::~DeviceCommunicator() {
  if (state_ != nullptr) depart(std::move(state_));
}

Rank DeviceCommunicator::rank() const { return state_->rank.me; }
int DeviceCommunicator::rank_count() const { return state_->rank.rank_count; }
int DeviceCommunicator::device() const { return state_->rank.device; }

Status DeviceCommunicator::call(const Request& request, Stream stream) {
  const Request asked = with_wire(request, state_->rank.settings);
  TUTTI_RETURN_IF_ERROR(state_->check(asked));
  if (asked.vector_variant) return state_->start_uneven(asked, cuda_stream(stream));
  if (asked.count == 0) return ok();
  if (in_group()) {
    add_to_group(*state_, asked, cuda_stream(stream));
    return ok();
  }
  TUTTI_RETURN_IF_ERROR(state_->prepare(asked));
  return state_->launch(asked, cuda_stream(stream));
}

Status DeviceCommunicator::prepare(const Request& request) {
  const Request asked = with_wire(with_buffers(request), state_->rank.settings);
  TUTTI_RETURN_IF_ERROR(state_->check(asked));
  return request.count == 0 || request.vector_variant ? ok() : state_->prepare(asked);
}

Status DeviceCommunicator::check() const { return state_->health.failure(); }
void DeviceCommunicator::abort(std::string_view reason) { state_->health.abort(reason); }
void DeviceCommunicator::stop() { state_->health.stop(); }

Status DeviceCommunicator::wait() const {
  const exec::OnDevice on(state_->rank.device);
  return state_->order.synchronize();
}

std::size_t DeviceCommunicator::device_bytes() const { return state_->device_bytes(); }
std::string DeviceCommunicator::describe() const { return state_->describe(); }

Status DeviceCommunicator::register_memory(void* data, std::size_t bytes) {
  return state_->memory.add(data, bytes, false);
}
Status DeviceCommunicator::open_window(void* data, std::size_t bytes) {
  return state_->memory.add(data, bytes, true);
}
Status DeviceCommunicator::close_window(void* data) { return state_->memory.close_window(data); }
Status DeviceCommunicator::deregister_memory(void* data) { return state_->memory.remove(data); }

Result<void*> DeviceCommunicator::address_at(const void* data, Rank peer) const {
  const RegisteredMemory::Place place = state_->memory.place_at(data, 1);
  if (place.memory == nullptr)
    return invalid("address_at: this address is in no registered memory of the communicator");
  if (peer.value < 0 || peer.value >= rank_count())
    return invalid(fmt::format("address_at: rank {} of {} ranks", peer.value, rank_count()));
  std::byte* const at = place.memory->everywhere[static_cast<std::size_t>(peer.value)];
  return static_cast<void*>(at == nullptr ? nullptr : at + place.offset);
}

Result<DeviceHandle> DeviceCommunicator::device_handle(void* data, std::size_t bytes,
                                                       int channels) {
  return state_->memory.add_handle(data, bytes, channels);
}

Status DeviceCommunicator::launch(Stream stream, const std::function<int()>& kernels) {
  if (in_group()) return invalid("launch is not for groups; end the group first");
  TUTTI_RETURN_IF_ERROR(state_->health.failure());
  return state_->in_order(cuda_stream(stream), [&] {
    return exec::cuda_status(static_cast<cudaError_t>(kernels()),
                             "starting a kernel of the program's");
  });
}

bool DeviceCommunicator::reaches(Rank a, Rank b) const {
  const planner::DeviceLink link = state_->rank.machine.link(static_cast<std::size_t>(a.value),
                                                             static_cast<std::size_t>(b.value));
  return a == b || (link != planner::DeviceLink::kHost && link != planner::DeviceLink::kNetwork);
}

}  // namespace tutti
