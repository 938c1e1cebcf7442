// File: trainer/strategies/adasum.h: a sum of gradients that adapts to their angles.
//
//   adasum(a, b) = (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b
//
// Orthogonal gradients are added, parallel ones averaged. Unit by unit, as a balanced tree over a
// power of two of ranks, by recursive doubling: each rank exchanges its vector log2 N times.
//
// Maleki et al.: Scaling Distributed Training with Adaptive Summation, 2021.
#pragma once
#include <span>
#include <vector>

#include "trainer/traffic.h"

namespace tutti::trainer {

/// Combines the vectors of all ranks in `data`; `scratch` has as many values. `sizes`: the units
/// that lie in it one after another. kInvalidArgument unless ranks are a power of two.
Status adasum(Traffic& traffic, std::span<float> data, std::span<float> scratch,
              std::span<const std::size_t> sizes);

}  // namespace tutti::trainer
