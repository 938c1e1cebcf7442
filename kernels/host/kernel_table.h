// File: kernels/host/kernel_table.h: one function per type and operation, filled in once for the
// instruction set of this machine. Private to kernels/host.
#pragma once
#include <array>
#include <cstddef>
#include <span>

#include "kernels/host/reduce.h"

namespace tutti::kernels {

/// The arguments of `reduce`, in one place: passing them on one by one costs more than a small
/// reduction itself.
struct Step {
  const Arithmetic& arithmetic;
  std::span<const Source> sources;
  std::span<const Target> targets;
  std::size_t count;
  Stores stores;
};

/// `reduce` for one type and operation. Wants a count above 0, at least one source, and no step
/// that is_copy.
using Kernel = void (*)(const Step& step);

class KernelTable {
 public:
  Kernel& at(DataType type, ReduceOp op) {
    return kernels_[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)];
  }
  Kernel at(DataType type, ReduceOp op) const {
    return kernels_[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)];
  }
  /// Bytes from the first source to all targets; operations and forms are ignored.
  Kernel copy = nullptr;
  /// What all of them were compiled for.
  const char* instruction_set = nullptr;

 private:
  static constexpr std::size_t kTypes = 0
#define TUTTI_DATA_TYPE(...) +1
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
      ;
  static constexpr std::size_t kOps = 0
#define TUTTI_REDUCE_OP(...) +1
#include "tutti/reduce_ops.def"
#undef TUTTI_REDUCE_OP
      ;
  std::array<std::array<Kernel, kOps>, kTypes> kernels_{};
};

// One function for each family of types (family-inl.h). The integers are one family, made from
// data_types.def. A float without its file does not link.
template <DataType type>
void add_float(KernelTable& table);
#define TUTTI_DATA_TYPE(enumerator, ...) \
  template <>                            \
  void add_float<DataType::enumerator>(KernelTable & table);
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
void add_integers(KernelTable& table);
void add_copy(KernelTable& table);

/// The functions for the best instruction set that Highway says is supported. Tests narrow its
/// choice; `reduce` uses one table for the whole process.
KernelTable make_table();

/// `reduce` by the functions of `table`.
void reduce_by(const KernelTable& table, const Step& step);

/// A step that moves bits and computes nothing.
constexpr bool is_copy(ReduceOp op, std::span<const Source> sources,
                       std::span<const Target> targets) {
  if (sources.size() != 1 || (op == ReduceOp::kPreMulSum && sources[0].scale)) return false;
  for (const Target& target : targets) {
    if (target.form != sources[0].form) return false;
  }
  return true;
}

}  // namespace tutti::kernels
