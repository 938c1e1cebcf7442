// File: cuda/driver/share.h: gives other processes, and other devices of this process, access to a
// device's memory.
//
// Memory of the runtime (cudaMalloc) goes by an IPC handle. Memory that the driver mapped (ours for
// peers, ncclMemAlloc's, PyTorch's expandable segments) goes part by part as descriptors, which are
// fetched as memfds are (transport/local/segments.h), or as a fabric handle where it was made for
// no others. Opening memory takes its CudaName, whichever kind it is, and yields an address.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "cuda/driver/driver.h"
#include "transport/local/segments.h"
#include "tutti/rendezvous.h"
#include "tutti/result.h"

namespace tutti::exec {

/// kUnsupported: the device can't access the other one's memory, as the runtime allocates it.
Status enable_peer_access(int device, int peer);

enum class CudaHandleKind : std::uint32_t { kNone, kIpc, kDescriptors, kFabric };

/// Names some memory to other processes; plain bytes.
struct CudaName {
  std::uint64_t process[2] = {};  // Peer::process.
  std::byte* data = nullptr;      // As that process sees it,
  std::int32_t device = 0;        // and the number its device has there.
  CudaHandleKind kind = CudaHandleKind::kNone;
  std::uint64_t offset = 0;       // Where the memory is in what the handles stand for,
  std::uint64_t whole_bytes = 0;  // which is so large.
  std::uint64_t first = 0;        // kDescriptors: an id for each part, one after the other,
  std::uint32_t parts = 0;
  segments::Address address;  // and the process that hands them out.
  union {
    cudaIpcMemHandle_t ipc;
    CUmemFabricHandle fabric;
  } handle = {};
};

/// While it lives others can open the memory.
class CudaExport {
 public:
  CudaExport() = default;
  CudaExport(CudaExport&& other) noexcept { *this = std::move(other); }
  CudaExport& operator=(CudaExport&& other) noexcept {
    std::swap(name_, other.name_);
    return *this;
  }
  ~CudaExport();

  /// Memory of `device`: any part of what was allocated, or of what was mapped in a row. What can't
  /// be exported has a name of kNone, which is enough for this process. kInvalidArgument: more than
  /// was allocated. kUnsupported: parts that are not in a row, or memory of a pool. kSystem: what
  /// the system said.
  static Result<CudaExport> of(int device, std::byte* data, std::size_t bytes);
  const CudaName& name() const { return name_; }

 private:
  Status name_allocated(std::size_t bytes);
  Status add_parts(std::byte* base, std::size_t bytes, CUmemAllocationHandleType type);

  CudaName name_;
};

/// Memory that was named, for one device of this process; closed with the object, which waits for
/// nothing that the device does.
class CudaImport {
 public:
  /// kUnsupported: the name has no handle, or the device can't access the memory. kSystem: what
  /// the runtime, the driver or the other process said.
  static Result<CudaImport> open(int device, const CudaName& name, Deadline deadline);
  std::byte* data() const { return data_; }
  /// Whether it is open by an IPC handle: its owner may not free it before this is closed. Other
  /// memory stays while somebody has it open.
  bool by_ipc() const { return ipc_ != nullptr; }

 private:
  Status open_parts(int device, const CudaName& name, Deadline deadline);
  Status add(void* shared, CUmemAllocationHandleType type, std::size_t bytes);

  struct Close {
    int device;
    void operator()(void* ipc) const;
  };
  std::byte* data_ = nullptr;
  std::unique_ptr<void, Close> ipc_;  // What the runtime opened,
  CudaMapping mapping_;               // or the driver.
};

}  // namespace tutti::exec
