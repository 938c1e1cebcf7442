// File: kernels/cuda/interpreter_int64.cu: the interpreter kernels for 64-bit integers.
#include "kernels/cuda/interpret.h"
#include "kernels/cuda/kernels.h"

namespace tutti::cuda {

TUTTI_INTERPRETER(kInt64)
TUTTI_INTERPRETER(kUint64)

}  // namespace tutti::cuda
