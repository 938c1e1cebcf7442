// File: cuda/driver/staging.h: memory of the host that processes share and all their devices
// access: where the rings lie between ranks whose devices don't reach each other's memory, and the
// words that streams of several ranks write and wait for.
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

/// A little of such memory that is pinned as long as the process lives. To unpin it might wait for
/// the device and hold up launches there, so it is kept for the next of that size.
class CudaSharedWords {
 public:
  /// Zeroed. kSystem: what the system or the runtime said.
  static Result<CudaSharedWords> allocate(std::size_t bytes);
  /// Where that of another process is mapped here, and stays.
  static Result<std::byte*> open(const CudaStaging::Name& name, Deadline deadline);
  std::byte* data() const { return staging_->data(); }
  Result<CudaStaging::Name> name() const { return staging_->name(); }
  /// Somebody may write to it later on, too: nobody gets it after this.
  void retire() {
    if (staging_ != nullptr) staging_.get_deleter().reuse = false;
  }

 private:
  struct Keep {
    std::size_t bytes;
    bool reuse;
    void operator()(CudaStaging* staging) const;
  };
  std::unique_ptr<CudaStaging, Keep> staging_;
};

}  // namespace tutti::exec
