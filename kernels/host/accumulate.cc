#include "kernels/host/accumulate.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "kernels/host/reduce.h"

namespace tutti::kernels {
namespace {

/// Elements that are reduced in one go: the call's cost is spread, and both copies fit the L1.
constexpr std::size_t kMostAtOnce = 256;

/// made = op(seen, source), by the kernels that collectives use.
void combine(const Arithmetic& arithmetic, const void* seen, const std::byte* source, void* made,
             std::size_t count) {
  const Source sources[] = {{static_cast<const std::byte*>(seen), Form::kContribution},
                            {source, Form::kContribution}};
  const Target target{static_cast<std::byte*>(made), Form::kResult};
  reduce(arithmetic, sources, std::span(&target, 1), count);
}

/// An element is a Word, which is exchanged if nobody has changed it since it was read.
template <class Word>
void accumulate_words(const Arithmetic& arithmetic, const std::byte* source, std::byte* target,
                      std::size_t count) {
  static_assert(std::atomic_ref<Word>::is_always_lock_free);
  Word seen[kMostAtOnce], made[kMostAtOnce];
  auto* const words = reinterpret_cast<Word*>(target);
  for (std::size_t first = 0; first < count; first += kMostAtOnce) {
    const std::size_t n = std::min(kMostAtOnce, count - first);
    const std::byte* const from = source + first * sizeof(Word);
    // relaxed, here and below: a signal or a flush orders what was accumulated before it.
    for (std::size_t i = 0; i < n; ++i)
      seen[i] = std::atomic_ref(words[first + i]).load(std::memory_order_relaxed);
    combine(arithmetic, seen, from, made, n);
    for (std::size_t i = 0; i < n; ++i) {
      std::atomic_ref word(words[first + i]);
      while (!word.compare_exchange_strong(seen[i], made[i], std::memory_order_relaxed))
        combine(arithmetic, &seen[i], from + i * sizeof(Word), &made[i], 1);
    }
  }
}

}  // namespace

void accumulate(DataType type, ReduceOp op, const std::byte* source, std::byte* target,
                std::size_t count) {
  const Arithmetic arithmetic{.type = type, .op = op};
  switch (size_of(type)) {
    case 1: return accumulate_words<std::uint8_t>(arithmetic, source, target, count);
    case 2: return accumulate_words<std::uint16_t>(arithmetic, source, target, count);
    case 4: return accumulate_words<std::uint32_t>(arithmetic, source, target, count);
    default: return accumulate_words<std::uint64_t>(arithmetic, source, target, count);
  }
}

}  // namespace tutti::kernels
