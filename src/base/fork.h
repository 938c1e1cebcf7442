// File: base/fork.h: descriptors that a child which came by fork must not keep.
//
// A child has copies of all descriptors. As long as it lives, a connection whose owner was killed
// is not closed, and a lock not released: peers would not see the death. So these copies are closed
// in the child, right after the fork. Children that come by exec have none anyway (O_CLOEXEC).
#pragma once
#include "base/fd.h"

namespace tutti {

/// As long as it lives, `descriptor`, which stays where it is, is closed in each child that comes
/// by fork: there it is none. Any thread.
class ClosedInChild {
 public:
  explicit ClosedInChild(Fd& descriptor);
  ~ClosedInChild();
  ClosedInChild(const ClosedInChild&) = delete;
  ClosedInChild& operator=(const ClosedInChild&) = delete;

 private:
  friend struct ForkedDescriptors;
  Fd& descriptor_;
  ClosedInChild* next_ = nullptr;
  ClosedInChild* previous_ = nullptr;
};

}  // namespace tutti
