// File: algorithms/algorithm.h: an algorithm is a pure function from (shape, my rank) to a rank's
// plan.
//
// Ranks are virtual: the topology chooses which physical rank is virtual rank 0, 1, ..., so no
// algorithm looks at hardware. To add one: define `constinit const Algorithm my_all_reduce{...}` in
// the file of its family or in a new one, and add one line to algorithms.def. Every conformance
// suite then covers it. Defining without registering does not compile, registering without defining
// does not link.
#pragma once
#include <span>
#include <string_view>

#include "plan/builder.h"
#include "plan/plan.h"

namespace tutti {

struct Algorithm {
  std::string_view name;  // One word per idea; unique within a collective: "ring", "two_shot".
  Collective collective;
  bool (*applies)(const plan::Shape&);
  /// The contract that the plan of this shape keeps. The verifier proves it.
  Contract (*contract)(const plan::Shape&);
  std::uint32_t (*pieces)(const plan::Shape&);
  void (*build)(plan::Builder&, Rank me);
};

// Declares every registered algorithm, so that a definition whose name is not registered does not
// compile.
#define TUTTI_ALGORITHM(name) extern const Algorithm name;
#include "algorithms/algorithms.def"
#undef TUTTI_ALGORITHM

std::span<const Algorithm* const> algorithms();
/// The registered algorithm of that name, or null.
const Algorithm* find_algorithm(Collective collective, std::string_view name);

/// All ranks' plans.
plan::Plan build(const Algorithm& algorithm, const plan::Shape& shape);
plan::RankPlan build(const Algorithm& algorithm, const plan::Shape& shape, Rank me);

// For algorithms without conditions.
inline bool always(const plan::Shape&) { return true; }
inline Contract deterministic(const plan::Shape&) { return Contract::kDeterministic; }
inline Contract relaxed(const plan::Shape&) { return Contract::kRelaxed; }
inline std::uint32_t one_piece(const plan::Shape&) { return 1; }
inline std::uint32_t piece_per_rank(const plan::Shape& shape) {
  return static_cast<std::uint32_t>(shape.rank_count);
}

}  // namespace tutti
