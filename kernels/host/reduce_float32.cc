// File: kernels/host/reduce_float32.cc: float32.
#define TUTTI_FAMILY add_float_operations<DataType::kFloat32, PlainVector<float>>
#define TUTTI_FLOAT kFloat32
#include "kernels/host/family-inl.h"
