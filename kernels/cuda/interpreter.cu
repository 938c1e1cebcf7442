// File: kernels/cuda/interpreter.cu: which kernel it is for a type and an operation.
#include "kernels/cuda/interpreter.h"

#include "kernels/cuda/kernels.h"

namespace tutti::cuda {

const void* interpreter_kernel(DataType type, ReduceOp op) {
  switch (type) {
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value) \
  case DataType::enumerator:                            \
    return interpreter_of<DataType::enumerator>(op);
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
  }
  return nullptr;
}

const void* one_shot_kernel(DataType type, ReduceOp op) {
  switch (type) {
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value) \
  case DataType::enumerator:                            \
    return one_shot_of<DataType::enumerator>(op);
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
  }
  return nullptr;
}

}  // namespace tutti::cuda
