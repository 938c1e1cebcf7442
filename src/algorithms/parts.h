// File: algorithms/parts.h: steps that many algorithms have; and reduce-scatter and all-gather,
// written once for the algorithms that consist of them.
//
// Rank r owns chunk r: block r of a reduce-scatter or an all-gather (one piece per block), piece r
// of an all-reduce (one piece per rank). An all-reduce is a reduce part and a gather part.
//
// They are not fused where they meet: the owner first stores its chunk and then sends it. With one
// slot per channel a step that takes the last contribution and sends the result at once would wait
// for the peer's same step, which waits for this one.
#pragma once
#include <vector>

#include "algorithms/ranks.h"
#include "plan/builder.h"
#include "tutti/types.h"

namespace tutti {

/// Results of chunk `chunk` that a rank keeps and hands on: its output, and a slot to each of `to`.
std::vector<plan::Location> results(const plan::Builder& plan, std::uint32_t chunk,
                                    const std::vector<int>& to);
/// The step that takes a finished chunk from rank `from` (-1: from this rank's input), keeps it and
/// hands it on to the ranks `to`.
void pass_on(plan::Builder& plan, std::uint32_t chunk, int from, const std::vector<int>& to = {});
/// All ranks' contributions to a chunk, in rank order: this rank's input, and what the others send.
std::vector<plan::Location> contributions(const plan::Builder& plan, Rank me, std::uint32_t chunk);

/// Adds the steps that leave the sum of all ranks' chunk `me` in `result`, a chunk of the output.
using ReducePart = void(plan::Builder& plan, Rank me, plan::Location result);
/// Adds the steps that leave every rank's chunk in the output. `own` is where this rank's chunk is:
/// its place in the output, or the input of an all-gather.
using GatherPart = void(plan::Builder& plan, Rank me, plan::Location own);

/// In direct.cc, for two-shot too.
ReducePart direct_reduce_part;
GatherPart direct_gather_part;

/// Sends the ranks `to` a finished chunk from where it is, and copies it to its place in the output
/// if it is not there yet.
void share(plan::Builder& plan, std::uint32_t chunk, plan::Location own,
           const std::vector<int>& to = {});

// What builds the collectives that consist of parts.
template <ReducePart* reduce>
void reduce_scatter_of(plan::Builder& plan, Rank me) {
  reduce(plan, me, plan.output(0));
}
template <GatherPart* gather>
void all_gather_of(plan::Builder& plan, Rank me) {
  gather(plan, me, plan.input(0));
}
/// One piece per rank: the reduce part, then the gather part.
template <ReducePart* reduce, GatherPart* gather>
void all_reduce_of(plan::Builder& plan, Rank me) {
  const plan::Location own = plan.output(chunk_of(me.value));
  reduce(plan, me, own);
  gather(plan, me, own);
}
/// One piece per rank: the reduce part, then each rank but the root sends the root its result.
template <ReducePart* reduce>
void reduce_of(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  if (me.value != root) return reduce(plan, me, plan.to(root, Form::kResult));
  reduce(plan, me, plan.output(chunk_of(root)));
  for (const int peer : ranks_after(root, n)) pass_on(plan, chunk_of(peer), peer);
}

}  // namespace tutti
