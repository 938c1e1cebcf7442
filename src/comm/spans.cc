#include "tutti/spans.h"

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "comm/state.h"
#include "exec/flight/spans.h"

namespace tutti {

Spans::Spans(const Communicator& comm, std::string_view row) {
  if (comm.rank_count() == 0) return;  // It was moved from.
  const Status status = walled("spans", [&] {
    buffer_ = exec::flight::add_row(Insides::of(comm).executor->flight(), row);
    return ok();
  });
  if (!status) log::warn(log::Part::kCalls, "{}; no spans are traced", status.error().what);
}

void Spans::Span::begin(std::string_view what, std::string_view of) {
  name_.fill('\0');
  std::size_t at = 0;
  for (const std::string_view text : {what, of.empty() ? of : std::string_view(" "), of}) {
    const std::size_t size = std::min(text.size(), name_.size() - at);
    std::copy_n(text.data(), size, name_.data() + at);
    at += size;
  }
  begin_ns_ = monotonic_ns();
}

void Spans::Span::end() { buffer_->add(begin_ns_, monotonic_ns(), name_); }

}  // namespace tutti
