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

const KernelTable& table() {
  static const KernelTable kTable = make_table();
  return kTable;
}

// Rare enough for one pass to be too much to ask: no plan asks an average for contributions.
bool is_odd(const Arithmetic& arithmetic, std::span<const Target> targets) {
  if (arithmetic.op != ReduceOp::kAvg) return false;
  for (const Target& target : targets) {
    if (target.form == Form::kContribution) return true;
  }
  return false;
}

void copy(const Arithmetic& arithmetic, std::span<const Source> sources,
          std::span<const Target> targets, std::size_t count, Stores stores) {
  const std::size_t bytes = count * element_bytes(arithmetic.type, sources[0].form);
  if (targets.size() == 1 && stores == Stores::kCached) {
    if (targets[0].data != sources[0].data) std::memcpy(targets[0].data, sources[0].data, bytes);
    return;
  }
  table().copy(arithmetic, sources, targets, bytes, stores);
}

}  // namespace

void reduce(const Arithmetic& arithmetic, std::span<const Source> sources,
            std::span<const Target> targets, std::size_t count, Stores stores) {
  if (count == 0 || targets.empty()) return;
  TUTTI_CHECK(!sources.empty());
  if (is_copy(arithmetic.op, sources, targets)) {
    return copy(arithmetic, sources, targets, count, stores);
  }
  if (is_odd(arithmetic, targets)) return reduce_reference(arithmetic, sources, targets, count);
  const Kernel kernel = table().at(arithmetic.type, arithmetic.op);
  TUTTI_CHECK(kernel != nullptr);
  kernel(arithmetic, sources, targets, count, stores);
}

const char* instruction_set() { return table().instruction_set; }

}  // namespace tutti::kernels
