// File: plan/text/text.h: the text form of plans. The grammar is in docs/plan-format.md.
#pragma once
#include <string>
#include <string_view>

#include "plan/plan.h"
#include "tutti/result.h"

namespace tutti::plan {

/// The plan as text; parse(to_text(p)) == p.
std::string to_text(const Plan& plan);
/// One rank's part, for people.
std::string to_text(const Plan& plan, Rank rank);
/// Reads a plan. kInvalidPlan with line and column; sizes are bounded. Does not verify.
Result<Plan> parse(std::string_view text);

}  // namespace tutti::plan
