// File: kernels/cuda/wire.cu: the interpreter of calls with a wire, by format and operation.
#include "kernels/cuda/interpret.h"

namespace tutti::cuda {
namespace {

template <WireFormat format>
const void* wire_kernel_of(ReduceOp op) {
  constexpr DataType kType = DataType::kFloat32;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kPreMulSum: return TUTTI_KERNEL_HANDLE(interpret<kType, ReduceOp::kSum, format>);
    case ReduceOp::kProd: return TUTTI_KERNEL_HANDLE(interpret<kType, ReduceOp::kProd, format>);
    case ReduceOp::kMax: return TUTTI_KERNEL_HANDLE(interpret<kType, ReduceOp::kMax, format>);
    case ReduceOp::kMin: return TUTTI_KERNEL_HANDLE(interpret<kType, ReduceOp::kMin, format>);
    case ReduceOp::kAnd:
    case ReduceOp::kOr:
    case ReduceOp::kXor: break;
  }
  return nullptr;
}

}  // namespace

const void* wire_kernel(WireFormat format, ReduceOp op) {
  switch (format) {
    case WireFormat::kPlain: return interpreter_kernel(DataType::kFloat32, op);
    case WireFormat::kFloat16: return wire_kernel_of<WireFormat::kFloat16>(op);
    case WireFormat::kBfloat16: return wire_kernel_of<WireFormat::kBfloat16>(op);
    case WireFormat::kInt8: return wire_kernel_of<WireFormat::kInt8>(op);
    case WireFormat::kFloat8: return wire_kernel_of<WireFormat::kFloat8>(op);
  }
  return nullptr;
}

}  // namespace tutti::cuda
