// File: plan/names.h: the words for forms, contracts and locations, the same in the text form and
// in errors.
#pragma once
#include <string>
#include <string_view>

#include "plan/plan.h"

namespace tutti::plan {

constexpr std::string_view to_string(Form form) {
  switch (form) {
    case Form::kContribution: return "contribution";
    case Form::kPartial: return "partial";
    case Form::kResult: return "result";
  }
  return "unknown form";
}

constexpr std::string_view to_string(Contract contract) {
  return contract == Contract::kDeterministic ? "deterministic" : "relaxed";
}

/// One location as the text form writes it, "input[3]", "from(1):partial".
std::string to_text(const Location& location, bool is_source);

}  // namespace tutti::plan
