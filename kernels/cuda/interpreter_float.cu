// File: kernels/cuda/interpreter_float.cu: the interpreter kernels for float32 and float64.
#include "kernels/cuda/interpret.h"
#include "kernels/cuda/kernels.h"

namespace tutti::cuda {

TUTTI_INTERPRETER(kFloat32)
TUTTI_INTERPRETER(kFloat64)

}  // namespace tutti::cuda
