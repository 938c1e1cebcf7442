// File: algorithms/packed_trees.h: trees over all ranks that carry a share of the message each, so
// that together they use all links of a machine whose links are not alike.
//
// The trees are part of the shape, as groups and weights are: whoever knows the machine packs them
// (planner/machine_trees.h). A tree with weight w has w shares of the message and a lane of its
// own. Any trees do: what fits the links is fast, the rest is only slow.
//
// G. Wang et al.: Blink: fast and generic collectives for distributed ML. MLSys 2020. (The idea, on
// the GPUs of a DGX-1 that a job was given.)
#pragma once
#include "algorithms/along_tree.h"
#include "plan/builder.h"
#include "plan/plan.h"

namespace tutti {

/// There are trees, and if the collective has a root it is theirs.
bool has_trees(const plan::Shape& shape);
/// Deterministic if all trees add up in canonical order: stars do, and trees of whole blocks.
Contract contract_of_trees(const plan::Shape& shape);
/// A piece for each share.
std::uint32_t piece_per_share(const plan::Shape& shape);
TreePlace place_in(const plan::SpanningTree& tree, Rank me);

/// For each tree, in its lane: body(place, first, count), of the pieces of its shares, `parts`
/// each.
template <class Body>
void in_each_tree(plan::Builder& plan, Rank me, std::uint32_t parts, Body body) {
  std::uint32_t first = 0;
  for (std::size_t index = 0; index < plan.shape().trees.size(); ++index) {
    const plan::SpanningTree& tree = plan.shape().trees[index];
    const std::uint32_t count = static_cast<std::uint32_t>(tree.weight) * parts;
    plan.lane(index);
    body(place_in(tree, me), first, count);
    first += count;
  }
}

}  // namespace tutti
