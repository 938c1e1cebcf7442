// File: virtual/windows.h: one-sided operations of a run.
#pragma once
#include "tutti/window.h"
#include "virtual/calls.h"

namespace tutti::virt {

/// Makes a window and closes it. Between, `times` of the call, each rank puts to the next one and
/// gets that back, and all accumulate at the call's root and draw tickets of it, which then tells
/// them that it has seen it.
class WindowUse {
 public:
  WindowUse(Communicator& comm, const Call& call, int number, Random& random);
  Status run();
  /// Whether all that this rank has read was right.
  bool right() const { return right_; }
  /// When an operation failed, before the window was destroyed for that.
  Time stopped_at() const { return stopped_at_; }
  /// A hash of what it has got.
  std::uint64_t sum() { return got_.sum(); }

 private:
  Status use(Window& window);
  Status give(Window& window);
  Status draw(Window& window, int round);
  Status read(Window& window);
  Status meet(Window& window);
  /// Nothing of an operation within a host is a point of schedule: so others go on here.
  void pause();
  template <class Value>
  void expect(const std::byte* data, Value&& value);

  Communicator& comm_;
  const Call& call_;
  int number_, ranks_, me_, naps_ = 2;
  Rank next_, previous_, root_;
  std::size_t bytes_, counter_;
  Random& random_;
  Buffer own_, got_;
  bool right_ = true;
  Time stopped_at_ = kNever;
};

}  // namespace tutti::virt
