// Giving communicators back, and what ends their calls.
#include "base/threads.h"
#include "group.h"

using namespace tutti::nccl;  // NOLINT(google-build-using-namespace): the API has no namespace.

namespace {

/// Waits for the calls that were made: now, or, without blocking, beside the user's thread.
ncclResult_t quiesce(const char* function, ncclComm& comm) {
  if (comm.blocking) return finish(&comm, function, comm.device_communicator->wait());
  comm.state.store(ncclInProgress, std::memory_order_release);
  if (comm.worker.joinable()) comm.worker.join();  // Its maker, which is done.
  auto worker = tutti::start_thread("the thread that waits for calls", [&comm, function] {
    const ncclResult_t result = finish(&comm, function, comm.device_communicator->wait());
    comm.state.store(result, std::memory_order_release);
  });
  if (!worker) {
    const ncclResult_t refused = finish(&comm, function, worker.error());
    comm.state.store(refused, std::memory_order_release);
    return refused;
  }
  comm.worker = std::move(*worker);
  return ncclInProgress;
}

ncclResult_t finalize(ncclComm_t comm) {
  constexpr const char* kFunction = "ncclCommFinalize";
  const Use use(comm);
  if (const ncclResult_t failed = check_made(use ? comm : nullptr, kFunction)) return failed;
  comm->finalized = true;
  return quiesce(kFunction, *comm);
}

/// Whether a communicator may leave, once; not by its group yet.
ncclResult_t check_leaves(ncclComm_t comm, const char* function) {
  if (const ncclResult_t failed = check_handle(comm, function)) return failed;
  if (!comm->leaves) return ncclSuccess;
  return bad_argument(comm, function, "the communicator goes at the end of this group already");
}

}  // namespace

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  Group& group = Group::current();
  const Use use(comm);
  if (const ncclResult_t failed = check_made(use ? comm : nullptr, __func__))
    return group.fail(failed);
  if (comm->finalized || comm->revoked.load(std::memory_order_relaxed)) {
    return group.fail(bad_argument(comm, __func__,
                                   comm->revoked.load(std::memory_order_relaxed)
                                       ? "the communicator was revoked"
                                       : "the communicator was finalized already"));
  }
  return group.leave(comm, finalize);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  Group& group = Group::current();
  {
    const Use use(comm);
    if (const ncclResult_t failed = check_leaves(use ? comm : nullptr, __func__))
      return group.fail(failed);
    // Acquire: as check_made.
    if (comm->state.load(std::memory_order_acquire) == ncclInProgress &&
        !comm->made.load(std::memory_order_acquire)) {
      return group.fail(
          bad_argument(comm, __func__, "the communicator is being made; ncclCommAbort ends that"));
    }
    comm->leaves = group.is_open();
    if (comm->leaves) {
      return group.leave(comm, [](ncclComm_t gone) {
        return give_back(gone, false) ? ncclSuccess : check_handle(gone, "ncclCommDestroy");
      });
    }
  }
  return give_back(comm, false) ? ncclSuccess : check_handle(comm, __func__);
}

// In a group its calls are dropped, and end, now; the handle goes with the group.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  Group& group = Group::current();
  const auto abort = [](ncclComm_t gone) {
    return give_back(gone, true) ? ncclSuccess : check_handle(gone, "ncclCommAbort");
  };
  if (!group.is_open()) return abort(comm);
  const Use use(comm);
  if (const ncclResult_t failed = check_leaves(use ? comm : nullptr, __func__))
    return group.fail(failed);
  comm->leaves = true;
  group.forget(comm);
  end_calls(*comm);
  return group.leave(comm, abort);
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  if (comm == nullptr) return ncclSuccess;
  const Use use(comm);
  if (const ncclResult_t failed = check_made(use ? comm : nullptr, __func__)) return failed;
  if (flags != NCCL_REVOKE_DEFAULT) return bad_argument(comm, __func__, "flags are not 0");
  if (comm->revoked.load(std::memory_order_relaxed) || comm->finalized) {
    return bad_argument(comm, __func__,
                        comm->revoked.load(std::memory_order_relaxed)
                            ? "the communicator was revoked already"
                            : "the communicator was finalized");
  }
  comm->revoked.store(true, std::memory_order_relaxed);
  comm->device_communicator->revoke();
  return quiesce(__func__, *comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const Use use(comm);
  if (const ncclResult_t failed = check_handle(use ? comm : nullptr, __func__)) return failed;
  if (error == nullptr) return bad_argument(comm, __func__, "the place for the answer is NULL");
  // Acquire: see the state that its maker left.
  *error = comm->state.load(std::memory_order_acquire);
  if (*error != ncclSuccess && *error != ncclInProgress) remember(*comm);
  // What a revoked one was doing has ended for a reason that the user knows.
  if (*error != ncclSuccess || comm->revoked.load(std::memory_order_relaxed) ||
      !comm->device_communicator)
    return ncclSuccess;
  if (auto status = comm->device_communicator->check(); !status)
    *error = finish(comm, __func__, status);
  return ncclSuccess;
}
