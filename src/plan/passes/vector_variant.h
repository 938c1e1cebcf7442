// File: plan/passes/vector_variant.h: plans for calls whose blocks differ in size.
//
// Each rank knows only the sizes of the blocks that it gives or gets, but for all-gather and
// reduce-scatter, where all ranks know all sizes. Where in a peer's buffers a block lies it knows
// only of its own blocks there.
#pragma once
#include <cstdint>

#include "plan/plan.h"

namespace tutti::plan {

/// How a rank knows the size of a block of the message.
struct KnownAs {
  enum class What : std::uint8_t { kGives, kGets, kUnknown } what = What::kUnknown;
  std::uint32_t rank = 0;  // That it gives it to, or gets it from.
};
KnownAs known_as(const Shape& shape, std::uint32_t rank, std::uint32_t block);

/// Whether a plan, already verified, can be run with blocks of any sizes: its ranks touch no block
/// whose size or place they don't know, and slots and signals are not mixed (tiles of a block may
/// be missing where another block's are there; so slots of one block order nothing of another, and
/// how often a signal is sent must not depend on sizes).
bool runs_vector(const Plan& plan);

}  // namespace tutti::plan
