// File: plan/hash.h: 64 bits of a plan, by which ranks find out whether they would run the same
// one.
#pragma once
#include <cstdint>

#include "plan/plan.h"

namespace tutti::plan {

/// The same for equal plans, on every machine; of all that is in a plan, its name too. Linear in
/// the plan. Guards against mistakes, not against malice.
std::uint64_t hash_of(const Plan& plan);

}  // namespace tutti::plan
