// File: cuda/driver/multicast.h: memory that several devices have in common (NVLink SHARP): an
// address that stands for one in each device's own memory.
//
// What is stored there with multimem.st reaches all of them, what is read with multimem.ld_reduce
// is their sum; the switch does both. Kernels do so (kernels/cuda/multimem.h), and nothing else may
// touch these addresses.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/driver/driver.h"
#include "tutti/result.h"

namespace tutti::exec {

class CudaMulticast {
 public:
  /// `bytes` of memory in each device, and `lanes` of counters behind it. Devices are by rank, of
  /// this process, and each has one rank. kUnsupported: devices or a driver without multicast
  /// memory.
  static Result<std::unique_ptr<CudaMulticast>> create(std::vector<int> devices, std::size_t bytes,
                                                       std::uint32_t lanes);
  ~CudaMulticast();
  CudaMulticast(const CudaMulticast&) = delete;
  CudaMulticast& operator=(const CudaMulticast&) = delete;

  std::size_t size() const { return bytes_; }
  std::uint32_t lanes() const { return lanes_; }
  /// A rank's own memory, for all that is not multicast; zeroed. All devices may access it.
  std::byte* data(std::size_t rank) const { return own_[rank].data(); }
  /// What stands for all ranks' data.
  std::byte* multicast() const { return multicast_.data(); }
  /// By lane, kCounterBytes apart, in the rank's own memory and in all ranks'; and, in its own
  /// alone, how often it has met.
  std::uint64_t* arrived(std::size_t rank) const;
  std::uint64_t* counters() const;
  std::uint64_t* rounds(std::size_t rank) const;

 private:
  CudaMulticast() = default;
  Status allocate();
  Result<CudaMapping> map(CUmemGenericAllocationHandle handle) const;

  std::vector<int> devices_;
  std::size_t bytes_ = 0, whole_ = 0;  // The data's; all, in the driver's granules.
  std::uint32_t lanes_ = 0;
  std::vector<CUmemGenericAllocationHandle> handles_;  // The multicast object, then by rank.
  std::vector<CudaMapping> own_;
  CudaMapping multicast_;
};

}  // namespace tutti::exec
