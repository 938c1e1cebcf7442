// File: kernels/host/copy.cc: one source to several targets, byte for byte.
#include "kernels/host/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/copy.cc"
#include <hwy/foreach_target.h>

#include "kernels/host/vector_reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace {

void copy_vectors(const Step& step) {
  // A reduction of one source; which one does not matter.
  const Reducer<PlainVector<std::uint8_t>, ReduceOp::kOr, false> reducer(step);
  reducer.run<1>();
}

void fill(KernelTable& table) {
  table.copy = copy_vectors;
  table.instruction_set = hwy::TargetName(HWY_TARGET);
}

}  // namespace
}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {
namespace {
HWY_EXPORT(fill);
}  // namespace

void add_copy(KernelTable& table) { HWY_DYNAMIC_DISPATCH(fill)(table); }

}  // namespace tutti::kernels
#endif
