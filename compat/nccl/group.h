// File: compat/nccl/group.h: calls that are started together (ncclGroupStart, ncclGroupEnd).
//
// Model. A thread has one group at a time, which nests. Every call, also one outside a group, is
// put into the group and started when the outermost group ends: first communicators, each on a
// thread of its own, since they wait for each other; so too what their ranks do together; then
// calls, in one tutti::Group. The first mistake in a group is its result, and then nothing of the
// group is started.
#pragma once
#include <functional>
#include <vector>

#include "comm.h"

namespace tutti::nccl {

class Group {
 public:
  /// The calling thread's.
  static Group& current();

  void start() { ++depth_; }
  /// Starts what was collected if this is the outermost end.
  ncclResult_t end(const char* function);
  /// Forgets what was collected.
  ncclResult_t drop(const char* function);
  bool is_open() const { return depth_ > 0; }

  /// The communicator behind `comm` is made by `make`, which may wait for other ranks. Outside a
  /// group it is made before this returns, if the user does not mind to be blocked. `kept`: a comm
  /// that nobody gets, until it is made.
  ncclResult_t make(ncclComm* comm, std::unique_ptr<ncclComm> kept,
                    std::function<Status(ncclComm&)> make);
  /// Does `together`, which waits for what the other ranks do, at the end of the group, or now if
  /// there is none: that of each communicator on a thread of its own, before any call.
  ncclResult_t join(ncclComm* comm, std::function<Status(DeviceCommunicator&)> together);
  /// Does `call` at the end of the group, or now if there is none.
  ncclResult_t add(ncclComm* comm, std::function<Status(DeviceCommunicator&)> call);
  /// A mistake in an argument: now, and at the end of the group.
  ncclResult_t fail(ncclResult_t result);

 private:
  struct Making {
    ncclComm* comm;
    std::unique_ptr<ncclComm> kept;
    std::function<Status(ncclComm&)> make;
  };
  struct Call {
    ncclComm* comm;
    std::function<Status(DeviceCommunicator&)> start;
  };
  ncclResult_t make_all();
  ncclResult_t join_all();
  ncclResult_t start_all();
  void clear();

  int depth_ = 0;
  ncclResult_t failed_ = ncclSuccess;
  std::vector<Making> makings_;
  std::vector<Call> joins_, calls_;
};

/// Success, or the communicator's mistake: no handle, given back, not made yet, ended early.
ncclResult_t check_ready(ncclComm* comm, const char* function);

}  // namespace tutti::nccl
