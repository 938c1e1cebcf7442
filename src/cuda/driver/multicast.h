// File: cuda/driver/multicast.h: memory that the devices of several ranks have in common (NVLink
// SHARP): an address that stands for one in each device's own memory.
//
// What is stored there with multimem.st reaches all of them, what is read with multimem.ld_reduce
// is their sum; the switch does both. Kernels do so (kernels/cuda/multimem.h), and nothing else may
// touch these addresses.
//
// Each rank has an object of its own of this class, whether ranks are threads or processes. They
// come about in steps, each of which begins once all ranks have ended the one before, as the driver
// would otherwise wait for the others:
//
//   make, on one rank;  open, on the others;  add;  bind;  map
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

#include "cuda/driver/driver.h"
#include "transport/local/segments.h"
#include "tutti/result.h"

namespace tutti::exec {

/// What `open` takes; plain bytes.
struct CudaMulticastName {
  segments::Address address;
  std::uint64_t id = 0;
};

class CudaMulticast {
 public:
  CudaMulticast() = default;
  CudaMulticast(CudaMulticast&& other) noexcept { *this = std::move(other); }
  CudaMulticast& operator=(CudaMulticast&& other) noexcept;
  ~CudaMulticast();

  /// kUnsupported: a device or a driver without multicast memory.
  static Status supported(int device);

  /// For so many devices, and as many bytes of each. kUnsupported: not whole granules.
  static Result<CudaMulticast> make(unsigned devices, std::size_t bytes, CudaMulticastName& name);
  static Result<CudaMulticast> open(const CudaMulticastName& name, std::size_t bytes,
                                    Deadline deadline);
  Status add(int device);
  /// Memory that the driver mapped for the device, of the object's size; to be kept as long.
  Status bind(std::byte* memory);
  Status map();

  /// What stands for all ranks' memory; null: it is not mapped.
  std::byte* data() const { return mapping_.data(); }

 private:
  CudaHandle object_;
  std::size_t bytes_ = 0;
  int device_ = -1;
  bool bound_ = false;
  std::uint64_t offered_ = 0;  // An id; 0: others are not to open it.
  CudaMapping mapping_;
};

}  // namespace tutti::exec
