// What scripts/sass-lint reads besides kernels/cuda/*.cu: a kernel of each template, as all of them
// take minutes. Types and operations differ in arithmetic alone; bfloat16 has partial sums wider
// than its data, and products of float64 take many registers.
#include "kernels/cuda/all.h"

namespace tutti::cuda {

template __global__ void interpret<DataType::kFloat32, ReduceOp::kSum, WireFormat::kPlain>(
    const __grid_constant__ Arguments);
template __global__ void interpret<DataType::kFloat32, ReduceOp::kSum, WireFormat::kInt8>(
    const __grid_constant__ Arguments);
template __global__ void one_shot<DataType::kBfloat16, ReduceOp::kSum>(
    const __grid_constant__ OneShotArguments);
template __global__ void one_shot<DataType::kFloat64, ReduceOp::kProd>(
    const __grid_constant__ OneShotArguments);
template __global__ void two_shot<DataType::kFloat32, ReduceOp::kSum>(
    const __grid_constant__ Arguments);

}  // namespace tutti::cuda
