// File: tutti/spans.h: what a program does between its calls, in the trace beside them.
//
//   tutti::Spans spans(comm);
//   for (const Layer& layer : layers) {
//     const auto span = spans.begin("forward", layer.name);  // Ends with its scope.
//     layer.forward();
//   }
//
// With Settings::trace (TUTTI_TRACE) the file that has the calls of all ranks then also has these
// spans, in a row of the rank's own. So a reader sees what the program did while a call was under
// way. Spans nest as their scopes do. Without a trace a span costs a comparison.
//
// A row keeps its latest 32,768 spans, of those that have ended when the communicator ends or the
// process exits. A span reads the clock twice and neither allocates nor locks; making a Spans does.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "tutti/communicator.h"
#include "tutti/export.h"

namespace tutti {

/// A row of spans. One thread at a time; each thread of a program may have a row of its own.
class TUTTI_API Spans {
 public:
  struct Buffer;
  class Span;

  /// Records nothing.
  Spans() = default;
  /// A row named "rank N, `row`". It may outlive the communicator, after which it records nothing
  /// that is seen.
  explicit Spans(const Communicator& comm, std::string_view row = "program");

  /// A span named "`what` `of`", of which the first 48 bytes count.
  [[nodiscard]] Span begin(std::string_view what, std::string_view of = {}) const;

 private:
  std::shared_ptr<Buffer> buffer_;  // Null: nothing is traced.
};

/// Lasts until its destructor. The Spans that began it outlives it.
class TUTTI_API Spans::Span {
 public:
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span() {
    if (buffer_ != nullptr) end();
  }

 private:
  friend class Spans;
  Span(Buffer* buffer, std::string_view what, std::string_view of) : buffer_(buffer) {
    if (buffer_ != nullptr) begin(what, of);
  }
  void begin(std::string_view what, std::string_view of);
  void end();

  Buffer* buffer_;
  std::int64_t begin_ns_;      // Set only if there is a buffer, as is the name.
  std::array<char, 48> name_;  // Ended by zeros, if it is shorter.
};

inline Spans::Span Spans::begin(std::string_view what, std::string_view of) const {
  return {buffer_.get(), what, of};
}

}  // namespace tutti
