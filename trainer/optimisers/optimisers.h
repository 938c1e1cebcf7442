// File: trainer/optimisers/optimisers.h: what makes the optimisers of optimisers.def.
#pragma once
#include "trainer/optimisers/optimiser.h"

namespace tutti::trainer {

#define TUTTI_OPTIMISER(text, make, rate) \
  std::unique_ptr<Optimiser> make(const OptimiserOptions& options);
#include "trainer/optimisers/optimisers.def"
#undef TUTTI_OPTIMISER

}  // namespace tutti::trainer
