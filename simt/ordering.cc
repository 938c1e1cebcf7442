// File: simt/ordering.cc: fences, for the thread sanitizer.
//
// It does not model stand-alone fences: a fence and a relaxed store behind it publish what was
// before the *fence*. So each CUDA thread that fences has a second clock, a sanitizer's fiber that
// never runs: at a fence it catches up with the thread, and later relaxed stores are released by
// it. Relaxed loads are acquired by a third, whose clock the thread takes over at its next fence.
// That is exact: a fence in the wrong place is found.
#include "simt/block.h"

namespace tutti::simt {

#if TUTTI_SIMT_TSAN
namespace {

/// Does something as another of the sanitizer's fibers, without ordering the two.
template <class Action>
void as(void* other, Fiber* self, Action action) {
  __tsan_switch_to_fiber(other, 1);
  action();
  __tsan_switch_to_fiber(self->tsan, 1);
}

}  // namespace

void fence() {
  if (current_block == nullptr) return __atomic_thread_fence(__ATOMIC_SEQ_CST);
  Fiber* self = current_block->running;
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  if (self->tsan_released == nullptr) self->tsan_released = __tsan_create_fiber(0);
  __tsan_release(&self->release_token);
  as(self->tsan_released, self, [&] { __tsan_acquire(&self->release_token); });
  self->fenced = true;
  if (self->tsan_acquired != nullptr) {
    as(self->tsan_acquired, self, [&] { __tsan_release(&self->acquire_token); });
    __tsan_acquire(&self->acquire_token);
  }
}

void before_relaxed_store(void* at) {
  if (current_block == nullptr) return;
  Fiber* self = current_block->running;
  if (self->fenced) as(self->tsan_released, self, [&] { __tsan_release(at); });
}

void after_relaxed_load(const void* at) {
  if (current_block == nullptr) return;
  Fiber* self = current_block->running;
  if (self->tsan_acquired == nullptr) self->tsan_acquired = __tsan_create_fiber(0);
  as(self->tsan_acquired, self, [&] { __tsan_acquire(const_cast<void*>(at)); });
}
#else
void fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void before_relaxed_store(void*) {}
void after_relaxed_load(const void*) {}
#endif

bool loses_write(const void* at, std::size_t bytes) {
  if (current == nullptr) return false;
  const std::uint64_t lost = settings().loses_writes[current->device];
  if (lost == 0) return false;
  const Owner owner = owner_of(at, bytes, current->device);
  return owner.device >= 0 && (lost >> owner.device & 1) != 0;
}

void check_access(const void* at, std::size_t bytes, Scope scope, bool flag) {
  if (current == nullptr) return;
  const Owner owner = owner_of(at, bytes, current->device);
  if (!owner.accessible) {
    die("device %d accesses %p (%zu bytes) of device %d, which it may not (peer access?)",
        current->device, at, bytes, owner.device);
  }
  if (flag && scope != Scope::kSystem && owner.device != current->device) {
    die("a flag of device scope at %p, which belongs to device %d", at, owner.device);
  }
}

}  // namespace tutti::simt
