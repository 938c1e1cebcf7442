// File: kernels/host/reduce_float8.cc: both float8 formats, reduced in float32.
#include "kernels/host/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/reduce_float8.cc"
#include <hwy/foreach_target.h>

#include "kernels/host/vector_reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace {

void fill_e4m3(KernelTable& table) {
  add_float_operations<DataType::kFloat8E4M3, Float8E4M3Vector, false>(table);
}
void fill_e5m2(KernelTable& table) {
  add_float_operations<DataType::kFloat8E5M2, Float8E5M2Vector, false>(table);
}

}  // namespace
}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {
namespace {
HWY_EXPORT(fill_e4m3);
HWY_EXPORT(fill_e5m2);
}  // namespace

template <>
void add_float<DataType::kFloat8E4M3>(KernelTable& table) {
  HWY_DYNAMIC_DISPATCH(fill_e4m3)(table);
}
template <>
void add_float<DataType::kFloat8E5M2>(KernelTable& table) {
  HWY_DYNAMIC_DISPATCH(fill_e5m2)(table);
}

}  // namespace tutti::kernels
#endif
