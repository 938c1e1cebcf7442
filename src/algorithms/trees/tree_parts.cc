#include "algorithms/trees/tree_parts.h"

#include <vector>

#include "algorithms/ranks.h"

namespace tutti {
namespace {

// A rank at or below mine, and the one of my children that is above it (mine itself: me).
struct Below {
  int rank = 0;
  int through = 0;
};

// All ranks at or below `me`, the farthest from the root last.
std::vector<Below> ranks_below(const plan::Shape& shape, int me, Parent parent) {
  std::vector<Below> ranks;
  for (int distance = 0; distance < shape.rank_count; ++distance) {
    const int rank = wrap(shape.root + distance, shape.rank_count);
    int at = rank, through = me;
    while (at != me && at != shape.root) {
      through = at;
      at = parent(shape, at);
    }
    if (at == me) ranks.push_back({rank, through});
  }
  return ranks;
}

}  // namespace

void gather_along(plan::Builder& plan, Rank me, Parent parent) {
  const plan::Shape& shape = plan.shape();
  for (const auto& [rank, through] : ranks_below(shape, me.value, parent)) {
    plan.move(chunk_of(rank), rank == me.value ? plan.input(0) : plan.from(through, Form::kResult),
              me.value == shape.root ? plan.output(chunk_of(rank))
                                     : plan.to(parent(shape, me.value), Form::kResult));
  }
}

void scatter_along(plan::Builder& plan, Rank me, Parent parent) {
  const plan::Shape& shape = plan.shape();
  const auto ranks = ranks_below(shape, me.value, parent);
  for (auto below = ranks.rbegin(); below != ranks.rend(); ++below) {  // The longest ways first.
    const auto chunk = chunk_of(below->rank);
    plan.move(chunk,
              me.value == shape.root ? plan.input(chunk)
                                     : plan.from(parent(shape, me.value), Form::kResult),
              below->rank == me.value ? plan.output(0) : plan.to(below->through, Form::kResult));
  }
}

}  // namespace tutti
