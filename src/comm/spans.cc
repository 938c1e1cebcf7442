#include "comm/spans.h"

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "comm/state.h"
#include "exec/flight/spans.h"

namespace tutti {

Result<std::shared_ptr<Spans::Buffer>> make_span_row(const Communicator& comm,
                                                     std::string_view row) {
  using Row = Result<std::shared_ptr<Spans::Buffer>>;
  if (comm.rank_count() == 0) return Row(nullptr);  // It was moved from.
  return walled("spans", [&]() -> Row {
    return exec::flight::add_row(Insides::of(comm).executor->flight(), row);
  });
}

void write_span_name(std::string_view what, std::string_view of, std::span<char, 48> name) {
  std::size_t at = 0;
  for (const std::string_view text : {what, of.empty() ? of : std::string_view(" "), of}) {
    const std::size_t size = std::min(text.size(), name.size() - at);
    std::copy_n(text.data(), size, name.data() + at);
    at += size;
  }
  std::fill(name.begin() + static_cast<std::ptrdiff_t>(at), name.end(), '\0');
}

void add_span(Spans::Buffer& row, std::int64_t begin_ns, std::span<const char, 48> name) {
  row.add(begin_ns, monotonic_ns(), name);
}

Spans::Spans(const Communicator& comm, std::string_view row) {
  auto made = make_span_row(comm, row);
  if (made)
    buffer_ = *std::move(made);
  else
    log::warn(log::Part::kCalls, "{}; no spans are traced", made.error().what);
}

void Spans::Span::begin(std::string_view what, std::string_view of) {
  write_span_name(what, of, name_);
  begin_ns_ = monotonic_ns();
}

void Spans::Span::end() { add_span(*buffer_, begin_ns_, name_); }

}  // namespace tutti
