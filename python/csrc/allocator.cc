#include "allocator.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include <ATen/Functions.h>
#include <c10/core/Allocator.h>

#include "tutti/communicator.h"

namespace tutti::python {
namespace {

constexpr std::size_t kSmallest = std::size_t{64} << 10;  // Less is not worth a mapping.
constexpr std::size_t kMostKept = std::size_t{1} << 30;   // Bytes, all kept blocks together.
constexpr std::size_t kMostBlocks = 1024;                 // Files that this process holds open.
constexpr std::uintptr_t kPage = 4096;

/// Sizes in steps of an eighth, so that blocks fit again and at most an eighth is lost.
std::size_t rounded(std::size_t bytes) {
  std::size_t step = kSmallest;
  while (step * 16 < bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

class Pool {
 public:
  static Pool& instance() {
    static Pool* pool = new Pool();  // Never destroyed: tensors outlive everything.
    return *pool;
  }

  /// Null if there is no more such memory.
  void* allocate(std::size_t bytes) {
    const std::size_t size = rounded(bytes);
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = kept_.find(size); found != kept_.end()) {
        void* data = found->second;
        kept_.erase(found);
        kept_bytes_ -= size;
        used_[data] = size;
        used_bytes_ += size;
        return data;
      }
      if (used_.size() + kept_.size() >= kMostBlocks) return nullptr;
    }
    auto made = mem_alloc(size);
    if (!made) return nullptr;
    const std::lock_guard lock(mutex_);
    used_[*made] = size;
    used_bytes_ += size;
    return *made;
  }

  /// False if it is not one of ours.
  bool free(void* data) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = used_.find(data);
      if (found == used_.end()) return false;
      const std::size_t size = found->second;
      used_.erase(found);
      used_bytes_ -= size;
      if (kept_bytes_ + size <= kMostKept) {
        kept_.emplace(size, data);
        kept_bytes_ += size;
        return true;
      }
    }
    (void)mem_free(data);  // It is ours, so this can't fail.
    return true;
  }

  PoolUse use() {
    const std::lock_guard lock(mutex_);
    return {used_bytes_, kept_bytes_};
  }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, std::size_t> used_;
  std::multimap<std::size_t, void*> kept_;
  std::size_t used_bytes_ = 0, kept_bytes_ = 0;
};

void free_block(void* data) { Pool::instance().free(data); }

/// Frees blocks of the allocator that SharedAllocator replaces. Written once, before
/// SharedAllocator is installed.
std::atomic<c10::DeleterFnPtr> free_plain{nullptr};

/// Frees a block of the pool or of the replaced allocator. The pool's blocks are mappings, so it
/// looks up only addresses at the start of a page.
void free_either(void* data) {
  const bool may_be_pooled = data != nullptr && reinterpret_cast<std::uintptr_t>(data) % kPage == 0;
  if (may_be_pooled && Pool::instance().free(data)) return;
  // relaxed: a block exists only after the pointer was written and the allocator was installed.
  free_plain.load(std::memory_order_relaxed)(data);
}

/// torch's allocator of CPU memory with large blocks taken out. All blocks have the same deleter,
/// and the context is the block itself, as c10 asks of an allocator with a raw interface: oneDNN's
/// wrapper calls raw_allocate and raw_deallocate.
class SharedAllocator : public c10::Allocator {
 public:
  SharedAllocator(c10::Allocator* plain, std::size_t from_bytes)
      : plain_(plain), from_bytes_(std::max(from_bytes, kSmallest)) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = bytes >= from_bytes_ ? Pool::instance().allocate(bytes) : nullptr;
    if (data == nullptr) data = plain_->raw_allocate(bytes);
    return {data, data, &free_either, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_either; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  c10::Allocator* plain_;
  std::size_t from_bytes_;
};

std::atomic<bool> enabled{false};

}  // namespace

at::Tensor make_mappable(at::IntArrayRef sizes, at::ScalarType type) {
  const auto options = at::TensorOptions().dtype(type).device(at::kCPU);
  std::size_t bytes = c10::elementSize(type);
  for (const std::int64_t size : sizes) bytes *= static_cast<std::size_t>(size);
  void* data = bytes >= kSmallest ? Pool::instance().allocate(bytes) : nullptr;
  if (data == nullptr) return at::empty(sizes, options);
  return at::from_blob(data, sizes, &free_block, options);
}

at::Tensor make_beside(const at::Tensor& like, at::IntArrayRef sizes, at::ScalarType type) {
  if (like.device().is_cpu()) return make_mappable(sizes, type);
  return at::empty(sizes, at::TensorOptions().dtype(type).device(like.device()));
}

void enable_shared_allocator(std::size_t from_bytes) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (enabled) return;
  c10::Allocator* const plain = c10::GetAllocator(c10::DeviceType::CPU);
  TORCH_CHECK(plain->raw_deleter() != nullptr,
              "tutti: the shared allocator can't replace torch's allocator of CPU memory, which "
              "another library has replaced by one without a raw interface; load that library "
              "later or do without one of the two");
  // relaxed: as c10 says, no other thread may allocate during SetAllocator.
  free_plain.store(plain->raw_deleter(), std::memory_order_relaxed);
  enabled = true;
  constexpr std::uint8_t kBeforeTheDefault = 100;
  // Never destroyed: torch keeps the pointer.
  c10::SetAllocator(c10::DeviceType::CPU, new SharedAllocator(plain, from_bytes),
                    kBeforeTheDefault);
}

bool shared_allocator_enabled() { return enabled; }

PoolUse pool_use() { return Pool::instance().use(); }

}  // namespace tutti::python
