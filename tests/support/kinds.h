// File: support/kinds.h: every type and every operation that is registered.
#pragma once
#include <vector>

#include "tutti/types.h"

namespace tutti::test {

inline std::vector<DataType> all_types() {
  return {
#define TUTTI_DATA_TYPE(enumerator, ...) DataType::enumerator,
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
  };
}

template <class Random>
DataType any_type(Random& random) {
  const std::vector<DataType> all = all_types();
  return all[random() % all.size()];
}

inline std::vector<ReduceOp> all_ops() {
  return {
#define TUTTI_REDUCE_OP(enumerator, ...) ReduceOp::enumerator,
#include "tutti/reduce_ops.def"
#undef TUTTI_REDUCE_OP
  };
}

}  // namespace tutti::test
