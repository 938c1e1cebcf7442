// What ncclGetLastError says, and which result an error of ours is.
#include "comm.h"

namespace tutti::nccl {
namespace {

thread_local std::string last_error;

}  // namespace

ncclResult_t result_of(const Error& error) {
  switch (error.code) {
    case Code::kOk: return ncclSuccess;
    case Code::kInvalidArgument: return ncclInvalidArgument;
    case Code::kUnsupported: return ncclInvalidUsage;
    case Code::kMismatch: return ncclRemoteError;
    case Code::kPeerFailed: return ncclRemoteError;
    case Code::kTimeout: return ncclTimeout;
    case Code::kAborted: return ncclInvalidUsage;
    case Code::kSystem: return ncclSystemError;
    case Code::kInvalidPlan: return ncclInternalError;
    case Code::kInternal: return ncclInternalError;
  }
  return ncclInternalError;
}

ncclResult_t finish(ncclComm* comm, const Error& error) {
  last_error = error.to_string();
  if (comm != nullptr) {
    const std::lock_guard lock(comm->error_lock);
    comm->last_error = last_error;
  }
  return result_of(error);
}

void remember(ncclComm& comm) {
  const std::lock_guard lock(comm.error_lock);
  last_error = comm.last_error;
}

ncclResult_t bad_argument(ncclComm* comm, const char* function, const std::string& what) {
  return finish(comm, Error{Code::kInvalidArgument, std::string(function) + ": " + what});
}

ncclResult_t bad_usage(ncclComm* comm, const char* function, const std::string& what) {
  return finish(comm, Error{Code::kUnsupported, std::string(function) + ": " + what});
}

}  // namespace tutti::nccl

using namespace tutti::nccl;  // NOLINT(google-build-using-namespace): the API has no namespace.

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "operation in progress";
    case ncclTimeout: return "operation timed out";
    case ncclNumResults: break;
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t comm) {
  if (comm == nullptr || comm->magic != ncclComm::kMagic) return last_error.c_str();
  // The pointer has to stay valid while another thread writes the next one: a copy of the caller's.
  thread_local std::string copy;
  const std::lock_guard lock(comm->error_lock);
  copy = comm->last_error;
  return copy.c_str();
}
