// File: cuda/driver/staging.h: memory of the host that processes share and all their devices
// access: where the rings lie between ranks whose devices don't reach each other's memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "cuda/driver/memory.h"
#include "transport/local/segments.h"

namespace tutti::exec {

class CudaStaging {
 public:
  /// How others find it; plain bytes.
  struct Name {
    segments::Address address;
    std::uint64_t id = 0;
    std::byte* data = nullptr;  // In its own process.
  };

  /// Zeroed. kSystem: what the system or the runtime said.
  static Result<CudaStaging> allocate(std::size_t bytes);
  Result<Name> name() const;
  /// That of another process, mapped here.
  static Result<CudaStaging> open(const Name& name, Deadline deadline);
  std::byte* data() const { return data_.get(); }

 private:
  struct Unpin {
    bool own;
    void operator()(std::byte* data) const;
  };
  Status pin(std::byte* data, std::size_t bytes, bool own);

  segments::Mapping mapping_;  // If it is another's. Goes last.
  std::unique_ptr<std::byte, Unpin> data_;
};

}  // namespace tutti::exec
