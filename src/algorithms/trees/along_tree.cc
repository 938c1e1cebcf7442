#include "algorithms/trees/along_tree.h"

#include <algorithm>
#include <span>

#include "algorithms/ranks.h"

namespace tutti {
namespace {

using plan::Location;

std::vector<Location> results(const plan::Builder& plan, const TreePlace& place,
                              std::uint32_t piece) {
  std::vector<Location> targets{plan.output(piece)};
  for (const auto& child : place.children) targets.push_back(plan.to(child.rank, Form::kResult));
  return targets;
}

// The step that adds up a piece from this rank and all below it.
void add_up(plan::Builder& plan, Rank me, const TreePlace& place, std::uint32_t piece,
            std::span<const Location> targets) {
  std::vector<TreePlace::Child> ranks = place.children;
  ranks.push_back({me.value, true});
  std::sort(ranks.begin(), ranks.end(),
            [](const auto& one, const auto& other) { return one.rank < other.rank; });
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
  const Location source =
      place.parent < 0 ? plan.input(piece) : plan.from(place.parent, Form::kResult);
  plan.move(piece, std::span(&source, 1), results(plan, place, piece));
}

void reduce_along(plan::Builder& plan, Rank me, const TreePlace& place, std::uint32_t piece) {
  const Location target = place.parent < 0 ? plan.output(piece) : to_parent(plan, place);
  add_up(plan, me, place, piece, std::span(&target, 1));
}

void all_reduce_along(plan::Builder& plan, Rank me, const TreePlace& place, std::uint32_t first,
                      std::uint32_t count) {
  const std::uint32_t ahead = std::min(chunk_of(2 * place.depth), count);
  for (std::uint32_t turn = 0; turn < count + ahead; ++turn) {
    if (turn >= ahead && place.parent >= 0) {
      const std::uint32_t piece = first + turn - ahead;
      const Location down = plan.from(place.parent, Form::kResult);
      plan.move(piece, std::span(&down, 1), results(plan, place, piece));
    }
    if (turn >= count) continue;
    const std::uint32_t piece = first + turn;
    const auto targets = place.parent < 0 ? results(plan, place, piece)
                                          : std::vector<Location>{to_parent(plan, place)};
    add_up(plan, me, place, piece, targets);
  }
}

}  // namespace tutti
