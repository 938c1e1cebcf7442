// The C API for captures of streams (tutti/cuda.h).
#include "capi/handles.h"
#include "cuda/driver/memory.h"
#include "tutti/cuda.h"

namespace {
using namespace tutti;
using namespace tutti::c_api;
}  // namespace

tutti_result_t tutti_cuda_relaxed_capture(void (*body)(void* data), void* data) {
  return guard(__func__, [=, name = __func__]() -> Status {
    if (body == nullptr) return invalid(name, "`body` is NULL");
    const exec::RelaxedCapture relaxed;
    body(data);
    return ok();
  });
}

tutti_result_t tutti_cuda_is_capturing(void* stream, int* capturing) {
  return guard(__func__, [=, name = __func__]() -> Status {
    if (capturing == nullptr) return invalid(name, "where the answer goes is NULL");
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status);
    // The legacy stream fails so while another stream is captured; it is not captured itself.
    if (error == cudaErrorStreamCaptureImplicit)
      cudaGetLastError();
    else if (error != cudaSuccess)
      return Error{Code::kSystem, std::string(name) + ": " + cudaGetErrorString(error)};
    *capturing = error == cudaSuccess && status != cudaStreamCaptureStatusNone ? 1 : 0;
    return ok();
  });
}
