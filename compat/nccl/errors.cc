// The text of ncclGetLastError, and the ncclResult_t of each of our errors.
#include "base/cuda_refusal.h"
#include "comm.h"
#include "debug.h"

namespace tutti::nccl {
namespace {

/// The last error of the process.
struct LastError {
  std::mutex mutex;
  std::string line;
};
LastError& last_error() {
  static auto* const one = new LastError();  // Threads may fail when the process ends.
  return *one;
}

void keep(ncclComm* comm, const std::string& line) {
  {
    const std::lock_guard lock(last_error().mutex);
    last_error().line = line;
  }
  if (comm == nullptr) return;
  const std::lock_guard lock(comm->error_lock);
  comm->last_error = line;
}

/// The name that the program gave the communicator, to stand behind a line.
std::string name_of(const ncclComm* comm) {
  if (comm == nullptr || comm->config.comm_name.empty()) return "";
  return " (communicator '" + comm->config.comm_name + "')";
}

}  // namespace

ncclResult_t result_of(const Error& error, int rank) {
  const bool of_another = error.peer.value >= 0 && error.peer.value != rank;
  switch (error.code) {
    case Code::kOk: return ncclSuccess;
    case Code::kInvalidArgument: return ncclInvalidArgument;
    case Code::kUnsupported: return ncclInvalidUsage;
    case Code::kMismatch: return ncclRemoteError;
    case Code::kPeerFailed: return ncclRemoteError;
    case Code::kTimeout: return ncclRemoteError;  // NCCL's ncclTimeout is of kernels of the user's.
    case Code::kAborted:
    case Code::kRevoked: return of_another ? ncclRemoteError : ncclInvalidUsage;
    case Code::kSystem:
      if (of_another) return ncclRemoteError;
      return cuda_refusal != 0 ? ncclUnhandledCudaError : ncclSystemError;
    case Code::kInvalidPlan: return ncclInternalError;
    case Code::kInternal: return ncclInternalError;
  }
  return ncclInternalError;
}

ncclResult_t finish(ncclComm* comm, const char* function, const Error& error) {
  std::string line = error.to_string();
  if (line.find(function) == std::string::npos) line = std::string(function) + ": " + line;
  line += name_of(comm);
  keep(comm, line);
  warn_of(line);
  return result_of(error, comm != nullptr ? comm->rank : -1);
}

void remember(ncclComm& comm) {
  std::string line;
  {
    const std::lock_guard lock(comm.error_lock);
    line = comm.last_error;
  }
  keep(nullptr, line);
}

ncclResult_t fail_as(ncclResult_t result, ncclComm* comm, const char* function,
                     const std::string& what) {
  const std::string line = std::string(function) + ": " + what + name_of(comm);
  keep(comm, line);
  warn_of(line);
  return result;
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
  // The pointer has to stay valid while another thread writes the next one: a copy of the caller's.
  thread_local std::string copy;
  const Use use(comm);
  if (use) {
    const std::lock_guard lock(comm->error_lock);
    copy = comm->last_error;
  } else {
    const std::lock_guard lock(last_error().mutex);
    copy = last_error().line;
  }
  return copy.c_str();
}
