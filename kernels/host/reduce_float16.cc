// File: kernels/host/reduce_float16.cc: float16, reduced in float32.
#define TUTTI_FAMILY add_float_operations<DataType::kFloat16, Float16Vector>
#define TUTTI_FLOAT kFloat16
#include "kernels/host/family-inl.h"
