// File: kernels/host/reduce_float8e4m3.cc: float8e4m3, reduced in float32.
#define TUTTI_FAMILY add_float_operations<DataType::kFloat8E4M3, Float8E4M3Vector, false>
#define TUTTI_FLOAT kFloat8E4M3
#include "kernels/host/family-inl.h"
