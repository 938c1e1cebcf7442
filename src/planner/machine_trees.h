// File: planner/machine_trees.h: spanning trees that use all links of a machine together.
//
// Like all that a machine says about the shape of a plan (machine_shape.h) they are read off the
// routes of a cost model: a hop of a tree is what one rank sends to another, over the links by
// which the plan will send it, be they its own or shared with others.
//
// For P trees of equal weight: one after the other takes the cheapest tree at prices that grow with
// what a link carries, again and again, until none moves. What fewer trees reach nearly as well is
// preferred, so P is tried from 1 on. Prices are powers: sums and products alone, so that all ranks
// find the same bits. Every set of prices also proves what no trees can beat: the sum of all
// links' rates, priced, over the price of the cheapest tree (the dual of the packing's linear
// programme); so the search ends as soon as it can't gain much.
//
// The cheapest tree: Y. J. Chu, T. H. Liu 1965; J. Edmonds 1967. The prices: N. Garg, J. Koenemann:
// Faster and simpler algorithms for multicommodity flow and other fractional packing problems.
// SICOMP 37 (2007), and Blink (packed_trees.cc), which reduces what these find by an integer
// programme.
#pragma once
#include <vector>

#include "plan/estimate/estimate.h"
#include "plan/plan.h"

namespace tutti::planner {

/// Ranks up to which trees are packed. Time: some ms for 8, about a second for this many.
inline constexpr int kMostPacked = 32;

/// Trees for packed_trees (algorithms/trees/packed_trees.cc), from the root or to it, or both ways
/// for an all-reduce; each as flat as its links allow. None for other collectives, more ranks,
/// ranks that nothing joins, or where a direct exchange does as well.
std::vector<plan::SpanningTree> trees_for(const plan::Shape& shape, const plan::CostModel& model);

/// Whether plans along the trees of the shape add up in canonical order.
bool trees_keep_order(const plan::Shape& shape);

}  // namespace tutti::planner
