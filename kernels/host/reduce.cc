// File: kernels/host/reduce.cc: from a step's type, operation and forms to the function that does
// it, and steps that only copy.
#include "kernels/host/reduce.h"

#include <cstring>

#include "base/check.h"
#include "kernels/host/kernel_table.h"

namespace tutti::kernels {
namespace {

KernelTable make_table() {
  KernelTable table;
  add_float32(table);
  add_float64(table);
  add_float16(table);
  add_bfloat16(table);
  add_float8(table);
  add_integers(table);
  add_copy(table);
  return table;
}

inline const KernelTable& table() {
  static const KernelTable kTable = make_table();
  return kTable;
}

// Out of line, so that small reductions don't pay for it.
[[gnu::noinline]] void copy(const Step& step) {
  const Source& source = step.sources[0];
  const std::size_t bytes = step.count * element_bytes(step.arithmetic.type, source.form);
  if (step.targets.size() == 1 && step.stores == Stores::kCached) {
    if (step.targets[0].data != source.data) std::memcpy(step.targets[0].data, source.data, bytes);
    return;
  }
  table().copy({step.arithmetic, step.sources, step.targets, bytes, step.stores});
}

}  // namespace

void reduce(const Arithmetic& arithmetic, std::span<const Source> sources,
            std::span<const Target> targets, std::size_t count, Stores stores) {
  if (count == 0) return;
  const Step step{arithmetic, sources, targets, count, stores};
  if (is_copy(arithmetic.op, sources, targets)) return copy(step);
  const Kernel kernel = table().at(arithmetic.type, arithmetic.op);
  TUTTI_CHECK(!sources.empty() && kernel != nullptr);
  kernel(step);
}

const char* instruction_set() { return table().instruction_set; }

}  // namespace tutti::kernels
