// File: base/form.h: what a value on its way through a reduction is.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tutti/types.h"

namespace tutti {

/// A collective that reduces turns contributions into partials into results; one that only moves
/// data has results from the start. The form fixes how elements lie in memory and what a step does
/// to them:
///   contribution   one rank's input, in the message's type
///   partial        a reduction of some contributions, in the accumulator type, not rounded
///   result         the finished value, rounded once (and divided, for avg), in the message's type
enum class Form : std::uint8_t { kContribution, kPartial, kResult };

/// Bytes of one element of `type` in this form.
constexpr std::size_t element_bytes(DataType type, Form form) {
  return size_of(form == Form::kPartial ? accumulator_of(type) : type);
}

}  // namespace tutti
