// File: support/verdicts.h: plans as text, and what the verifier says of them.
#pragma once
#include <string>
#include <string_view>

#include "plan/text/text.h"
#include "plan/verify/verify.h"
#include "support/catch.h"

namespace tutti::test {

inline plan::Plan read(std::string_view text) {
  auto plan = plan::parse(text);
  INFO((plan ? "" : plan.error().what));
  REQUIRE(plan);
  return *plan;
}

// The error of a plan; "ok" if there is none.
inline std::string verdict(const plan::Plan& plan, plan::Limits limits = {}) {
  const Status status = plan::verify(plan, limits);
  if (!status) CHECK(status.error().code == Code::kInvalidPlan);
  return status ? "ok" : status.error().what;
}
inline std::string verdict(std::string_view text, plan::Limits limits = {}) {
  return verdict(read(text), limits);
}

// `text` with the first `from` replaced by `to`.
inline std::string with(std::string text, std::string_view from, std::string_view to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace tutti::test
