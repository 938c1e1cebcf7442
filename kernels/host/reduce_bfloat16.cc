// File: kernels/host/reduce_bfloat16.cc: bfloat16, reduced in float32.
#include "kernels/host/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/reduce_bfloat16.cc"
#include <hwy/foreach_target.h>

#include "kernels/host/vector_reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace {

void fill(KernelTable& table) { add_float_operations<DataType::kBfloat16, Bfloat16Vector>(table); }

}  // namespace
}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {
namespace {
HWY_EXPORT(fill);
}  // namespace

template <>
void add_float<DataType::kBfloat16>(KernelTable& table) {
  HWY_DYNAMIC_DISPATCH(fill)(table);
}

}  // namespace tutti::kernels
#endif
