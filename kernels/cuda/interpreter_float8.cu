// File: kernels/cuda/interpreter_float8.cu: the interpreter kernels for the 8-bit floats.
#include "kernels/cuda/interpret.h"
#include "kernels/cuda/kernels.h"

namespace tutti::cuda {

TUTTI_INTERPRETER(kFloat8E4M3)
TUTTI_INTERPRETER(kFloat8E5M2)

}  // namespace tutti::cuda
