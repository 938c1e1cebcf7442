// File: transport/ucx/forked.h: closes UCX's connections in forked children.
//
// As long as a child has copies of a worker's sockets, no peer sees this process's death. UCX opens
// the sockets itself and does not tell which they are. But a worker's event descriptor is an epoll:
// it watches an epoll for each device, and that one the device's sockets. The kernel lists what an
// epoll watches (/proc/self/fdinfo). So the child walks these lists, and closes the sockets. Where
// there is no /proc, or UCX has other descriptors than that, they stay open.
#pragma once
#include "base/fork.h"

namespace tutti::ucx {

/// While it lives, each forked child closes the sockets below the epoll `events`. Any thread.
class SocketsClosedInChild {
 public:
  explicit SocketsClosedInChild(int events);
  ~SocketsClosedInChild();
  SocketsClosedInChild(const SocketsClosedInChild&) = delete;
  SocketsClosedInChild& operator=(const SocketsClosedInChild&) = delete;

 private:
  friend class ForkedList<SocketsClosedInChild>;
  void in_child();

  int events_;
  SocketsClosedInChild* next_ = nullptr;
  SocketsClosedInChild* previous_ = nullptr;
};

}  // namespace tutti::ucx
