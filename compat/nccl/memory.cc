// Memory, registered buffers and windows.
#include <cstdint>
#include <memory>
#include <utility>

#include "group.h"

using namespace tutti::nccl;  // NOLINT(google-build-using-namespace): the API has no namespace.
using tutti::Code;

namespace {

/// What is not for peers is as any other memory: on all ranks alike, as they are told.
bool is_refusal(tutti::Code code) {
  return code == Code::kUnsupported || code == Code::kInvalidArgument || code == Code::kMismatch;
}

ncclResult_t register_buffer(const char* function, ncclComm_t comm, void* data, size_t bytes,
                             ncclWindow_t* window) {
  const Use use(comm);
  if (const ncclResult_t failed = check_ready(use.get(), function)) return failed;
  if (data == nullptr || bytes == 0 || window == nullptr) {
    return bad_argument(comm, function, "the buffer or the place for its handle is NULL, or empty");
  }
  *window = new ncclWindow_vidmem{comm->shared_from_this(), data, bytes, false, {}};
  return ncclSuccess;
}

/// Together with the other ranks.
ncclResult_t open_window(const char* function, ncclComm_t comm, ncclWindow_t window) {
  const Use use(comm);
  if (const ncclResult_t failed = check_ready(use.get(), function)) return failed;
  return Group::current().join(function, comm, [window](tutti::DeviceCommunicator& communicator) {
    tutti::Status opened = communicator.open_window(window->data, window->bytes);
    window->open = bool(opened);
    if (!opened) window->why_not = opened.error().what;
    return opened || !is_refusal(opened.error().code) ? std::move(opened) : tutti::ok();
  });
}

/// Works on a communicator that was finalized or revoked, too.
ncclResult_t deregister(const char* function, ncclComm_t comm, ncclWindow_t window) {
  const Use use(comm);
  if (const ncclResult_t failed = check_made(use.get(), function)) return failed;
  if (window == nullptr) return ncclSuccess;
  if (window->comm.get() != comm) {
    return bad_argument(comm, function, "the buffer was registered with another communicator");
  }
  const std::unique_ptr<ncclWindow_vidmem> owned(window);
  return window->open
             ? finish(comm, function, comm->device_communicator->close_window(window->data))
             : ncclSuccess;
}

}  // namespace

ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
  if (data == nullptr) return bad_argument(nullptr, __func__, "the place for the pointer is NULL");
  *data = nullptr;
  if (bytes == 0) return ncclSuccess;
  int device = 0;
  cudaGetDevice(&device);
  auto memory = tutti::device_mem_alloc(device, bytes);
  if (memory) {
    *data = *memory;
    return ncclSuccess;
  }
  return finish(nullptr, __func__, memory.error());
}

ncclResult_t ncclMemFree(void* data) {
  if (data == nullptr) return ncclSuccess;
  // NVIDIA's also frees memory that programs took from cudaMalloc.
  if (tutti::device_mem_free(data)) return ncclSuccess;
  if (const auto said = cudaFree(data)) {
    cudaGetLastError();  // Clears it: this call reports it.
    return fail_as(ncclUnhandledCudaError, nullptr, __func__, cudaGetErrorString(said));
  }
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void* data, size_t bytes, void** handle) {
  return register_buffer(__func__, comm, data, bytes, reinterpret_cast<ncclWindow_t*>(handle));
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  return deregister(__func__, comm, static_cast<ncclWindow_t>(handle));
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, size_t bytes, ncclWindow_t* window,
                                    int flags) {
  if (reinterpret_cast<std::uintptr_t>(data) % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
    return bad_argument(nullptr, __func__, "a window starts at a multiple of 4096 bytes");
  }
  const ncclResult_t made = register_buffer(__func__, comm, data, bytes, window);
  if (made != ncclSuccess || (flags & NCCL_WIN_COLL_SYMMETRIC) == 0) return made;
  const ncclResult_t opened = open_window(__func__, comm, *window);
  if (opened != ncclSuccess) delete std::exchange(*window, nullptr);
  return opened;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return deregister(__func__, comm, window);
}

ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void** data) {
  const Use use(comm);
  if (const ncclResult_t failed = check_made(use.get(), __func__)) return failed;
  if (window == nullptr || data == nullptr || window->comm.get() != comm) {
    return bad_argument(comm, __func__, "this is no window of the communicator");
  }
  *data = window->data;
  return ncclSuccess;
}

ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value) {
  const Use use(comm);
  if (const ncclResult_t failed = check_made(use.get(), __func__)) return failed;
  if (value == nullptr) return bad_argument(comm, __func__, "the place for the answer is NULL");
  switch (stat) {
    case ncclStatGpuMemSuspend:
    case ncclStatGpuMemSuspended: *value = 0; return ncclSuccess;
    case ncclStatGpuMemPersist:
    case ncclStatGpuMemTotal:
      *value = comm->device_communicator->device_bytes();
      return ncclSuccess;
  }
  return bad_argument(comm, __func__, "there is no statistic " + std::to_string(stat));
}
