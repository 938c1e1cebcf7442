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

plan::RankPlan build(const Algorithm& algorithm, const plan::Shape& shape, Rank me) {
  plan::Builder builder(shape, algorithm.pieces(shape));
  algorithm.build(builder, me);
  return std::move(builder).finish();
}

plan::Plan build(const Algorithm& algorithm, const plan::Shape& shape) {
  plan::Plan plan{.name = std::string(algorithm.name),
                  .shape = shape,
                  .contract = algorithm.contract(shape),
                  .pieces = algorithm.pieces(shape),
                  .ranks = {}};
  for (int rank = 0; rank < shape.rank_count; ++rank)
    plan.ranks.push_back(build(algorithm, shape, Rank{rank}));
  return plan;
}

}  // namespace tutti
