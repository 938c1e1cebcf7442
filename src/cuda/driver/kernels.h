// File: cuda/driver/kernels.h: all kernels are loaded before one of them can wait.
//
// CUDA loads a kernel when it is first asked for (CUDA_MODULE_LOADING is LAZY unless set), which
// may synchronize the context, and holds its lock meanwhile (CUDA programming guide, "Lazy
// Loading", "Concurrent Execution": what shall run concurrently is to be loaded before). Ours wait
// for those of other ranks, which this very thread may be about to launch: so none may be loaded
// later. There is no telling which ones will be called, so it is all of them, once for each device
// of the process; NCCL does the same. What else a program runs on the device it has to load itself.
#pragma once
#include "tutti/result.h"

namespace tutti::exec {

/// Returns when all are loaded, whoever does it. kUnsupported: the library has none for such a
/// device.
Status load_kernels(int device);

}  // namespace tutti::exec
