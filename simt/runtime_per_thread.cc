// File: simt/runtime_per_thread.cc: the second names of functions (per_thread.h).
//
// The names are those of the headers' macros. cudaMemcpyPeer and cudaMemcpyPeerAsync have none:
// their null handle is the legacy stream for all programs.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "simt/per_thread.h"
#include "simt/runtime.h"

using namespace tutti::simt;

// TUTTI_SIMT_N defines a function with the N parameters of `of`, which it calls.
#define TUTTI_SIMT_RESULT(of) Signature<decltype(of)>::Returned
#define TUTTI_SIMT_CALL(of) Signature<decltype(of)>::per_thread<of>
#define TUTTI_SIMT_P(of, index) Signature<decltype(of)>::Parameter<index> p##index
#define TUTTI_SIMT_1(of, name) \
  TUTTI_SIMT_RESULT(of) name(TUTTI_SIMT_P(of, 0)) { return TUTTI_SIMT_CALL(of)(p0); }
#define TUTTI_SIMT_2(of, name)                                           \
  TUTTI_SIMT_RESULT(of) name(TUTTI_SIMT_P(of, 0), TUTTI_SIMT_P(of, 1)) { \
    return TUTTI_SIMT_CALL(of)(p0, p1);                                  \
  }
#define TUTTI_SIMT_3(of, name)                                                                \
  TUTTI_SIMT_RESULT(of) name(TUTTI_SIMT_P(of, 0), TUTTI_SIMT_P(of, 1), TUTTI_SIMT_P(of, 2)) { \
    return TUTTI_SIMT_CALL(of)(p0, p1, p2);                                                   \
  }
#define TUTTI_SIMT_4(of, name)                                                               \
  TUTTI_SIMT_RESULT(of)                                                                      \
  name(TUTTI_SIMT_P(of, 0), TUTTI_SIMT_P(of, 1), TUTTI_SIMT_P(of, 2), TUTTI_SIMT_P(of, 3)) { \
    return TUTTI_SIMT_CALL(of)(p0, p1, p2, p3);                                              \
  }
#define TUTTI_SIMT_5(of, name)                                                             \
  TUTTI_SIMT_RESULT(of)                                                                    \
  name(TUTTI_SIMT_P(of, 0), TUTTI_SIMT_P(of, 1), TUTTI_SIMT_P(of, 2), TUTTI_SIMT_P(of, 3), \
       TUTTI_SIMT_P(of, 4)) {                                                              \
    return TUTTI_SIMT_CALL(of)(p0, p1, p2, p3, p4);                                        \
  }
#define TUTTI_SIMT_6(of, name)                                                             \
  TUTTI_SIMT_RESULT(of)                                                                    \
  name(TUTTI_SIMT_P(of, 0), TUTTI_SIMT_P(of, 1), TUTTI_SIMT_P(of, 2), TUTTI_SIMT_P(of, 3), \
       TUTTI_SIMT_P(of, 4), TUTTI_SIMT_P(of, 5)) {                                         \
    return TUTTI_SIMT_CALL(of)(p0, p1, p2, p3, p4, p5);                                    \
  }
#define TUTTI_SIMT_7(of, name)                                                             \
  TUTTI_SIMT_RESULT(of)                                                                    \
  name(TUTTI_SIMT_P(of, 0), TUTTI_SIMT_P(of, 1), TUTTI_SIMT_P(of, 2), TUTTI_SIMT_P(of, 3), \
       TUTTI_SIMT_P(of, 4), TUTTI_SIMT_P(of, 5), TUTTI_SIMT_P(of, 6)) {                    \
    return TUTTI_SIMT_CALL(of)(p0, p1, p2, p3, p4, p5, p6);                                \
  }
#define TUTTI_SIMT_8(of, name)                                                               \
  TUTTI_SIMT_RESULT(of)                                                                      \
  name(TUTTI_SIMT_P(of, 0), TUTTI_SIMT_P(of, 1), TUTTI_SIMT_P(of, 2), TUTTI_SIMT_P(of, 3),   \
       TUTTI_SIMT_P(of, 4), TUTTI_SIMT_P(of, 5), TUTTI_SIMT_P(of, 6), TUTTI_SIMT_P(of, 7)) { \
    return TUTTI_SIMT_CALL(of)(p0, p1, p2, p3, p4, p5, p6, p7);                              \
  }

extern "C" {

// The runtime's.
TUTTI_SIMT_4(cudaMemcpy, cudaMemcpy_ptds)
TUTTI_SIMT_5(cudaMemcpyToSymbol, cudaMemcpyToSymbol_ptds)
TUTTI_SIMT_5(cudaMemcpyFromSymbol, cudaMemcpyFromSymbol_ptds)
TUTTI_SIMT_6(cudaMemcpyToSymbolAsync, cudaMemcpyToSymbolAsync_ptsz)
TUTTI_SIMT_6(cudaMemcpyFromSymbolAsync, cudaMemcpyFromSymbolAsync_ptsz)
TUTTI_SIMT_7(cudaMemcpy2D, cudaMemcpy2D_ptds)
TUTTI_SIMT_3(cudaMemset, cudaMemset_ptds)
TUTTI_SIMT_5(cudaMemset2D, cudaMemset2D_ptds)
TUTTI_SIMT_5(cudaMemcpyAsync, cudaMemcpyAsync_ptsz)
TUTTI_SIMT_8(cudaMemcpy2DAsync, cudaMemcpy2DAsync_ptsz)
TUTTI_SIMT_4(cudaMemsetAsync, cudaMemsetAsync_ptsz)
TUTTI_SIMT_6(cudaMemset2DAsync, cudaMemset2DAsync_ptsz)
TUTTI_SIMT_3(cudaMallocAsync, cudaMallocAsync_ptsz)
TUTTI_SIMT_2(cudaFreeAsync, cudaFreeAsync_ptsz)
TUTTI_SIMT_6(cudaLaunchKernel, cudaLaunchKernel_ptsz)
TUTTI_SIMT_3(cudaLaunchKernelExC, cudaLaunchKernelExC_ptsz)
TUTTI_SIMT_6(cudaLaunchCooperativeKernel, cudaLaunchCooperativeKernel_ptsz)
TUTTI_SIMT_3(cudaLaunchHostFunc, cudaLaunchHostFunc_ptsz)
TUTTI_SIMT_1(cudaStreamQuery, cudaStreamQuery_ptsz)
TUTTI_SIMT_1(cudaStreamSynchronize, cudaStreamSynchronize_ptsz)
TUTTI_SIMT_3(cudaStreamWaitEvent, cudaStreamWaitEvent_ptsz)
TUTTI_SIMT_4(cudaStreamAddCallback, cudaStreamAddCallback_ptsz)
TUTTI_SIMT_2(cudaStreamGetDevice, cudaStreamGetDevice_ptsz)
TUTTI_SIMT_2(cudaStreamGetFlags, cudaStreamGetFlags_ptsz)
TUTTI_SIMT_2(cudaStreamGetId, cudaStreamGetId_ptsz)
TUTTI_SIMT_2(cudaStreamGetPriority, cudaStreamGetPriority_ptsz)
TUTTI_SIMT_2(cudaEventRecord, cudaEventRecord_ptsz)
TUTTI_SIMT_3(cudaEventRecordWithFlags, cudaEventRecordWithFlags_ptsz)
TUTTI_SIMT_2(cudaStreamBeginCapture, cudaStreamBeginCapture_ptsz)
TUTTI_SIMT_2(cudaStreamEndCapture, cudaStreamEndCapture_ptsz)
TUTTI_SIMT_2(cudaStreamIsCapturing, cudaStreamIsCapturing_ptsz)
TUTTI_SIMT_2(cudaGraphLaunch, cudaGraphLaunch_ptsz)
TUTTI_SIMT_2(cudaGraphUpload, cudaGraphUpload_ptsz)
#if CUDART_VERSION >= 13000
TUTTI_SIMT_7(cudaStreamGetCaptureInfo, cudaStreamGetCaptureInfo_ptsz)
#else
TUTTI_SIMT_3(cudaStreamGetCaptureInfo, cudaStreamGetCaptureInfo_ptsz)
#endif

// cudaEnableDefault is what the program was compiled for, which the name of the function tells.
cudaError_t cudaGetDriverEntryPointByVersion_ptsz(const char* name, void** function,
                                                  unsigned version, unsigned long long flags,
                                                  cudaDriverEntryPointQueryResult* result) {
  if (flags == cudaEnableDefault) flags = cudaEnablePerThreadDefaultStream;
  return cudaGetDriverEntryPointByVersion(name, function, version, flags, result);
}
cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* result) {
  return cudaGetDriverEntryPointByVersion(name, function, CUDART_VERSION, flags, result);
}
cudaError_t cudaGetDriverEntryPoint_ptsz(const char* name, void** function,
                                         unsigned long long flags,
                                         cudaDriverEntryPointQueryResult* result) {
  return cudaGetDriverEntryPointByVersion_ptsz(name, function, CUDART_VERSION, flags, result);
}

// The driver's.
TUTTI_SIMT_4(cuMemcpyAsync, cuMemcpyAsync_ptsz)
TUTTI_SIMT_6(cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz)
TUTTI_SIMT_1(cuStreamSynchronize, cuStreamSynchronize_ptsz)
TUTTI_SIMT_2(cuEventRecord, cuEventRecord_ptsz)
TUTTI_SIMT_3(cuMemsetD8, cuMemsetD8_v2_ptds)
TUTTI_SIMT_5(cuMemsetD2D8, cuMemsetD2D8_v2_ptds)
TUTTI_SIMT_4(cuMemsetD8Async, cuMemsetD8Async_ptsz)
TUTTI_SIMT_6(cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz)
TUTTI_SIMT_3(cuMemsetD16, cuMemsetD16_v2_ptds)
TUTTI_SIMT_5(cuMemsetD2D16, cuMemsetD2D16_v2_ptds)
TUTTI_SIMT_4(cuMemsetD16Async, cuMemsetD16Async_ptsz)
TUTTI_SIMT_6(cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz)
TUTTI_SIMT_3(cuMemsetD32, cuMemsetD32_v2_ptds)
TUTTI_SIMT_5(cuMemsetD2D32, cuMemsetD2D32_v2_ptds)
TUTTI_SIMT_4(cuMemsetD32Async, cuMemsetD32Async_ptsz)
TUTTI_SIMT_6(cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz)
TUTTI_SIMT_4(cuStreamWriteValue32, cuStreamWriteValue32_v2_ptsz)
TUTTI_SIMT_4(cuStreamWriteValue64, cuStreamWriteValue64_v2_ptsz)
TUTTI_SIMT_4(cuStreamWaitValue64, cuStreamWaitValue64_v2_ptsz)

}  // extern "C"
