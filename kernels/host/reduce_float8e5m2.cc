// File: kernels/host/reduce_float8e5m2.cc: float8e5m2, reduced in float32.
#define TUTTI_FAMILY add_float_operations<DataType::kFloat8E5M2, Float8E5M2Vector, false>
#define TUTTI_FLOAT kFloat8E5M2
#include "kernels/host/family-inl.h"
