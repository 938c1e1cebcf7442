#include "exec/flight/spans.h"

#include <algorithm>
#include <cstring>

#include "exec/flight/reader.h"

namespace tutti {

void Spans::Buffer::add(std::int64_t begin_ns, std::int64_t end_ns,
                        std::span<const char, 48> name) {
  std::array<std::uint64_t, 6> words{};
  static_assert(sizeof(words) == name.size());
  std::memcpy(words.data(), name.data(), sizeof(words));
  // relaxed: only this thread writes it.
  const std::uint64_t number = count.load(std::memory_order_relaxed);
  Entry& entry = entries[number % kEntries];
  // release fence, then relaxed: a reader that sees any of these stores also sees that `count` has
  // come to `number`.
  std::atomic_thread_fence(std::memory_order_release);
  entry.begin.store(static_cast<std::uint64_t>(begin_ns), std::memory_order_relaxed);
  entry.end.store(static_cast<std::uint64_t>(end_ns), std::memory_order_relaxed);
  for (std::size_t i = 0; i < words.size(); ++i)
    entry.name[i].store(words[i], std::memory_order_relaxed);
  // release: a reader that sees the count sees the entry.
  count.store(number + 1, std::memory_order_release);
}

exec::flight::SpanRow Spans::Buffer::read() const {
  exec::flight::SpanRow seen{.name = exec::flight::printable(row), .spans = {}};
  // acquire: the entries that it counts are there.
  const std::uint64_t end = count.load(std::memory_order_acquire);
  const std::uint64_t begin = end < kEntries ? 0 : end - kEntries;
  for (std::uint64_t number = begin; number < end; ++number) {
    const Entry& entry = entries[number % kEntries];
    std::array<std::uint64_t, 6> words{};
    // relaxed, all of it: see the fence below.
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = entry.name[i].load(std::memory_order_relaxed);
    std::array<char, sizeof(words)> name{};
    std::memcpy(name.data(), words.data(), sizeof(words));
    seen.spans.push_back({exec::flight::printable({name.data(), strnlen(name.data(), name.size())}),
                          static_cast<std::int64_t>(entry.begin.load(std::memory_order_relaxed)),
                          static_cast<std::int64_t>(entry.end.load(std::memory_order_relaxed))});
  }
  // acquire fence: the count is at least that before the latest store that was read above.
  std::atomic_thread_fence(std::memory_order_acquire);
  const std::uint64_t written = count.load(std::memory_order_relaxed) + 1;
  const std::uint64_t lost = written < kEntries ? 0 : written - kEntries;
  if (lost > begin) {
    const auto gone =
        static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(lost - begin, end - begin));
    seen.spans.erase(seen.spans.begin(), seen.spans.begin() + gone);
  }
  return seen;
}

}  // namespace tutti
