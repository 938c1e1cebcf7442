// File: kernels/host/reduce_bfloat16.cc: bfloat16, reduced in float32.
#define TUTTI_FAMILY add_float_operations<DataType::kBfloat16, Bfloat16Vector>
#define TUTTI_FLOAT kBfloat16
#include "kernels/host/family-inl.h"
