#include <algorithm>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "cuda/comm/state.h"
#include "plan/chunks.h"

namespace tutti {
namespace {

cudaStream_t cuda_stream(Stream stream) { return static_cast<cudaStream_t>(stream); }

/// Of the larger of input and output, in bytes.
std::size_t message_bytes(const Request& request, int rank_count) {
  const CollectiveTraits traits = traits_of(request.collective);
  const bool each = traits.input_each || traits.output_each;
  return request.count * size_of(request.type) * static_cast<std::size_t>(each ? rank_count : 1);
}

int root_of(const Request& request) {
  return has_root(request.collective) ? request.root.value : 0;
}

/// As the host cuts it; what no integer holds is 0.
std::int64_t integer_scale_of(double scale) {
  constexpr double kEnd = 9223372036854775808.0;
  return scale >= -kEnd && scale < kEnd ? static_cast<std::int64_t>(scale) : 0;
}

/// Whether ranks only touch each other's buffers.
bool is_without_slots(const plan::Plan& plan) {
  const auto is_slot = [](const plan::Location& at) { return at.place == plan::Place::kSlot; };
  for (const plan::RankPlan& rank : plan.ranks) {
    for (const plan::Lane& lane : rank.lanes) {
      if (std::any_of(lane.locations.begin(), lane.locations.end(), is_slot)) return false;
    }
  }
  return true;
}

/// Its lanes are said apart.
std::string plan_in_words(const Algorithm& algorithm, const plan::Plan& plan) {
  return std::string(algorithm.name) + (plan.name.ends_with("+direct") ? "+direct" : "");
}

/// Which trees a plan is along, if any: " along 2 trees".
std::string trees_in_words(const Algorithm& algorithm, plan::Shape shape) {
  const std::size_t trees = shape.trees.size();
  shape.trees.clear();
  if (trees == 0 || algorithm.applies(shape)) return {};
  return fmt::format(" along {} tree{}", trees, trees == 1 ? "" : "s");
}

}  // namespace

Status CudaEvent::make() {
  cudaEvent_t event = nullptr;
  TUTTI_CHECK_OK(exec::cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                                   "making an event"));
  event_.reset(event);
  return ok();
}
Status CudaEvent::record(cudaStream_t stream) const {
  return exec::cuda_status(cudaEventRecord(event_.get(), stream), "recording an event");
}
Status CudaEvent::hold(cudaStream_t stream) const {
  return exec::cuda_status(cudaStreamWaitEvent(stream, event_.get(), 0), "waiting for an event");
}
Status CudaEvent::record_by_graph(cudaStream_t stream) const {
  return exec::cuda_status(cudaEventRecordWithFlags(event_.get(), stream, cudaEventRecordExternal),
                           "recording an event by a graph");
}
Status CudaEvent::hold_by_graph(cudaStream_t stream) const {
  return exec::cuda_status(cudaStreamWaitEvent(stream, event_.get(), cudaEventWaitExternal),
                           "waiting for an event in a graph");
}
Status CudaEvent::synchronize() const {
  return exec::cuda_status(cudaEventSynchronize(event_.get()), "waiting for the last call");
}

Status DeviceCommunicator::State::failure() const {
  if (revoked.load(std::memory_order_relaxed))
    return Error{Code::kAborted, "this rank has revoked the communicator", me, me};
  const Region& region = control_state().executor->endpoint().region();
  Status own = mesh->check(me.value);
  const auto reported = [this](Error error) {
    error.rank = me;
    return error;
  };
  if (region.aborted()) {
    if (own) mesh->abort(me.value);  // What waits here ends too.
    return reported(region.abort_error());
  }
  if (network != nullptr && network->aborted()) return reported(network->abort_error());
  if (own) own = look_at_peers();
  if (own) return own;
  mesh->abort(me.value);  // In case kernels have not ended by themselves.
  own.error().what += fmt::format("; this rank has begun {} calls", calls);
  const int peer = own.error().peer.value;
  if (network != nullptr && peer >= 0 && own.error().code == Code::kTimeout) {
    const std::string why = network->why_away(peer);
    if (!why.empty()) own.error().what += fmt::format("; rank {} {}", peer, why);
  }
  // Where the others look.
  control_state().executor->abort(own.error());
  if (network != nullptr) network->abort(own.error());
  return own;
}

Status DeviceCommunicator::State::check(const Request& request) const {
  const bool reduces_uneven = request.uneven && reduces(request.collective);
  if (reduces_uneven || !request.algorithm.empty()) {
    return Error{Code::kUnsupported,
                 fmt::format("{}: on devices {}", to_string(request.collective),
                             reduces_uneven ? "blocks that are reduced are of one size"
                                            : "no algorithm is named for one call; set "
                                              "TUTTI_ALGORITHM"),
                 me};
  }
  if (request.uneven) {
    TUTTI_TRY(const exec::Call call, control_state().make_call(request));
    TUTTI_CHECK_OK(control_state().check(call));
  } else {
    TUTTI_CHECK_OK(control_state().check(host_call(request)));
  }
  return failure();
}

exec::Call DeviceCommunicator::State::host_call(const Request& request) const {
  return control_state().make_call(request.collective, request.input, request.output, request.count,
                                   request.type, request.reduction, request.root.value);
}

const exec::CudaCall& DeviceCommunicator::State::call_of(const Request& request) {
  exec::CudaCall& call = next_call;
  call.type = request.type;
  call.op = request.reduction.op;
  call.count = request.count;
  call.input = static_cast<const std::byte*>(request.input);
  call.output = static_cast<std::byte*>(request.output);
  call.scale = request.reduction.scale;
  call.integer_scale = integer_scale_of(call.scale);
  add_peers(request, call);
  return call;
}

bool DeviceCommunicator::State::goes_by_packets(const Request& request) const {
  return request.collective == Collective::kAllReduce && !staged &&
         packets[static_cast<std::size_t>(request.collective)] &&
         request.count <= mesh->one_shot_elements(request.type, request.reduction.op);
}

DeviceCommunicator::State::RouteKey DeviceCommunicator::State::route_of(
    const Request& request) const {
  return {request.collective, root_of(request),
          planner::device_size_class(message_bytes(request, rank_count)), mapped_of(request)};
}

planner::Request DeviceCommunicator::State::planner_request(const Request& request) {
  const int root = root_of(request);
  auto [shape, fresh] = shapes.try_emplace({request.collective, root});
  if (fresh)
    shape->second = planner::device_shape(request.collective, root, settings.contract, machine);
  return {.shape = shape->second,
          .bytes = message_bytes(request, rank_count),
          .mapped = mapped_of(request),
          .contract = settings.contract};
}

Status DeviceCommunicator::State::prepare(const Request& request) {
  const RouteKey key = route_of(request);
  if (goes_by_packets(request) || routes.contains(key)) [[likely]]
    return ok();
  const RelaxedCapture relaxed;
  const exec::OnDevice on(device);
  TUTTI_TRY(routes[key], make_route(request));
  return ok();
}

/// By the first plan of the list that kernels can run.
Result<DeviceCommunicator::State::Route> DeviceCommunicator::State::make_route(
    const Request& request) {
  const planner::Request asked = planner_request(request);
  TUTTI_TRY(const auto ways, planner::device_ways(asked, machine));
  std::string refused;
  for (const planner::DeviceWay& way : ways) {
    TUTTI_TRY(const planner::VerifiedPlan* verified,
              planner::prepare(planner::device_recipe(*way.algorithm, asked, machine, way.lanes)));
    const PlanKey plan_key{way.algorithm, root_of(request), way.lanes, asked.mapped};
    auto found = plans.find(plan_key);
    if (found == plans.end()) {
      auto loaded = mesh->load(verified->plan);
      if (!loaded && loaded.error().code == Code::kUnsupported) {  // On all ranks alike.
        refused = loaded.error().what;
        continue;
      }
      if (!loaded) return std::move(loaded.error());
      found = plans.emplace(plan_key, *std::move(loaded)).first;
    }
    choices += fmt::format(
        "  {} up to {} bytes{}: {}{}, {} times its lanes, estimated {:.0f} us\n",
        to_string(request.collective), planner::device_size_class(asked.bytes),
        has_root(request.collective) ? fmt::format(", root {}", request.root.value) : "",
        plan_in_words(*way.algorithm, verified->plan), trees_in_words(*way.algorithm, asked.shape),
        way.lanes, way.microseconds);
    const bool two_shot = way.algorithm->name == "two_shot" && is_without_slots(verified->plan);
    return Route{&found->second, two_shot};
  }
  return Error{Code::kUnsupported, refused, me};
}

Status DeviceCommunicator::State::enter(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long capture_id = 0, stream_id = 0;
  TUTTI_CHECK_OK(exec::cuda_status(cudaStreamGetCaptureInfo(stream, &status, &capture_id),
                                   "asking a stream whether it is captured"));
  TUTTI_CHECK_OK(
      exec::cuda_status(cudaStreamGetId(stream, &stream_id), "asking for a stream's id"));
  const bool capturing = status == cudaStreamCaptureStatusActive;
  current = capturing ? &in_capture : &launched;
  const bool same_stream = current->there && current->stream == stream_id;
  current->stream = stream_id;
  if (!capturing) {
    // A replay may have come since, on another stream.
    return same_stream && !captured ? ok() : launched.event.hold(stream);
  }
  const bool first = !in_capture.there || capture_id != capture;
  captured = true;
  capture = capture_id;
  if (first) return launched.event.hold_by_graph(stream);
  return same_stream ? ok() : in_capture.event.hold(stream);
}

Status DeviceCommunicator::State::leave(cudaStream_t stream) {
  ++calls;
  current->there = true;
  if (network != nullptr) network->wake();
  if (current == &in_capture) TUTTI_CHECK_OK(launched.event.record_by_graph(stream));
  return current->event.record(stream);
}

Status DeviceCommunicator::State::launch(const Request& request, cudaStream_t stream) {
  const exec::OnDevice on(device);
  TUTTI_CHECK_OK(enter(stream));
  const exec::CudaCall& call = call_of(request);
  if (goes_by_packets(request)) {
    TUTTI_CHECK_OK(mesh->launch_one_shot(me.value, call, stream));
    return leave(stream);
  }
  const Route& route = routes.at(route_of(request));
  if (route.two_shot && mesh->check_two_shot(call))
    TUTTI_CHECK_OK(mesh->launch_two_shot(me.value, call, stream));
  else
    TUTTI_CHECK_OK(mesh->launch(me.value, *route.plan, call, stream));
  return leave(stream);
}

std::size_t DeviceCommunicator::State::device_bytes() const {
  std::size_t bytes = mesh->bytes() + sample.size() + apart.bytes();
  for (const auto& [key, plan] : plans) bytes += plan.bytes();
  return bytes;
}

std::string DeviceCommunicator::State::describe() const {
  std::string text = fmt::format(
      "communicator of {} ranks on devices, this is rank {} on device {}; joined in {:.1f} ms\n",
      rank_count, me.value, device, created_ms);
  text += fmt::format("slots of {} KiB, {} a ring; {} lanes\n", machine.slot_bytes / 1024,
                      machine.slots, machine.lanes);
  const std::size_t tried = sample.size(), rings = mesh->bytes() + apart.bytes();
  text += fmt::format(
      "device memory of this rank: {:.2f} MiB: rings {:.2f}, {} plans {:.2f}, for others to try "
      "{:.2f}\n",
      static_cast<double>(device_bytes()) / (1 << 20), static_cast<double>(rings) / (1 << 20),
      plans.size(), static_cast<double>(device_bytes() - rings - tried) / (1 << 20),
      static_cast<double>(tried) / (1 << 20));
  if (const auto room = exec::blocks_of_device(device)) {
    text += fmt::format(
        "blocks at a time: {}; of all communicators of this process on the device {} of {}\n",
        machine.lanes, exec::CudaRoom::taken(device), *room);
  }
  if (mesh->staged_bytes() != 0) {
    text += fmt::format(
        "host memory for rings between devices that don't reach each other: "
        "{:.2f} MiB\n",
        static_cast<double>(mesh->staged_bytes()) / (1 << 20));
  }
  if (!registered.empty()) {
    std::size_t bytes = 0;
    for (const Registered& one : registered) bytes += one.bytes;
    text += fmt::format("registered memory: {} times, {:.2f} MiB\n", registered.size(),
                        static_cast<double>(bytes) / (1 << 20));
  }
  if (network != nullptr) {
    text += fmt::format("{} hosts, joined by {}; host memory for rings between them: {:.2f} MiB\n",
                        planner::ranks_on(machine.hosts.of).size(), control_state().transport,
                        static_cast<double>(network->pinned_bytes()) / (1 << 20));
    text += fmt::format("slots to other hosts: {}\n", slots_away);
  }
  for (std::size_t peer = 0; peer < static_cast<std::size_t>(rank_count); ++peer) {
    if (peer == static_cast<std::size_t>(me.value)) continue;
    const std::string& refusal = refusals[peer];
    const auto self = static_cast<std::size_t>(me.value);
    const double direct = machine.direct_rate(self, peer);
    text += fmt::format("to rank {}: {}{}{}\n", peer, planner::to_string(machine.link(self, peer)),
                        direct > 0 ? fmt::format(", {:.3g} GB/s to it alone", direct) : "",
                        refusal.empty() ? "" : "; " + refusal);
  }
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

Rank DeviceCommunicator::rank() const { return state_->me; }
int DeviceCommunicator::rank_count() const { return state_->rank_count; }
int DeviceCommunicator::device() const { return state_->device; }

Status DeviceCommunicator::call(const Request& request, Stream stream) {
  TUTTI_CHECK_OK(state_->check(request));
  if (request.uneven) return state_->start(state_->messages_of(request, cuda_stream(stream)));
  if (request.count == 0) return ok();
  if (in_group()) {
    add_to_group(*state_, request, cuda_stream(stream));
    return ok();
  }
  TUTTI_CHECK_OK(state_->prepare(request));
  return state_->launch(request, cuda_stream(stream));
}

Status DeviceCommunicator::prepare(const Request& request) {
  Request asked = request;  // Whatever its buffers will be, if there are none.
  static std::byte somewhere[2];
  if (asked.input == nullptr) asked.input = somewhere;
  if (asked.output == nullptr) asked.output = somewhere + 1;
  TUTTI_CHECK_OK(state_->check(asked));
  return request.count == 0 || request.uneven ? ok() : state_->prepare(asked);
}

Status DeviceCommunicator::check() const { return state_->failure(); }

void DeviceCommunicator::abort(std::string_view reason) {
  state_->control.abort(reason);  // First, because peers whose kernels end ask for the reason.
  if (state_->network != nullptr)
    state_->network->abort({Code::kAborted, std::string(reason), state_->me});
  state_->mesh->abort(state_->me.value);
}

void DeviceCommunicator::revoke() {
  state_->revoked.store(true, std::memory_order_relaxed);
  state_->mesh->abort(state_->me.value);
}

Status DeviceCommunicator::wait() const {
  const exec::OnDevice on(state_->device);
  return state_->launched.event.synchronize();
}

std::size_t DeviceCommunicator::device_bytes() const { return state_->device_bytes(); }
std::string DeviceCommunicator::describe() const { return state_->describe(); }

}  // namespace tutti
