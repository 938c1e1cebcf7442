// File: base/cuda_refusal.h: what CUDA refused, for who has other results for that (libnccl).
//
// Every call of CUDA that fails becomes an Error of kSystem on the thread that made it, which also
// notes CUDA's number here, as errno is kept. Whoever gets such an Error from a call on its own
// thread can tell CUDA's from the system's if it set the number to 0 before.
#pragma once

namespace tutti {

/// A cudaError_t, or a CUresult, which has the same numbers; 0: none.
inline thread_local int cuda_refusal = 0;

}  // namespace tutti
