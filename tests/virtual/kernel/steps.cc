// A point of schedule before each data step. Else a rank would run all steps that are ready at
// once, and no rank could see another in the middle of a plan. The linker puts the function here in
// the place of the library's (CMakeLists.txt: --wrap).
#include "kernels/host/reduce.h"
#include "virtual/kernel/faults.h"
#include "virtual/kernel/scheduler.h"

#define TUTTI_REDUCE                                                          \
  "_ZN5tutti7kernels6reduceERKNS0_10ArithmeticESt4spanIKNS0_"                 \
  "6SourceELm18446744073709551615EES4_IKNS0_6TargetELm18446744073709551615EE" \
  "mNS0_6StoresE"

namespace tutti::virt {

void library_reduce(const kernels::Arithmetic& arithmetic, std::span<const kernels::Source> sources,
                    std::span<const kernels::Target> targets, std::size_t count,
                    kernels::Stores stores) asm("__real_" TUTTI_REDUCE);
void reduce_at_point(const kernels::Arithmetic& arithmetic,
                     std::span<const kernels::Source> sources,
                     std::span<const kernels::Target> targets, std::size_t count,
                     kernels::Stores stores) asm("__wrap_" TUTTI_REDUCE);

void reduce_at_point(const kernels::Arithmetic& arithmetic,
                     std::span<const kernels::Source> sources,
                     std::span<const kernels::Target> targets, std::size_t count,
                     kernels::Stores stores) {
  if (active()) {
    point("step");
    faults::at_step();
  }
  library_reduce(arithmetic, sources, targets, count, stores);
}

}  // namespace tutti::virt
