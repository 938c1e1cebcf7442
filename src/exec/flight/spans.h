// File: exec/flight/spans.h: the rows of a program's own spans (tutti/spans.h, tutti_spans.h).
//
// A row is a ring, written by one thread and read once, when its recorder ends: perhaps at the
// process's exit, while the thread still writes. A span is written when it ends, as a whole entry.
// The reader drops entries that the writer may have begun to overwrite meanwhile.
#pragma once
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/spans.h"

namespace tutti::exec::flight {

class Recorder;

struct SeenSpan {
  std::string name;
  std::int64_t begin_ns = 0, end_ns = 0;  // By monotonic_ns.
};
struct SpanRow {
  std::string name;
  std::vector<SeenSpan> spans;  // In the order in which they ended.
};

/// A row that is added to the trace with that recorder's calls; null if they are not traced. Any
/// thread, while the recorder lives. Throws if there is no memory.
std::shared_ptr<Spans::Buffer> add_row(const Recorder& recorder, std::string_view name);

}  // namespace tutti::exec::flight

namespace tutti {

struct Spans::Buffer {
  static constexpr std::size_t kEntries = std::size_t{1} << 15;
  using Word = std::atomic<std::uint64_t>;
  struct alignas(64) Entry {
    Word begin{0}, end{0};
    std::array<Word, 6> name{};
  };

  explicit Buffer(std::string_view name) : row(name), entries(kEntries) {}
  /// The thread of the row.
  void add(std::int64_t begin_ns, std::int64_t end_ns, std::span<const char, 48> name);
  /// Any thread.
  exec::flight::SpanRow read() const;

  const std::string row;
  Word count{0};  // Entries so far.
  std::vector<Entry> entries;
};

}  // namespace tutti
