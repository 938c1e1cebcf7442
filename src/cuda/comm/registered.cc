#include "cuda/comm/registered.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "base/hash.h"
#include "cuda/comm/exchange_status.h"
#include "cuda/mesh/program_kernels.h"

namespace tutti {
namespace {

/// A rank's memory, for the others.
struct Shown {
  ExchangedStatus status;
  exec::CudaName name;
  std::uint64_t bytes = 0;
  std::uint64_t signals_of = 0;
};
struct Done {
  ExchangedStatus status;
  std::uint64_t number = 0;  // Names the memory that is deregistered.
};

Error invalid(const std::string& what) { return {Code::kInvalidArgument, what}; }

/// Whether devices reach each other's memory; all ranks have the same answer.
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
    TUTTI_RETURN_IF_ERROR(exec::cuda_status(cudaPointerGetAttributes(&attributes, at),
                                            "asking which device holds an address"));
    if (attributes.type == cudaMemoryTypeDevice && attributes.device == device) continue;
    return invalid(fmt::format("register_memory: of these {} bytes not all are memory of device {}",
                               bytes, device));
  }
  return ok();
}

}  // namespace

/// Exports this rank's memory, which is not registered yet, as `name`.
Status RegisteredMemory::export_own(Entry& made, exec::CudaName& name) const {
  TUTTI_RETURN_IF_ERROR(check_memory(rank_.device, made.data, made.bytes));
  const bool overlaps = std::any_of(list_.begin(), list_.end(), [&](const Entry& one) {
    return std::less<>()(one.data, made.data + made.bytes) &&
           std::less<>()(made.data, one.data + one.bytes);
  });
  if (overlaps) return invalid("register_memory: part of this memory is registered already");
  TUTTI_TRY(made.exported, exec::CudaExport::of(rank_.device, made.data, made.bytes));
  name = made.exported.name();
  if (!made.window || name.parts != 0) return ok();
  return Error{Code::kUnsupported,
               "open_window: memory that the driver did not map (device_mem_alloc does)", rank_.me};
}

/// Maps the memory of the ranks of this host.
Status RegisteredMemory::open_others(Entry& made, const std::vector<exec::CudaName>& names) const {
  const Deadline deadline = Deadline::after(rank_.settings.timeout);
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    made.everywhere.push_back(rank == rank_.index() ? made.data : nullptr);
    if (rank == rank_.index() ||
        rank_.machine.link(rank_.index(), rank) == planner::DeviceLink::kNetwork)
      continue;
    TUTTI_TRY(auto opened, exec::CudaImport::open(rank_.device, names[rank], deadline));
    made.everywhere.back() = made.opened.emplace_back(std::move(opened)).data();
  }
  return ok();
}

Status RegisteredMemory::add(void* data, std::size_t bytes, bool window) {
  if (in_group()) return invalid("register_memory is not for groups; end the group first");
  Entry made;
  made.data = static_cast<std::byte*>(data);
  made.bytes = bytes;
  made.window = window;
  TUTTI_TRY(made, join(std::move(made), ok(), "register_memory"));
  list_.push_back(std::move(made));
  return ok();
}

Status RegisteredMemory::add_staging(const exec::CudaMemory& memory,
                                     exec::CudaMulticastStaging& staging) {
  Entry made;
  made.data = memory.data();
  made.bytes = memory.size();
  TUTTI_TRY(made, join(std::move(made), ok(), "staging memory"));
  if (made.on_all == nullptr) return Error{Code::kUnsupported, made.no_multicast};
  staging.multicast = made.on_all;
  staging.own = made.data;
  staging.everywhere = made.everywhere;
  staging_ = std::move(made);
  return ok();
}

/// Has all ranks map each other's memory, and joins it by multicast where the communicator does so.
/// `status`: what keeps this rank from it.
Result<RegisteredMemory::Entry> RegisteredMemory::join(Entry made, Status status,
                                                       const char* what) {
  TUTTI_RETURN_IF_ERROR(check_reach(rank_.machine));
  const RelaxedCapture relaxed;
  const exec::OnDevice on(rank_.device);
  Shown mine;
  mine.bytes = made.bytes;
  mine.signals_of = made.signals_of;
  if (status) status = export_own(made, mine.name);
  TUTTI_TRY(const auto shown, exchange_status(rank_.control, mine, status));
  std::vector<exec::CudaName> names;
  for (const Shown& one : shown) {
    const bool same_place = one.signals_of == mine.signals_of;
    if (status && (one.bytes != mine.bytes || !same_place)) {
      const auto other = static_cast<int>(names.size());
      const std::string how =
          same_place ? fmt::format("{} bytes here, {} on", mine.bytes, one.bytes)
                     : "in another place, of other memory, or for another call than on";
      status = Error{Code::kMismatch, fmt::format("{}: {} rank {}", what, how, other), rank_.me,
                     Rank{other}};
    }
    names.push_back(one.name);
  }
  if (status) status = open_others(made, names);
  TUTTI_RETURN_IF_ERROR(exchange_status(rank_.control, status));
  made.number = ++registrations_;
  if (!multicast_.why_not.empty() || made.signals_of != 0) return made;
  auto multicast = join_multicast(rank_, names);
  if (multicast) {
    made.multicast = *std::move(multicast);
    made.on_all = made.multicast.data() + names[rank_.index()].offset;
  } else {
    made.no_multicast = std::move(multicast.error().what);
  }
  return made;
}

/// A place and its length, as one word that is alike on all ranks.
std::uint64_t RegisteredMemory::signals_of(const Place& place, std::size_t bytes) {
  constexpr std::uint64_t kLow = (std::uint64_t{1} << kNumberShift) - 1;
  const Hash hash = Hash().add(place.offset).add(bytes);
  return place.memory->number << kNumberShift | (hash.value() & kLow);
}

/// All ranks are on this host, else not all have an address here.
Result<DeviceHandle> RegisteredMemory::add_handle(void* data, std::size_t bytes, int channels) {
  constexpr const char* kWhat = "device_handle";
  constexpr int kMostChannels = 1 << 16;
  if (in_group()) return invalid("device_handle is not for groups; end the group first");
  if (rank_.network() != nullptr) {
    return Error{Code::kUnsupported,
                 "device_handle: ranks are on several hosts; split the communicator by host",
                 rank_.me};
  }
  Entry made;
  Status status = ok();
  const Place place = place_at(data, bytes);
  if (place.memory == nullptr || bytes == 0) {
    status = invalid(
        fmt::format("device_handle: these {} bytes are not all in one registered memory", bytes));
  } else if (channels <= 0 || channels > kMostChannels) {
    status = invalid(
        fmt::format("device_handle: {} channels; 1 to {} are possible", channels, kMostChannels));
  } else {
    const exec::OnDevice on(rank_.device);
    made.signals_of = signals_of(place, bytes);
    made.window = place.memory->window;
    made.bytes = exec::signal_bytes(static_cast<std::size_t>(channels),
                                    static_cast<std::size_t>(rank_.rank_count));
    auto memory = exec::CudaMemory::allocate_for_peers(rank_.device, made.bytes);
    status = memory ? memory->allow_peers() : memory.error();
    if (memory) made.signals = *std::move(memory);
    made.data = made.signals.data();
  }
  TUTTI_TRY(made, join(std::move(made), std::move(status), kWhat));
  list_.push_back(std::move(made));
  std::vector<std::byte*> windows;
  place_at(data, bytes).list(windows);  // Anew: the list of memories has grown.
  return exec::device_handle_of(rank_.mesh->rings(), rank_.me.value, bytes, windows,
                                static_cast<std::uint32_t>(channels), list_.back().everywhere);
}

/// Memory, and the signals of kernels on it.
std::vector<RegisteredMemory::Entry> RegisteredMemory::take(std::vector<Entry>::iterator found) {
  std::vector<Entry> taken;
  taken.push_back(std::move(*found));
  list_.erase(found);
  for (Entry& one : list_) {
    if (one.belongs_to(taken.front())) taken.push_back(std::move(one));
  }
  std::erase_if(list_, [](const Entry& one) { return one.everywhere.empty(); });
  return taken;
}

std::vector<exec::CudaImport> RegisteredMemory::take_imports_by_ipc() {
  std::vector<exec::CudaImport> taken;
  for (Entry& one : list_) {
    for (exec::CudaImport& opened : one.opened) {
      if (one.signals_of != 0 && opened.by_ipc()) taken.push_back(std::move(opened));
    }
  }
  return taken;
}

Status RegisteredMemory::close_window(void* data) {
  const auto found = std::ranges::find_if(
      list_, [data](const Entry& one) { return one.data == data && one.window; });
  if (found == list_.end()) return invalid("close_window: there is none of this memory");
  const RelaxedCapture relaxed;
  const exec::OnDevice on(rank_.device);
  TUTTI_RETURN_IF_ERROR(order_.synchronize());
  take(found);
  return ok();
}

/// No rank closes its memory before all have ended their calls, nor returns before all have closed.
Status RegisteredMemory::remove(void* data) {
  if (in_group()) return invalid("deregister_memory is not for groups; end the group first");
  const auto found = std::ranges::find_if(
      list_, [data](const Entry& one) { return one.data == data && !one.window; });
  Done done;
  Status status =
      found != list_.end() ? ok() : invalid("deregister_memory: this memory is not registered");
  const RelaxedCapture relaxed;
  const exec::OnDevice on(rank_.device);
  if (status) status = order_.synchronize();
  if (status) done.number = found->number;
  TUTTI_TRY(const auto ended, exchange_status(rank_.control, done, status));
  for (std::size_t rank = 0; rank < ended.size(); ++rank) {
    if (ended[rank].number == done.number) continue;
    return Error{
        Code::kMismatch,
        fmt::format("deregister_memory: the memory registered as number {} here, as number "
                    "{} on rank {}; nothing was deregistered",
                    done.number, ended[rank].number, rank),
        rank_.me, Rank{static_cast<int>(rank)}};
  }
  std::vector<Entry> taken = take(found);
  std::vector<exec::CudaMemory> signals;  // Freed when all have closed them.
  for (Entry& one : taken) signals.push_back(std::move(one.signals));
  taken.clear();
  return exchange_status(rank_.control, ok());
}

RegisteredMemory::Place RegisteredMemory::place_at(const void* buffer, std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(buffer);
  for (const Entry& one : list_) {
    const auto begin = reinterpret_cast<std::uintptr_t>(one.data);
    if (address >= begin && address - begin <= one.bytes && bytes <= one.bytes - (address - begin))
      return {&one, address - begin};
  }
  return {};
}

/// In place, a rank's block of the buffer that has all is not in the same place on all ranks, so
/// only the whole is mapped; and where every block is exchanged for another one, none is. Nor is
/// any in a call with a wire: only slots are encoded.
RegisteredMemory::Place RegisteredMemory::place_of(const Request& request, bool input) const {
  const plan::Mapped maps = planner::device_maps(request.collective, rank_.machine);
  if (list_.empty() || rank_.rank_count == 1 || !(input ? maps.inputs : maps.outputs)) return {};
  if (!request.wire.is_plain()) return {};
  const CollectiveTraits traits = traits_of(request.collective);
  const bool each = input ? traits.input_each : traits.output_each;
  const bool other_each = input ? traits.output_each : traits.input_each;
  const std::size_t block = request.count * size_of(request.type);
  const void* const buffer = input ? request.input : request.output;
  const auto other = reinterpret_cast<std::uintptr_t>(input ? request.output : request.input);
  const std::size_t own = each ? 0 : rank_.index() * block;
  const bool in_other = other_each && reinterpret_cast<std::uintptr_t>(buffer) == other + own;
  if (in_other) return {};
  return place_at(buffer, each ? block * static_cast<std::size_t>(rank_.rank_count) : block);
}

/// A peer's factor is not known, so what it scales is not read.
plan::Mapped RegisteredMemory::mapped_of(const Request& request) const {
  if (list_.empty()) return {};
  const bool scaled = reduces(request.collective) && request.reduction.op == ReduceOp::kPreMulSum;
  return {!scaled && place_of(request, true).memory != nullptr,
          place_of(request, false).memory != nullptr};
}

std::byte* RegisteredMemory::multicast_of(const Request& request, bool input) const {
  const Place place = place_of(request, input);
  if (place.memory == nullptr || place.memory->on_all == nullptr) return nullptr;
  std::byte* const at = place.memory->on_all + place.offset;
  const std::size_t block = request.count * size_of(request.type);
  return exec::CudaMultimem::takes(at, block) ? at : nullptr;
}

void RegisteredMemory::add_peers(const Request& request, exec::CudaCall& call) const {
  const Place input = place_of(request, true), output = place_of(request, false);
  input.list(call.peer_inputs);
  output.list(call.peer_outputs);
  call.places = places_of({input.number(), output.number()});
}

std::uint64_t RegisteredMemory::places_of(std::initializer_list<std::uint64_t> numbers) {
  Hash hash;
  bool any = false;
  for (const std::uint64_t number : numbers) {
    hash.add(number);
    any |= number != 0;
  }
  return any ? hash.value() | 1 : 0;
}

std::string RegisteredMemory::describe() const {
  if (list_.empty()) return {};
  std::size_t bytes = 0, handles = 0;
  for (const Entry& one : list_) {
    if (one.signals_of != 0) {
      ++handles;
    } else {
      bytes += one.bytes;
    }
  }
  std::string text =
      fmt::format("registered memory: {} times, {:.2f} MiB{}\n", list_.size() - handles,
                  static_cast<double>(bytes) / (1 << 20),
                  handles == 0 ? "" : fmt::format("; {} handles of kernels", handles));
  if (staging_) {
    for (const Entry& one : list_) {
      if (one.signals_of != 0) continue;
      text += one.on_all != nullptr ? fmt::format("  number {}: multicast memory\n", one.number)
                                    : fmt::format("  number {}: not multicast memory: {}\n",
                                                  one.number, one.no_multicast);
    }
  }
  return text;
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
  const RelaxedCapture relaxed;
  TUTTI_TRY(auto memory, exec::CudaMemory::allocate_for_peers(device, bytes));
  TUTTI_RETURN_IF_ERROR(memory.allow_peers());
  void* const data = memory.data();
  const std::lock_guard lock(allocated().mutex);
  allocated().memories.emplace(data, std::move(memory));
  return data;
}

Status device_mem_free(void* data) {
  if (data == nullptr) return ok();
  const RelaxedCapture relaxed;
  decltype(allocated().memories)::node_type memory;  // To free it may wait: not under the lock.
  {
    const std::lock_guard lock(allocated().mutex);
    memory = allocated().memories.extract(data);
  }
  return memory.empty() ? invalid("device_mem_free: this is not memory of device_mem_alloc") : ok();
}

}  // namespace tutti
