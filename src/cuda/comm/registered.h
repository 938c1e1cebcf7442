// File: cuda/comm/registered.h: memory that all ranks have registered, and what of a call's buffers
// lies in it.
//
// Ranks register memory collectively, in the same order. A call's buffer is then in the same place
// of the same memory on all ranks, or in none. So each rank knows from its own buffers what it can
// map of the others', and all choose the same plan. Ranks map the memory of those on their host.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "cuda/comm/device_rank.h"
#include "cuda/comm/launch_order.h"
#include "cuda/comm/multicast.h"
#include "tutti/device_handle.h"

namespace tutti {

/// It has more than 20 functions: memory is registered, found and let go, and more is made of it:
/// windows, multicast memory, handles of kernels.
class RegisteredMemory {
 public:
  static constexpr unsigned kNumberShift = 48;  // Below: a place in the memory of that number.
  struct Entry {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    exec::CudaExport exported;
    std::vector<exec::CudaImport> opened;
    std::vector<std::byte*> everywhere;  // By rank, as this process sees it; null: another host's.
    std::uint64_t number = 0;            // Counts registrations, alike on all ranks.
    bool window = false;                 // Each rank closes it for itself.
    exec::CudaMulticast multicast;       // For all that was allocated there,
    std::byte* on_all = nullptr;         // and what stands for `data` of all ranks; null: nothing,
    std::string no_multicast;            // as this says.
    // Signals of kernels on other memory, with which they go (tutti/device_handle.h).
    std::uint64_t signals_of = 0;  // The place of that, alike on all ranks; 0: it is the user's.
    exec::CudaMemory signals;
    /// Whether these are signals on the memory `other`.
    bool belongs_to(const Entry& other) const {
      return signals_of != 0 && signals_of >> kNumberShift == other.number;
    }
  };
  /// A place in registered memory.
  struct Place {
    const Entry* memory = nullptr;  // Null: in none.
    std::size_t offset = 0;
    /// Alike on all ranks; 0: in none.
    std::uint64_t number() const {
      return memory == nullptr ? 0 : memory->number << kNumberShift | (offset + 1);
    }
    /// By rank, as this process sees it; null: another host's. Empty: in none.
    template <class Pointer>
    void list(std::vector<Pointer>& places) const {
      places.clear();
      if (memory == nullptr) return;
      for (std::byte* const at : memory->everywhere)
        places.push_back(at == nullptr ? nullptr : at + offset);
    }
  };

  /// Both have to outlive this.
  RegisteredMemory(DeviceRank& rank, const LaunchOrder& order) : rank_(rank), order_(order) {}

  /// Registers memory for staging, of the communicator itself, and says where it is. An error, on
  /// all ranks: it can't be multicast memory. Collective.
  Status add_staging(const exec::CudaMemory& memory, exec::CudaMulticastStaging& staging);
  MulticastMemory& multicast() { return multicast_; }
  const MulticastMemory& multicast() const { return multicast_; }

  // Collective, but for close_window; as DeviceCommunicator has them.
  Status add(void* data, std::size_t bytes, bool window);
  Status remove(void* data);
  Status close_window(void* data);
  /// For kernels on `bytes` at `data`. Collective.
  Result<DeviceHandle> add_handle(void* data, std::size_t bytes, int channels);
  /// As CudaRings has it, of what is not the user's.
  std::vector<exec::CudaImport> take_imports_by_ipc();

  Place place_at(const void* buffer, std::size_t bytes) const;
  /// The parts of a call's buffers that peers can map.
  plan::Mapped mapped_of(const Request& request) const;
  /// Sets where the call's buffers are on all ranks.
  void add_peers(const Request& request, exec::CudaCall& call) const;
  /// The addresses that stand for all ranks' input or output of the call; null: there is none, or
  /// kernels can't use it (CudaMultimem).
  std::byte* multicast_of(const Request& request, bool input) const;
  /// A hash of some places' numbers (CudaCall::places); 0: all are in none.
  static std::uint64_t places_of(std::initializer_list<std::uint64_t> numbers);

  /// A line; empty: nothing is registered.
  std::string describe() const;

 private:
  Result<Entry> join(Entry made, Status status, const char* what);
  static std::uint64_t signals_of(const Place& place, std::size_t bytes);
  std::vector<Entry> take(std::vector<Entry>::iterator found);
  Status export_own(Entry& made, exec::CudaName& name) const;
  Status open_others(Entry& made, const std::vector<exec::CudaName>& names) const;
  Place place_of(const Request& request, bool input) const;

  DeviceRank& rank_;
  const LaunchOrder& order_;
  std::vector<Entry> list_;  // In the order of registrations.
  MulticastMemory multicast_;
  std::optional<Entry> staging_;  // Unless there is no multicast memory.
  std::uint64_t registrations_ = 0;
};

}  // namespace tutti
