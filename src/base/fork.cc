#include "base/fork.h"

#include <pthread.h>

#include <atomic>

namespace tutti {
namespace {

// Both change only while the library is loaded, before the first fork.
constinit HeldAcrossFork* first = nullptr;
constinit bool handled = false;
constinit std::atomic<std::uint32_t> forks{0};

}  // namespace

// relaxed: threads of this process started after it was set.
std::uint32_t fork_count() { return forks.load(std::memory_order_relaxed); }

HeldAcrossFork::HeldAcrossFork(ForkOrder order, std::mutex& (*mutex)(), void (*in_child)())
    : order_(order), mutex_(mutex), in_child_(in_child) {
  HeldAcrossFork** at = &first;
  while (*at != nullptr && (*at)->order_ <= order) at = &(*at)->next_;
  next_ = *at;
  *at = this;
  // If this fails for lack of memory, a fork is as dangerous as in most programs with threads.
  if (!handled) handled = pthread_atfork(prepare, release, child_side) == 0;
}

void HeldAcrossFork::prepare() {
  for (HeldAcrossFork* one = first; one != nullptr; one = one->next_) {
    one->held_ = &one->mutex_();
    one->held_->lock();
  }
}

void HeldAcrossFork::release() {
  for (HeldAcrossFork* one = first; one != nullptr; one = one->next_) one->held_->unlock();
}

void HeldAcrossFork::child_side() {
  forks.fetch_add(1, std::memory_order_relaxed);  // relaxed: the child has one thread.
  for (HeldAcrossFork* one = first; one != nullptr; one = one->next_) {
    if (one->in_child_ != nullptr) one->in_child_();
  }
  release();
}

namespace {

using Descriptors = ForkedList<ClosedInChild>;
const HeldAcrossFork descriptors_held(ForkOrder::kDescriptors, Descriptors::mutex,
                                      Descriptors::in_child);

}  // namespace

ClosedInChild::ClosedInChild(Fd& descriptor) : descriptor_(descriptor) { Descriptors::add(*this); }
ClosedInChild::~ClosedInChild() { Descriptors::remove(*this); }

}  // namespace tutti
