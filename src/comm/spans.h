// File: comm/spans.h: what spans are made of, in C++ (tutti/spans.h) and in C (tutti_spans.h).
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "tutti/spans.h"

namespace tutti {

/// A row in the trace of that rank's calls; null: they are not traced. kSystem: there is no memory.
/// Any thread.
Result<std::shared_ptr<Spans::Buffer>> make_span_row(const Communicator& comm,
                                                     std::string_view row);

/// Writes "`what` `of`", as much as there is room for, and zeros behind it.
void write_span_name(std::string_view what, std::string_view of, std::span<char, 48> name);

/// Adds a span that ends now. The row's thread.
void add_span(Spans::Buffer& row, std::int64_t begin_ns, std::span<const char, 48> name);

}  // namespace tutti
