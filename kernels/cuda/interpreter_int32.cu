// File: kernels/cuda/interpreter_int32.cu: the interpreter kernels for 32-bit integers.
#include "kernels/cuda/interpret.h"
#include "kernels/cuda/kernels.h"

namespace tutti::cuda {

TUTTI_INTERPRETER(kInt32)
TUTTI_INTERPRETER(kUint32)

}  // namespace tutti::cuda
