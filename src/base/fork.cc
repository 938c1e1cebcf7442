#include "base/fork.h"

#include <pthread.h>

#include <mutex>

namespace tutti {

/// A list through the objects themselves: the child, which may have been forked while another
/// thread held any lock, neither allocates nor frees.
struct ForkedDescriptors {
  std::mutex mutex;
  ClosedInChild* first = nullptr;

  static ForkedDescriptors& instance() {
    static auto* const one = [] {
      auto* const made = new ForkedDescriptors();  // Never destroyed: threads may outlive main.
      pthread_atfork([] { instance().mutex.lock(); }, [] { instance().mutex.unlock(); },
                     [] {
                       instance().close_all();
                       instance().mutex.unlock();
                     });
      return made;
    }();
    return *one;
  }
  void close_all() {
    for (const ClosedInChild* at = first; at != nullptr; at = at->next_) at->descriptor_.reset();
  }
  void add(ClosedInChild& one) {
    const std::lock_guard lock(mutex);
    one.previous_ = nullptr;
    one.next_ = first;
    if (first != nullptr) first->previous_ = &one;
    first = &one;
  }
  void remove(ClosedInChild& one) {
    const std::lock_guard lock(mutex);
    (one.previous_ == nullptr ? first : one.previous_->next_) = one.next_;
    if (one.next_ != nullptr) one.next_->previous_ = one.previous_;
  }
};

ClosedInChild::ClosedInChild(Fd& descriptor) : descriptor_(descriptor) {
  ForkedDescriptors::instance().add(*this);
}
ClosedInChild::~ClosedInChild() { ForkedDescriptors::instance().remove(*this); }

}  // namespace tutti
