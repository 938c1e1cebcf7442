// File: cuda/driver/kernels.h: all kernels are loaded before one of them can wait.
//
// CUDA loads a kernel when it is first asked for (CUDA_MODULE_LOADING is LAZY unless set), which
// may synchronize the context, and holds its lock meanwhile (CUDA programming guide, "Lazy
// Loading", "Concurrent Execution": what shall run concurrently is to be loaded before). Our
// kernels wait for those of other ranks, which this very thread may be about to launch. So none may
// be loaded later. No one knows which ones will be called, so all are loaded, once for each device
// of the process; NCCL does the same. A program has to load its own kernels itself.
#pragma once
#include "tutti/result.h"

namespace tutti::exec {

/// Returns when all are loaded, by this thread or another. kUnsupported: the library has none for
/// such a device.
Status load_kernels(int device);

}  // namespace tutti::exec
