// File: algorithms/algorithm.h: an algorithm is a pure function from (shape, my rank) to a rank's
// plan.
//
// Ranks are virtual: the topology chooses which physical rank is virtual rank 0, 1, ..., so no
// algorithm looks at hardware. To add one: define `constinit const Algorithm my_all_reduce(...)` in
// the file of its family or in a new one, and add one line to algorithms.def. Every conformance
// suite then covers it. An algorithm that is not registered, or makes no claims, does not compile.
// An algorithm that is registered but not defined does not link.
#pragma once
#include <span>
#include <string_view>

#include "plan/builder.h"
#include "plan/plan.h"

namespace tutti {

/// The contract that the plan of a shape keeps, and the same in words, for docs/algorithms.md.
struct ContractRule {
  std::string_view words;
  Contract (*rule)(const plan::Shape&);
  Contract operator()(const plan::Shape& shape) const { return rule(shape); }
};

/// A formula such as "<= 2(n-1)/n M". It cannot be left out. tests/support/claims.h evaluates it;
/// docs/algorithms.md says what the letters mean.
struct Claim {
  consteval Claim(const char* claim) : text(claim) {}
  std::string_view text;
};

/// The costs of an algorithm's plans. tests/conformance/algorithms_test.cc holds every claim
/// against the plans, also for being too modest. The tables of docs/algorithms.md are made of them.
struct Claims {
  Claim rounds;         // Messages in the longest chain in which each needs the one before.
  Claim bytes;          // What the busiest rank sends.
  Claim peers;          // Ranks that the rank with most of them exchanges messages with.
  Claim scratch = "0";  // Chunks of scratch memory of a rank.
  Claim waits = "";     // `rounds`, where every step also needs the one before it in its lane.
  Claim between = "";   // What crosses between groups of any kind, in all.
};

// For algorithms without conditions.
inline bool always(const plan::Shape&) { return true; }
// NOLINTNEXTLINE(readability-identifier-naming): a rule, as the functions beside it.
inline constexpr ContractRule deterministic{
    "deterministic", [](const plan::Shape&) { return Contract::kDeterministic; }};
inline std::uint32_t one_piece(const plan::Shape&) { return 1; }
inline std::uint32_t piece_per_rank(const plan::Shape& shape) {
  return static_cast<std::uint32_t>(shape.rank_count);
}

/// What else is said of an algorithm.
struct AlgorithmTraits {
  bool (*applies)(const plan::Shape&) = always;
  ContractRule contract = deterministic;  // The verifier proves it.
  std::uint32_t (*pieces)(const plan::Shape&) = one_piece;
  bool even = false;        // All ranks send the same amount; claimed too.
  bool sends_more = false;  // In all more than has to travel, to buy something else with it.
  Claim good_for;
  std::string_view source = {};
};

struct [[gnu::warn_unused]] Algorithm : AlgorithmTraits {
  using Build = void(plan::Builder&, Rank me);
  consteval Algorithm(std::string_view its_name, Collective its_collective, Build* its_build,
                      const Claims& its_claims, const AlgorithmTraits& traits)
      : AlgorithmTraits(traits),
        name(its_name),
        collective(its_collective),
        build(its_build),
        claims(its_claims) {}
  std::string_view name;  // One word per idea; unique within a collective: "ring", "two_shot".
  Collective collective;
  Build* build;
  Claims claims;
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

}  // namespace tutti
