// File: kernels/host/reduce.cc: from a step's type, operation and forms to the function that does
// it, and steps that only copy.
#include "kernels/host/reduce.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/host/kernel_table.h"

namespace tutti::kernels {
namespace {

const KernelTable& best_table() {
  static const KernelTable kTable = make_table();
  return kTable;
}

/// The system's copy is the fastest there is: it need not fetch lines that it writes whole, from
/// the peer's cache where a slot is concerned. Measured, 16 KiB into a slot and an output: 0.9 us,
/// 1.24 by vectors that go to both.
void copy_blocks(const std::byte* from, std::span<const Target> targets, std::size_t bytes) {
  constexpr std::size_t kNear = std::size_t{32} << 10;  // Still so when the next target gets it.
  const std::size_t block = targets.size() == 1 ? bytes : kNear;
  for (std::size_t at = 0; at < bytes; at += block) {
    for (const Target& target : targets) {
      if (target.data != from)
        std::memcpy(target.data + at, from + at, std::min(block, bytes - at));
    }
  }
}

// Out of line, so that small reductions don't pay for it.
[[gnu::noinline]] void copy(const KernelTable& table, const Step& step) {
  const Source& source = step.sources[0];
  const std::size_t bytes = step.count * element_bytes(step.arithmetic.type, source.form);
  if (step.stores == Stores::kCached) return copy_blocks(source.data, step.targets, bytes);
  table.copy({step.arithmetic, step.sources, step.targets, bytes, step.stores});
}

inline void run(const KernelTable& table, const Step& step) {
  if (step.count == 0 || step.targets.empty()) return;
  if (is_copy(step.arithmetic.op, step.sources, step.targets)) return copy(table, step);
  const Kernel kernel = table.at(step.arithmetic.type, step.arithmetic.op);
  TUTTI_CHECK(!step.sources.empty() && kernel != nullptr);
  kernel(step);
}

}  // namespace

KernelTable make_table() {
  KernelTable table;
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value, kind, ...) \
  if constexpr (NumberKind::kind == NumberKind::kFloat) add_float<DataType::enumerator>(table);
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
  add_integers(table);
  add_copy(table);
  return table;
}

void reduce_by(const KernelTable& table, const Step& step) { run(table, step); }

void reduce(const Arithmetic& arithmetic, std::span<const Source> sources,
            std::span<const Target> targets, std::size_t count, Stores stores) {
  run(best_table(), {arithmetic, sources, targets, count, stores});
}

const char* instruction_set() { return best_table().instruction_set; }

}  // namespace tutti::kernels
