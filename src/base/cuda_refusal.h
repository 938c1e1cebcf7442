// File: base/cuda_refusal.h: CUDA's number of an error, for libnccl, which has its own result for
// errors of CUDA.
//
// A CUDA function that fails becomes an Error of kSystem. The thread that called it also stores
// CUDA's number here, as with errno. A caller that sets the number to 0 before a call can tell
// afterwards whether CUDA or the system refused something on its thread.
#pragma once

namespace tutti {

/// A cudaError_t, or a CUresult, which has the same numbers; 0: none.
inline thread_local int cuda_refusal = 0;

}  // namespace tutti
