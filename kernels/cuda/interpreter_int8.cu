// File: kernels/cuda/interpreter_int8.cu: the interpreter kernels for 8-bit integers.
#include "kernels/cuda/interpret.h"
#include "kernels/cuda/kernels.h"

namespace tutti::cuda {

TUTTI_INTERPRETER(kInt8)
TUTTI_INTERPRETER(kUint8)

}  // namespace tutti::cuda
