// File: kernels/host/reduce_reference.cc: a data step straight from the definitions, one element at
// a time. It is here to be right, not to be fast.
#include <cstring>

#include "base/check.h"
#include "kernels/host/kernel_table.h"
#include "kernels/host/reduce.h"
#include "tutti/detail/reduce_op.h"

namespace tutti::kernels {
namespace {

template <class T>
T read(const std::byte* data, std::size_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void write(std::byte* data, std::size_t index, T value) {
  std::memcpy(data + index * sizeof(T), &value, sizeof(T));
}

template <DataType type, ReduceOp op>
class Reference {
 public:
  using Storage = typename Element<type>::Storage;
  using Accumulator = typename Element<type>::Accumulator;

  Reference(const Arithmetic& arithmetic, std::span<const Source> sources)
      : arithmetic_(arithmetic), sources_(sources) {}

  /// The canonical tree over element `index` of sources first .. first + n - 1.
  Accumulator tree(std::size_t first, std::size_t n, std::size_t index) const {
    if (n == 1) return leaf(sources_[first], index);
    const std::size_t left = left_part(n);
    return combine<op>(tree(first, left, index), tree(first + left, n - left, index));
  }

  void store(const Target& target, std::size_t index, Accumulator value) const {
    switch (target.form) {
      case Form::kPartial: return write(target.data, index, value);
      case Form::kContribution: return write(target.data, index, Element<type>::round(value));
      case Form::kResult:
        return write(target.data, index,
                     Element<type>::round(finish<op>(value, arithmetic_.rank_count)));
    }
  }

 private:
  Accumulator leaf(const Source& source, std::size_t index) const {
    const Accumulator value = source.form == Form::kPartial
                                  ? read<Accumulator>(source.data, index)
                                  : Element<type>::widen(read<Storage>(source.data, index));
    if (op != ReduceOp::kPreMulSum || !source.scale) return value;
    return multiply(scale_as<Accumulator>(arithmetic_.scale, arithmetic_.integer_scale), value);
  }

  const Arithmetic& arithmetic_;
  std::span<const Source> sources_;
};

void copy(const Source& source, std::span<const Target> targets, std::size_t bytes) {
  for (const Target& target : targets) {
    if (target.data != source.data) std::memcpy(target.data, source.data, bytes);
  }
}

}  // namespace

void reduce_reference(const Arithmetic& arithmetic, std::span<const Source> sources,
                      std::span<const Target> targets, std::size_t count) {
  if (count == 0) return;
  TUTTI_CHECK(!sources.empty() && is_supported(arithmetic.type, arithmetic.op));
  if (is_copy(arithmetic.op, sources, targets)) {
    return copy(sources[0], targets, count * element_bytes(arithmetic.type, sources[0].form));
  }
  dispatch(arithmetic.type, arithmetic.op, [&]<DataType type, ReduceOp op>() {
    const Reference<type, op> reference(arithmetic, sources);
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = reference.tree(0, sources.size(), i);
      for (const Target& target : targets) reference.store(target, i, value);
    }
  });
}

}  // namespace tutti::kernels
