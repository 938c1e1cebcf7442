// Memory that ranks register with each other, and what of a call's buffers is such memory.
//
// Which way a call goes follows from whether its buffers are registered, which they are on all
// ranks or on none, in the same place; so ranks choose alike without a word. Between hosts the same
// holds, and ranks map what is on their host.
#include <algorithm>
#include <functional>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "base/hash.h"
#include "cuda/comm/state.h"
#include "cuda/comm/tell.h"

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

Error invalid(const std::string& what) { return {Code::kInvalidArgument, what}; }

/// Of what all ranks have alike.
Status check_reach(const planner::DeviceMachine& machine) {
  const std::size_t ranks = machine.device_of.size();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      if (rank == peer || machine.link(rank, peer) != planner::DeviceLink::kHost) continue;
      return Error{Code::kUnsupported,
                   fmt::format("register_memory: devices of ranks {} and {} are on one host and "
                               "don't reach each other's memory; calls work without it",
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
                                     "asking which device holds an address"));
    if (attributes.type == cudaMemoryTypeDevice && attributes.device == device) continue;
    return invalid(fmt::format("register_memory: of these {} bytes not all are memory of device {}",
                               bytes, device));
  }
  return ok();
}

}  // namespace

Status DeviceCommunicator::State::register_memory(void* data, std::size_t bytes, bool window) {
  if (in_group()) return invalid("register_memory is not for groups; end the group first");
  TUTTI_CHECK_OK(check_reach(machine));
  const RelaxedCapture relaxed;
  const exec::OnDevice on(device);
  Registered made;
  made.data = static_cast<std::byte*>(data);
  made.bytes = bytes;
  made.window = window;
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
    if (status && window && mine.name.parts == 0)
      status = Error{Code::kUnsupported,
                     "open_window: memory that the driver did not map (device_mem_alloc does)", me};
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
    if (machine.link(static_cast<std::size_t>(me.value), rank) == planner::DeviceLink::kNetwork) {
      made.everywhere.back() = nullptr;
      continue;
    }
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

Status DeviceCommunicator::State::close_window(void* data) {
  const auto found = std::find_if(registered.begin(), registered.end(), [data](const auto& one) {
    return one.data == data && one.window;
  });
  if (found == registered.end()) return invalid("close_window: there is none of this memory");
  const RelaxedCapture relaxed;
  const exec::OnDevice on(device);
  TUTTI_CHECK_OK(launched.event.synchronize());
  registered.erase(found);
  return ok();
}

/// Nobody closes anything before all have ended their calls, nor returns before all have closed.
Status DeviceCommunicator::State::deregister_memory(void* data) {
  if (in_group()) return invalid("deregister_memory is not for groups; end the group first");
  const auto found =
      std::find_if(registered.begin(), registered.end(),
                   [data](const Registered& one) { return one.data == data && !one.window; });
  Done done;
  Status status = found != registered.end()
                      ? ok()
                      : invalid("deregister_memory: this memory is not registered");
  const RelaxedCapture relaxed;
  const exec::OnDevice on(device);
  if (status) status = launched.event.synchronize();
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

DeviceCommunicator::State::Place DeviceCommunicator::State::place_at(const void* buffer,
                                                                     std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(buffer);
  for (const Registered& one : registered) {
    const auto begin = reinterpret_cast<std::uintptr_t>(one.data);
    if (address >= begin && address - begin <= one.bytes && bytes <= one.bytes - (address - begin))
      return {&one, address - begin};
  }
  return {};
}

/// In place, a rank's block of the buffer that has all is not in the same place on all ranks, so
/// only the whole is mapped; and where every block is exchanged for another one, none is.
DeviceCommunicator::State::Place DeviceCommunicator::State::place_of(const Request& request,
                                                                     bool input) const {
  const plan::Mapped maps = planner::device_maps(request.collective, machine);
  if (registered.empty() || rank_count == 1 || !(input ? maps.inputs : maps.outputs)) return {};
  const CollectiveTraits traits = traits_of(request.collective);
  const bool each = input ? traits.input_each : traits.output_each;
  const bool other_each = input ? traits.output_each : traits.input_each;
  const std::size_t block = request.count * size_of(request.type);
  const void* const buffer = input ? request.input : request.output;
  const auto other = reinterpret_cast<std::uintptr_t>(input ? request.output : request.input);
  const std::size_t own = each ? 0 : static_cast<std::size_t>(me.value) * block;
  const bool in_other = other_each && reinterpret_cast<std::uintptr_t>(buffer) == other + own;
  if (in_other) return {};
  return place_at(buffer, each ? block * static_cast<std::size_t>(rank_count) : block);
}

/// A peer's factor is not known, so what it scales is not read.
plan::Mapped DeviceCommunicator::State::mapped_of(const Request& request) const {
  if (registered.empty()) return {};
  const bool scaled = reduces(request.collective) && request.reduction.op == ReduceOp::kPreMulSum;
  return {!scaled && place_of(request, true).memory != nullptr,
          place_of(request, false).memory != nullptr};
}

void DeviceCommunicator::State::add_peers(const Request& request, exec::CudaCall& call) const {
  const Place input = place_of(request, true), output = place_of(request, false);
  input.list(call.peer_inputs);
  output.list(call.peer_outputs);
  call.places = places_of({input.number(), output.number()});
}

std::uint64_t DeviceCommunicator::State::places_of(std::initializer_list<std::uint64_t> numbers) {
  Hash hash;
  bool any = false;
  for (const std::uint64_t number : numbers) {
    hash.add(number);
    any |= number != 0;
  }
  return any ? hash.value() | 1 : 0;
}

// ---- Memory that peers can map ----

namespace {

struct Allocated {
  std::mutex mutex;
  std::map<void*, exec::CudaMemory> memories;
};
Allocated& allocated() {
  static auto* const one = new Allocated();  // Memory outlives what is destroyed at the end.
  return *one;
}

}  // namespace

Result<void*> device_mem_alloc(int device, std::size_t bytes) {
  if (bytes == 0) return invalid("device_mem_alloc: no bytes");
  TUTTI_TRY(auto memory, exec::CudaMemory::allocate_for_peers(device, bytes));
  void* const data = memory.data();
  const std::lock_guard lock(allocated().mutex);
  allocated().memories.emplace(data, std::move(memory));
  return data;
}

Status device_mem_free(void* data) {
  if (data == nullptr) return ok();
  decltype(allocated().memories)::node_type memory;  // To free it may wait: not under the lock.
  {
    const std::lock_guard lock(allocated().mutex);
    memory = allocated().memories.extract(data);
  }
  return memory.empty() ? invalid("device_mem_free: this is not memory of device_mem_alloc") : ok();
}

// ---- The public class ----

Status DeviceCommunicator::register_memory(void* data, std::size_t bytes) {
  return state_->register_memory(data, bytes, false);
}
Status DeviceCommunicator::open_window(void* data, std::size_t bytes) {
  return state_->register_memory(data, bytes, true);
}
Status DeviceCommunicator::close_window(void* data) { return state_->close_window(data); }
Status DeviceCommunicator::deregister_memory(void* data) { return state_->deregister_memory(data); }

Result<void*> DeviceCommunicator::address_at(const void* data, Rank peer) const {
  const State::Place place = state_->place_at(data, 1);
  if (place.memory == nullptr)
    return invalid("address_at: this address is in no registered memory of the communicator");
  if (peer.value < 0 || peer.value >= rank_count())
    return invalid(fmt::format("address_at: rank {} of {} ranks", peer.value, rank_count()));
  std::byte* const at = place.memory->everywhere[static_cast<std::size_t>(peer.value)];
  return static_cast<void*>(at == nullptr ? nullptr : at + place.offset);
}

bool DeviceCommunicator::reaches(Rank a, Rank b) const {
  const planner::DeviceLink link =
      state_->machine.link(static_cast<std::size_t>(a.value), static_cast<std::size_t>(b.value));
  return a == b || (link != planner::DeviceLink::kHost && link != planner::DeviceLink::kNetwork);
}

}  // namespace tutti
