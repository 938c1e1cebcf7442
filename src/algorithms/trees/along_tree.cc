#include "algorithms/trees/along_tree.h"

#include <algorithm>

#include "algorithms/parts.h"

namespace tutti {
namespace {

using plan::Location;

// The step that adds up a piece from this rank and all below it.
void add_up(plan::Builder& plan, Rank me, const TreePlace& place, std::uint32_t piece,
            const plan::Locations& targets) {
  std::vector<TreePlace::Child> ranks = place.children;
  ranks.push_back({me.value, true});
  std::ranges::sort(ranks, {}, &TreePlace::Child::rank);
  std::vector<Location> sources;
  for (const auto& [rank, leaf] : ranks) {
    const Form form = leaf ? Form::kContribution : Form::kPartial;
    sources.push_back(rank == me.value ? plan.input(piece) : plan.from(rank, form));
  }
  plan.move(piece, sources, targets);
}

Location to_parent(const plan::Builder& plan, const TreePlace& place) {
  return plan.to(place.parent, place.children.empty() ? Form::kContribution : Form::kPartial);
}

}  // namespace

void broadcast_along(plan::Builder& plan, const TreePlace& place, std::uint32_t piece) {
  pass_on(plan, piece, place.parent, place.below());
}

void reduce_along(plan::Builder& plan, Rank me, const TreePlace& place, std::uint32_t piece) {
  add_up(plan, me, place, piece, place.parent < 0 ? plan.output(piece) : to_parent(plan, place));
}

void all_reduce_along(plan::Builder& plan, Rank me, const TreePlace& place, std::uint32_t first,
                      std::uint32_t count) {
  const std::uint32_t ahead = std::min(chunk_of(2 * place.depth), count);
  for (std::uint32_t turn = 0; turn < count + ahead; ++turn) {
    if (turn >= ahead && place.parent >= 0) broadcast_along(plan, place, first + turn - ahead);
    if (turn >= count) continue;
    const std::uint32_t piece = first + turn;
    add_up(plan, me, place, piece,
           place.parent < 0 ? results(plan, piece, place.below())
                            : std::vector<Location>{to_parent(plan, place)});
  }
}

}  // namespace tutti
