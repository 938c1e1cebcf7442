// File: kernels/host/family-inl.h: the kernels of a family of types, for each instruction set.
//
// A family is a translation unit of its own, so that they compile side by side. Its file defines
// TUTTI_FAMILY, one of the functions below, which puts kernels into a table, and TUTTI_ADD, the
// function of kernel_table.h that does so for the best instruction set, or TUTTI_FLOAT, the type
// for which that is add_float; then it includes this.
#include "kernels/host/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/family-inl.h"
#include <hwy/foreach_target.h>

#include "kernels/host/vector_reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

/// All operations of a floating-point type; sums are what training asks for.
template <DataType type, class Vector, bool kHot = true>
void add_float_operations(KernelTable& table) {
  table.at(type, ReduceOp::kSum) = reduce_vectors<Vector, ReduceOp::kSum, kHot>;
  table.at(type, ReduceOp::kAvg) = reduce_vectors<Vector, ReduceOp::kAvg, kHot>;
  table.at(type, ReduceOp::kProd) = reduce_vectors<Vector, ReduceOp::kProd>;
  table.at(type, ReduceOp::kMax) = reduce_vectors<Vector, ReduceOp::kMax>;
  table.at(type, ReduceOp::kMin) = reduce_vectors<Vector, ReduceOp::kMin>;
  table.at(type, ReduceOp::kPreMulSum) = reduce_vectors<Vector, ReduceOp::kPreMulSum>;
}

/// All operations of an integer type. Two types of a width share what does not depend on the sign.
template <DataType type>
void add_integer_operations(KernelTable& table) {
  if constexpr (is_integer(type)) {
    using Own = typename Element<type>::Storage;
    using Bits = PlainVector<std::make_unsigned_t<Own>>;
    table.at(type, ReduceOp::kSum) = reduce_vectors<Bits, ReduceOp::kSum, size_of(type) == 4>;
    table.at(type, ReduceOp::kProd) = reduce_vectors<Bits, ReduceOp::kProd>;
    table.at(type, ReduceOp::kPreMulSum) = reduce_vectors<Bits, ReduceOp::kPreMulSum>;
    table.at(type, ReduceOp::kAnd) = reduce_vectors<Bits, ReduceOp::kAnd>;
    table.at(type, ReduceOp::kOr) = reduce_vectors<Bits, ReduceOp::kOr>;
    table.at(type, ReduceOp::kXor) = reduce_vectors<Bits, ReduceOp::kXor>;
    table.at(type, ReduceOp::kMax) = reduce_vectors<PlainVector<Own>, ReduceOp::kMax>;
    table.at(type, ReduceOp::kMin) = reduce_vectors<PlainVector<Own>, ReduceOp::kMin>;
    table.at(type, ReduceOp::kAvg) = reduce_vectors<PlainVector<Own>, ReduceOp::kAvg>;
  }
}
template <class Table>
void add_all_integers(Table& table) {
#define TUTTI_DATA_TYPE(enumerator, ...) add_integer_operations<DataType::enumerator>(table);
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
}

/// A reduction of one source; which one does not matter.
template <class Table>
void add_copy_of_bytes(Table& table) {
  table.copy = reduce_with<Reducer<PlainVector<std::uint8_t>, ReduceOp::kOr, false>, 1>;
  table.instruction_set = hwy::TargetName(HWY_TARGET);
}

namespace {
void fill(KernelTable& table) { TUTTI_FAMILY(table); }
}  // namespace

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {
namespace {
HWY_EXPORT(fill);
}  // namespace

#if defined(TUTTI_FLOAT)
template <>
void add_float<DataType::TUTTI_FLOAT>(KernelTable& table) {
#else
void TUTTI_ADD(KernelTable& table) {
#endif
  HWY_DYNAMIC_DISPATCH(fill)(table);
}

}  // namespace tutti::kernels
#endif
