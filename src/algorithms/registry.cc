#include "algorithms/algorithm.h"

namespace tutti {

std::span<const Algorithm* const> algorithms() {
  static constexpr const Algorithm* kAll[] = {
#define TUTTI_ALGORITHM(name) &name,
#include "algorithms/algorithms.def"
#undef TUTTI_ALGORITHM
  };
  return kAll;
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->collective == collective && algorithm->name == name) return algorithm;
  }
  return nullptr;
}

namespace {

plan::RankPlan build_like(const plan::RankPlan* like, const Algorithm& algorithm,
                          const plan::Shape& shape, Rank me) {
  plan::Builder builder(shape, algorithm.pieces(shape), like);
  algorithm.build(builder, me);
  return std::move(builder).finish();
}

}  // namespace

plan::RankPlan build(const Algorithm& algorithm, const plan::Shape& shape, Rank me) {
  return build_like(nullptr, algorithm, shape, me);
}

plan::Plan build(const Algorithm& algorithm, const plan::Shape& shape) {
  plan::Plan plan{.name = std::string(algorithm.name),
                  .shape = shape,
                  .contract = algorithm.contract(shape),
                  .pieces = algorithm.pieces(shape),
                  .ranks = {}};
  plan.ranks.reserve(static_cast<std::size_t>(shape.rank_count));
  for (int rank = 0; rank < shape.rank_count; ++rank) {
    const plan::RankPlan* const before = plan.ranks.empty() ? nullptr : &plan.ranks.back();
    plan.ranks.push_back(build_like(before, algorithm, shape, Rank{rank}));
  }
  return plan;
}

}  // namespace tutti
