// The C API for captures of streams (tutti/cuda.h).
#include "comm/c_handles.h"
#include "exec/cuda_memory.h"
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
