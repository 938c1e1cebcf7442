// Giving communicators back, and what ends their calls.
#include "base/threads.h"
#include "group.h"

using namespace tutti::nccl;  // NOLINT(google-build-using-namespace): the API has no namespace.

namespace {

/// Waits until the calls of this rank are done; without blocking, another thread waits.
ncclResult_t quiesce(const char* function, ncclComm& comm) {
  if (comm.config.blocking) return finish(&comm, function, comm.device_communicator->wait());
  comm.state.store(ncclInProgress, std::memory_order_release);
  if (comm.worker.joinable()) comm.worker.join();  // It made the communicator, and is done.
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
  if (const ncclResult_t failed = check_made(use.get(), kFunction)) return failed;
  comm->finalized = true;
  return quiesce(kFunction, *comm);
}

/// Checks that the communicator may be destroyed or aborted: that its group does not do so already.
ncclResult_t check_leaves(ncclComm_t comm, const char* function) {
  if (const ncclResult_t failed = check_handle(comm, function)) return failed;
  if (!comm->leaves) return ncclSuccess;
  return bad_argument(comm, function, "the communicator goes at the end of this group already");
}

/// Checks that the communicator was neither finalized nor revoked before.
ncclResult_t check_first(ncclComm& comm, const char* function) {
  const bool revoked = comm.revoked.load(std::memory_order_relaxed);
  if (!revoked && !comm.finalized) return ncclSuccess;
  return bad_argument(
      &comm, function,
      revoked ? "the communicator was revoked already" : "the communicator was finalized already");
}

}  // namespace

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  Group& group = Group::current();
  const Use use(comm);
  if (const ncclResult_t failed = check_made(use.get(), __func__)) return group.fail(failed);
  if (const ncclResult_t failed = check_first(*comm, __func__)) return group.fail(failed);
  return group.leave(comm, finalize);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  Group& group = Group::current();
  {
    const Use use(comm);
    if (const ncclResult_t failed = check_leaves(use.get(), __func__)) return group.fail(failed);
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

// In a group, drops and ends the communicator's calls now, and gives the handle back at the end.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  Group& group = Group::current();
  const auto abort = [](ncclComm_t gone) {
    return give_back(gone, true) ? ncclSuccess : check_handle(gone, "ncclCommAbort");
  };
  if (!group.is_open()) return abort(comm);
  const Use use(comm);
  if (const ncclResult_t failed = check_leaves(use.get(), __func__)) return group.fail(failed);
  comm->leaves = true;
  group.forget(comm);
  end_calls(*comm);
  return group.leave(comm, abort);
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  if (comm == nullptr) return ncclSuccess;
  const Use use(comm);
  if (const ncclResult_t failed = check_made(use.get(), __func__)) return failed;
  if (flags != NCCL_REVOKE_DEFAULT) return bad_argument(comm, __func__, "flags are not 0");
  if (const ncclResult_t failed = check_first(*comm, __func__)) return failed;
  comm->revoked.store(true, std::memory_order_relaxed);
  comm->device_communicator->stop();
  return quiesce(__func__, *comm);
}

// A suspended communicator keeps its memory (ncclCommMemStats): 16 MiB to 64 MiB.
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags) {
  const Use use(comm);
  if (const ncclResult_t failed = check_ready(use.get(), __func__)) return failed;
  if (flags != NCCL_SUSPEND_MEM)
    return bad_argument(comm, __func__, "flags are not NCCL_SUSPEND_MEM");
  comm->suspended = true;
  return quiesce(__func__, *comm);
}

ncclResult_t ncclCommResume(ncclComm_t comm) {
  const Use use(comm);
  if (const ncclResult_t failed = check_made(use.get(), __func__)) return failed;
  if (!comm->suspended) return bad_usage(comm, __func__, "the communicator is not suspended");
  comm->suspended = false;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const Use use(comm);
  if (const ncclResult_t failed = check_handle(use.get(), __func__)) return failed;
  if (error == nullptr) return bad_argument(comm, __func__, "the place for the answer is NULL");
  // Acquire: see what the thread that set the state has written.
  *error = comm->state.load(std::memory_order_acquire);
  if (*error != ncclSuccess && *error != ncclInProgress) remember(*comm);
  // The calls of a revoked communicator have ended, but the user asked for that: no error.
  if (*error != ncclSuccess || comm->revoked.load(std::memory_order_relaxed) ||
      !comm->device_communicator)
    return ncclSuccess;
  if (auto status = comm->device_communicator->check(); !status)
    *error = finish(comm, __func__, status);
  return ncclSuccess;
}
