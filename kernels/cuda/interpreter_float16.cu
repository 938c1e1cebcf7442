// File: kernels/cuda/interpreter_float16.cu: the interpreter kernels for the 16-bit floats.
#include "kernels/cuda/interpret.h"
#include "kernels/cuda/kernels.h"

namespace tutti::cuda {

TUTTI_INTERPRETER(kFloat16)
TUTTI_INTERPRETER(kBfloat16)

}  // namespace tutti::cuda
