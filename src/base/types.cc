#include "tutti/types.h"

#include "tutti/result.h"

namespace tutti {

std::optional<DataType> parse_data_type(std::string_view text) {
#define TUTTI_DATA_TYPE(enumerator, name, bytes, value, ...) \
  if (text == name) return DataType::enumerator;
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
  return std::nullopt;
}

std::optional<ReduceOp> parse_reduce_op(std::string_view text) {
#define TUTTI_REDUCE_OP(enumerator, name, ...) \
  if (text == name) return ReduceOp::enumerator;
#include "tutti/reduce_ops.def"
#undef TUTTI_REDUCE_OP
  return std::nullopt;
}

std::optional<Collective> parse_collective(std::string_view text) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    if (text == to_string(static_cast<Collective>(i))) return static_cast<Collective>(i);
  }
  return std::nullopt;
}

std::string collective_names() {
  std::string names;
  for (int i = 0; i < kCollectiveCount; ++i)
    names += (i == 0 ? "" : ", ") + std::string(to_string(static_cast<Collective>(i)));
  return names;
}

std::string Error::to_string() const {
  std::string text = rank.value >= 0 ? "rank " + std::to_string(rank.value) + ": " : "";
  return text.append(tutti::to_string(code)).append(": ").append(what);
}

}  // namespace tutti
