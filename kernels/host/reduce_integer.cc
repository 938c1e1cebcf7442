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
template <DataType signed_type, DataType unsigned_type, ReduceOp op, bool kHot = false>
void add_shared(KernelTable& table) {
  using Vector = PlainVector<typename Element<unsigned_type>::Storage>;
  table.at(signed_type, op) = reduce_vectors<Vector, op, kHot>;
  table.at(unsigned_type, op) = reduce_vectors<Vector, op, kHot>;
}

template <DataType type, ReduceOp op>
void add_own(KernelTable& table) {
  table.at(type, op) = reduce_vectors<PlainVector<typename Element<type>::Storage>, op>;
}

template <DataType signed_type, DataType unsigned_type>
void add_width(KernelTable& table) {
  add_shared<signed_type, unsigned_type, ReduceOp::kSum, signed_type == DataType::kInt32>(table);
  add_shared<signed_type, unsigned_type, ReduceOp::kProd>(table);
  add_shared<signed_type, unsigned_type, ReduceOp::kPreMulSum>(table);
  add_shared<signed_type, unsigned_type, ReduceOp::kAnd>(table);
  add_shared<signed_type, unsigned_type, ReduceOp::kOr>(table);
  add_shared<signed_type, unsigned_type, ReduceOp::kXor>(table);
  add_own<signed_type, ReduceOp::kMax>(table);
  add_own<signed_type, ReduceOp::kMin>(table);
  add_own<signed_type, ReduceOp::kAvg>(table);
  add_own<unsigned_type, ReduceOp::kMax>(table);
  add_own<unsigned_type, ReduceOp::kMin>(table);
  add_own<unsigned_type, ReduceOp::kAvg>(table);
}

void fill(KernelTable& table) {
  add_width<DataType::kInt8, DataType::kUint8>(table);
  add_width<DataType::kInt32, DataType::kUint32>(table);
  add_width<DataType::kInt64, DataType::kUint64>(table);
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
