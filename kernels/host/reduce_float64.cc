// File: kernels/host/reduce_float64.cc: float64.
#define TUTTI_FAMILY add_float_operations<DataType::kFloat64, PlainVector<double>>
#define TUTTI_FLOAT kFloat64
#include "kernels/host/family-inl.h"
