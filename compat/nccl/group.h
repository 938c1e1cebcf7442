// File: compat/nccl/group.h: calls that are started together (ncclGroupStart, ncclGroupEnd).
//
// Model. A thread has one group at a time, which nests. Every call, also one outside a group, is
// put into the group and started when the outermost group ends: first communicators, each on a
// thread of its own, since they wait for each other; so too what their ranks do together; then
// calls, in one tutti::Group; and last communicators are finalized or given back. The first mistake
// in a group is its result; then no call of the group is started, but communicators are still
// finalized and given back.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "comm.h"

namespace tutti::nccl {

/// What a call does, to estimate its time: a collective, or a message from or to a peer. Nothing of
/// these: it takes no time.
struct Work {
  std::optional<Request> collective = {};
  int to = -1, from = -1;
  std::size_t bytes = 0;
};

class Group {
 public:
  /// The calling thread's.
  static Group& current();

  void start() { ++depth_; }
  /// Starts what was collected if this is the outermost end.
  ncclResult_t end(const char* function);
  /// Forgets what was collected. At the outermost end, `us` gets how long its calls would take.
  ncclResult_t drop(const char* function, double* us);
  bool is_open() const { return depth_ > 0; }
  bool is_outermost() const { return depth_ == 1; }

  /// The communicator behind `comm` is made by `make`, which may wait for other ranks. Outside a
  /// group it is made before this returns, unless the user asked not to be blocked.
  ncclResult_t make(const char* function, std::shared_ptr<ncclComm> comm,
                    std::function<Status(ncclComm&)> make);
  /// Does `together`, which waits for what the other ranks do, at the end of the group, or now if
  /// there is none: that of each communicator on a thread of its own, before any call.
  ncclResult_t join(const char* function, ncclComm* comm,
                    std::function<Status(DeviceCommunicator&)> together);
  /// Does `call` at the end of the group, or now if there is none.
  ncclResult_t add(const char* function, ncclComm* comm,
                   std::function<Status(DeviceCommunicator&)> call, const Work& work);
  /// Does `leave`, which ends the use of `comm`, at the end of the group, or now if there is none.
  ncclResult_t leave(ncclComm* comm, std::function<ncclResult_t(ncclComm*)> leave);
  /// Forgets the calls of a communicator that was aborted.
  void forget(const ncclComm* comm);
  /// A mistake in an argument: now, and at the end of the group.
  ncclResult_t fail(ncclResult_t result);

 private:
  // Handles are owned: another thread may give them back before the group ends.
  using Owned = std::shared_ptr<ncclComm>;
  struct Making {
    const char* function;
    Owned comm;
    std::function<Status(ncclComm&)> make;
  };
  struct Call {
    const char* function;
    Owned comm;
    std::function<Status(DeviceCommunicator&)> start;
    Work work = {};
  };
  struct Leaving {
    Owned comm;
    std::function<ncclResult_t(ncclComm*)> leave;
  };
  ncclResult_t make_all();
  ncclResult_t join_all();
  ncclResult_t start_all();
  ncclResult_t leave_all();
  static ncclResult_t run(const Call& call);
  static Result<double> estimate_us(const std::vector<const Call*>& calls);
  ncclResult_t estimate_all(double* us) const;
  void clear();

  int depth_ = 0;
  ncclResult_t failed_ = ncclSuccess;
  std::vector<Making> makings_;
  std::vector<Call> joins_, calls_;
  std::vector<Leaving> leavings_;
};

/// Checks that it is a handle that was not given back.
ncclResult_t check_handle(ncclComm* comm, const char* function);
/// Checks also that the communicator is made.
ncclResult_t check_made(ncclComm* comm, const char* function);
/// Checks also that it is not finalized, revoked or suspended: for functions that start something.
ncclResult_t check_ready(ncclComm* comm, const char* function);

}  // namespace tutti::nccl
