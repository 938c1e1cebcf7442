#include "plan/passes/vector_variant.h"

#include <algorithm>

#include "plan/chunks.h"
#include "plan/passes/draft.h"

namespace tutti::plan {

KnownAs known_as(const Shape& shape, std::uint32_t rank, std::uint32_t block) {
  using What = KnownAs::What;
  const CollectiveTraits traits = traits_of(shape.collective);
  if (!traits.input_each && !traits.output_each) return {};
  const auto ranks = static_cast<std::uint32_t>(shape.rank_count);
  const auto root = static_cast<std::uint32_t>(shape.root);
  if (traits.input_each && traits.output_each) {
    if (block / ranks == rank) return {What::kGives, block % ranks};
    return block % ranks == rank ? KnownAs{What::kGets, block / ranks} : KnownAs{};
  }
  // A rank with a block for each rank in a buffer knows all of them; the others know their own.
  if (traits.input_each && has_input(shape, rank)) return {What::kGives, block};
  if (traits.output_each && has_output(shape, rank)) return {What::kGets, block};
  if (block != rank) return {};
  return traits.input_each ? KnownAs{What::kGets, root} : KnownAs{What::kGives, root};
}

namespace {

bool place_is_known(const Plan& plan, std::uint32_t rank, const Location& at) {
  if (!is_of_peer(at)) return true;
  const bool is_input = at.place == Place::kPeerInput;
  const std::uint32_t blocks = is_input ? input_blocks(plan.shape) : output_blocks(plan.shape);
  return blocks == 1 || at.chunk / plan.pieces == rank;
}

}  // namespace

bool runs_vector(const Plan& plan) {
  bool rings = false, signals = false;
  for (std::uint32_t rank = 0; rank < plan.ranks.size(); ++rank) {
    for (const Lane& lane : plan.ranks[rank].lanes) {
      for (const Step& step : lane.steps) {
        if (step.kind != StepKind::kMove) {
          signals = true;
          continue;
        }
        const KnownAs known = known_as(plan.shape, rank, step.chunk / plan.pieces);
        if (known.what == KnownAs::What::kUnknown) return false;
      }
      for (const Location& at : lane.locations) {
        rings = rings || is_ring(at);
        if (!place_is_known(plan, rank, at)) return false;
      }
    }
  }
  return !(rings && signals);
}

}  // namespace tutti::plan
