#include "cuda/driver/kernels.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <set>
#include <string>

#include "cuda/driver/memory.h"
#include "kernels/cuda/fused.h"
#include "kernels/cuda/interpreter.h"
#include "kernels/cuda/messages.h"
#include "kernels/cuda/reach.h"

namespace tutti::exec {
namespace {

/// Null among them: what there is not.
std::set<const void*> all_kernels() {
  constexpr DataType kTypes[] = {
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value, ...) DataType::enumerator,
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
  };
  constexpr ReduceOp kOps[] = {
#define TUTTI_REDUCE_OP(enumerator, ...) ReduceOp::enumerator,
#include "tutti/reduce_ops.def"
#undef TUTTI_REDUCE_OP
  };
  std::set<const void*> kernels = {cuda::messages_kernel(), cuda::reach_kernel()};
  for (const WireFormat wire :
       {WireFormat::kFloat16, WireFormat::kBfloat16, WireFormat::kInt8, WireFormat::kFloat8}) {
    for (const ReduceOp op : kOps) kernels.insert(cuda::wire_kernel(wire, op));
  }
  for (const DataType type : kTypes) {
    kernels.insert({cuda::rms_norm_kernel(type), cuda::sgd_kernel(type)});
    for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather}) {
      for (const bool any_order : {false, true})
        kernels.insert(cuda::multimem_kernel(collective, type, any_order));
    }
    for (const ReduceOp op : kOps) {
      kernels.insert({cuda::interpreter_kernel(type, op), cuda::one_shot_kernel(type, op),
                      cuda::two_shot_kernel(type, op)});
    }
  }
  return kernels;
}

/// Whether the library has neither machine code for a device nor PTX that its driver compiles.
bool lacks_code(cudaError_t error) {
  constexpr cudaError_t kErrors[] = {
      cudaErrorNoKernelImageForDevice, cudaErrorInvalidDeviceFunction,
      cudaErrorInvalidKernelImage,     cudaErrorInvalidPtx,
      cudaErrorUnsupportedPtxVersion,  cudaErrorJitCompilerNotFound,
      cudaErrorJitCompilationDisabled};
  return std::find(std::begin(kErrors), std::end(kErrors), error) != std::end(kErrors);
}

Status loaded_as(cudaError_t error, int device) {
  const std::string number = std::to_string(device);
  if (!lacks_code(error)) return cuda_status(error, "loading the kernels on device " + number);
  int major = 0, minor = 0;
  const std::string what = "asking device " + number + " for its capability";
  TUTTI_RETURN_IF_ERROR(
      cuda_status(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), what));
  TUTTI_RETURN_IF_ERROR(
      cuda_status(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), what));
  const std::string capability = std::to_string(major) + std::to_string(minor);
  Status status = cuda_status(error, "device " + number + " is an sm_" + capability +
                                         ", which this libtutti has no kernels for");
  status.error().code = Code::kUnsupported;
  status.error().what += "; build it with -DTUTTI_CUDA_ARCHITECTURES=" + capability;
  if (major >= 9) status.error().what += ", or take a newer driver";  // Which may compile its PTX.
  return status;
}

}  // namespace

Status load_kernels(int device) {
  static std::mutex mutex;
  static std::set<int> loaded;  // Devices of this process. Guarded by mutex.
  const std::lock_guard lock(mutex);
  if (loaded.contains(device)) return ok();
  const OnDevice on(device);
  for (const void* const kernel : all_kernels()) {
    cudaFuncAttributes attributes;
    if (kernel == nullptr) continue;
    // Loads it: of what this tells, the most threads of a block need a loaded function (cuda.h,
    // cuFuncGetAttribute).
    TUTTI_RETURN_IF_ERROR(loaded_as(cudaFuncGetAttributes(&attributes, kernel), device));
  }
  loaded.insert(device);
  return ok();
}

}  // namespace tutti::exec
