// File: base/fork.h: keeps forked children from inheriting held mutexes and open connections.
//
// A child has only the thread that forked. A mutex that another thread held at that moment stays
// locked in the child for ever, and what it guards may be half written. So a fork first takes every
// mutex that is registered here, and parent and child release them.
//
// A child also has copies of all descriptors. As long as it lives, a connection whose owner was
// killed is not closed, and a lock not released: peers would not see the death. So these copies are
// closed in the child, right after the fork. Children that come by exec have none anyway
// (O_CLOEXEC).
#pragma once
#include <cstdint>
#include <mutex>

#include "base/fd.h"

namespace tutti {

/// The order in which a fork takes the mutexes: a mutex comes after those that may be held when it
/// is locked.
enum class ForkOrder {
  kProgressInstance,
  kProgressQueues,
  kUniqueIds,
  kStores,
  kPlans,
  kEstimates,
  kTrees,
  kServe,
  kServerSockets,
  kMark,
  kProcess,
  kPeerProcesses,
  kSegments,
  kLobby,
  kFlight,
  kNames,
  kWorkers,
  kDescriptors,
  kLog
};

/// The number of forks between the first process that loaded this library and this one.
std::uint32_t fork_count();

/// Registers a mutex for as long as the library is loaded; to be defined at namespace scope, so
/// that it is registered before any thread can fork.
class HeldAcrossFork {
 public:
  /// `in_child` runs in the child while all mutexes are held; it must not allocate or lock.
  HeldAcrossFork(ForkOrder order, std::mutex& (*mutex)(), void (*in_child)() = nullptr);
  HeldAcrossFork(const HeldAcrossFork&) = delete;
  HeldAcrossFork& operator=(const HeldAcrossFork&) = delete;

 private:
  static void prepare();
  static void child_side();
  static void release();

  ForkOrder order_;
  std::mutex& (*mutex_)();
  void (*in_child_)();
  std::mutex* held_ = nullptr;      // The thread that forks holds it.
  HeldAcrossFork* next_ = nullptr;  // In ascending order.
};

/// All objects of a kind that do something in each forked child, as a list through the objects
/// themselves (next_, previous_): the child neither allocates nor frees. Any thread.
template <class Object>
class ForkedList {
 public:
  static std::mutex& mutex() { return mutex_; }
  /// Calls in_child() of each.
  static void in_child() {
    for (Object* at = first_; at != nullptr; at = at->next_) at->in_child();
  }
  static void add(Object& one) {
    const std::lock_guard lock(mutex_);
    one.next_ = first_;
    if (first_ != nullptr) first_->previous_ = &one;
    first_ = &one;
  }
  static void remove(Object& one) {
    const std::lock_guard lock(mutex_);
    (one.previous_ == nullptr ? first_ : one.previous_->next_) = one.next_;
    if (one.next_ != nullptr) one.next_->previous_ = one.previous_;
  }

 private:
  // NOLINTBEGIN(readability-identifier-naming): members, as others.
  static inline constinit std::mutex mutex_;
  static inline constinit Object* first_ = nullptr;
  // NOLINTEND(readability-identifier-naming)
};

/// While it lives, each forked child closes and empties its copy of `descriptor`. `descriptor` must
/// not move. Any thread.
class ClosedInChild {
 public:
  explicit ClosedInChild(Fd& descriptor);
  ~ClosedInChild();
  ClosedInChild(const ClosedInChild&) = delete;
  ClosedInChild& operator=(const ClosedInChild&) = delete;

 private:
  friend class ForkedList<ClosedInChild>;
  void in_child() { descriptor_.reset(); }

  Fd& descriptor_;
  ClosedInChild* next_ = nullptr;
  ClosedInChild* previous_ = nullptr;
};

}  // namespace tutti
