// File: kernels/host/reduce_integer.cc: the integers.
#include "kernels/host/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/reduce_integer.cc"
#include <hwy/foreach_target.h>

#include "kernels/host/vector_reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace {

// Two types of a width share what does not depend on the sign.
template <DataType type, ReduceOp op, bool kHot = false>
void add_shared(KernelTable& table) {
  using Bits = std::make_unsigned_t<typename Element<type>::Storage>;
  table.at(type, op) = reduce_vectors<PlainVector<Bits>, op, kHot>;
}

template <DataType type, ReduceOp op>
void add_own(KernelTable& table) {
  table.at(type, op) = reduce_vectors<PlainVector<typename Element<type>::Storage>, op>;
}

template <DataType type>
void add_type(KernelTable& table) {
  if constexpr (is_integer(type)) {
    add_shared<type, ReduceOp::kSum, size_of(type) == 4>(table);
    add_shared<type, ReduceOp::kProd>(table);
    add_shared<type, ReduceOp::kPreMulSum>(table);
    add_shared<type, ReduceOp::kAnd>(table);
    add_shared<type, ReduceOp::kOr>(table);
    add_shared<type, ReduceOp::kXor>(table);
    add_own<type, ReduceOp::kMax>(table);
    add_own<type, ReduceOp::kMin>(table);
    add_own<type, ReduceOp::kAvg>(table);
  }
}

void fill(KernelTable& table) {
#define TUTTI_DATA_TYPE(enumerator, ...) add_type<DataType::enumerator>(table);
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
}

}  // namespace
}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {
namespace {
HWY_EXPORT(fill);
}  // namespace

void add_integers(KernelTable& table) { HWY_DYNAMIC_DISPATCH(fill)(table); }

}  // namespace tutti::kernels
#endif
