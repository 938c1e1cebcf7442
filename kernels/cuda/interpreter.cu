// File: kernels/cuda/interpreter.cu: which kernel it is for a type and an operation.
#include "kernels/cuda/interpreter.h"

#include "kernels/cuda/kernels.h"

namespace tutti::cuda {

namespace {

/// Calls `of` with the type as a constant.
template <class Of>
const void* by_type(DataType type, Of of) {
  switch (type) {
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value, ...) \
  case DataType::enumerator:                                 \
    return of.template operator()<DataType::enumerator>();
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
  }
  return nullptr;
}

}  // namespace

const void* interpreter_kernel(DataType type, ReduceOp op) {
  return by_type(type, [op]<DataType constant>() { return interpreter_of<constant>(op); });
}
const void* one_shot_kernel(DataType type, ReduceOp op) {
  return by_type(type, [op]<DataType constant>() { return one_shot_of<constant>(op); });
}
const void* two_shot_kernel(DataType type, ReduceOp op) {
  return by_type(type, [op]<DataType constant>() { return two_shot_of<constant>(op); });
}

}  // namespace tutti::cuda
