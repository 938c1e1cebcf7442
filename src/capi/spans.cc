// The C API over the C++ one: spans, which have no destructor here.
#include "comm/spans.h"

#include <memory>
#include <utility>

#include "base/clock.h"
#include "capi/handles.h"

struct tutti_spans {
  std::shared_ptr<tutti::Spans::Buffer> row;
};

using namespace tutti;         // NOLINT(google-build-using-namespace): the API has no namespace.
using namespace tutti::c_api;  // NOLINT(google-build-using-namespace)

extern "C" {

tutti_result_t tutti_spans_create(tutti_comm_t comm, const char* row, tutti_spans_t* spans) {
  if (spans != nullptr) *spans = nullptr;
  return guard(__func__, comm, [&, name = __func__](Communicator& communicator) -> Status {
    if (spans == nullptr) return invalid(name, "`spans`, where the handle goes, is NULL");
    TUTTI_TRY(auto made, make_span_row(communicator, row != nullptr ? row : "program"));
    if (made != nullptr) *spans = new tutti_spans{std::move(made)};
    return ok();
  });
}

tutti_span_t tutti_span_begin(tutti_spans_t spans, const char* what, const char* of) {
  tutti_span_t span;  // Without a row nothing else of it is read, so that it costs a store.
  span.row = nullptr;
  if (spans == nullptr) return span;
  span.row = spans->row.get();
  write_span_name(what != nullptr ? what : "", of != nullptr ? of : "", span.name);
  span.begin_ns = monotonic_ns();
  return span;
}

void tutti_span_end(tutti_span_t* span) {
  if (span == nullptr || span->row == nullptr) return;
  add_span(*static_cast<Spans::Buffer*>(std::exchange(span->row, nullptr)), span->begin_ns,
           span->name);
}

tutti_result_t tutti_spans_free(tutti_spans_t spans) {
  delete spans;
  return TUTTI_OK;
}

}  // extern "C"
