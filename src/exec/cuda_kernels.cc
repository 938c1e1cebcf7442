#include "exec/cuda_kernels.h"

#include <mutex>
#include <set>
#include <string>

#include "exec/cuda_memory.h"
#include "kernels/cuda/fused.h"
#include "kernels/cuda/interpreter.h"
#include "kernels/cuda/messages.h"

namespace tutti::exec {
namespace {

/// Null among them: what there is not.
std::set<const void*> all_kernels() {
  constexpr DataType kTypes[] = {
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value) DataType::enumerator,
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
  };
  constexpr ReduceOp kOps[] = {
#define TUTTI_REDUCE_OP(enumerator, ...) ReduceOp::enumerator,
#include "tutti/reduce_ops.def"
#undef TUTTI_REDUCE_OP
  };
  std::set<const void*> kernels = {cuda::messages_kernel(), cuda::multimem_broadcast_kernel()};
  for (const DataType type : kTypes) {
    kernels.insert({cuda::multimem_all_reduce_kernel(type), cuda::rms_norm_kernel(type),
                    cuda::sgd_kernel(type)});
    for (const ReduceOp op : kOps) {
      kernels.insert({cuda::interpreter_kernel(type, op), cuda::one_shot_kernel(type, op),
                      cuda::two_shot_kernel(type, op)});
    }
  }
  return kernels;
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
    TUTTI_CHECK_OK(cuda_status(cudaFuncGetAttributes(&attributes, kernel),
                               "loading the kernels on device " + std::to_string(device)));
  }
  loaded.insert(device);
  return ok();
}

}  // namespace tutti::exec
