// File: algorithms/parts.h: reduce-scatter and all-gather, written once for the algorithms that
// consist of them.
//
// Rank r owns chunk r: block r of a reduce-scatter or an all-gather (one piece per block), piece r
// of an all-reduce (one piece per rank). An all-reduce is a reduce part and a gather part.
//
// They are not fused where they meet: the owner first stores its chunk and then sends it. With one
// slot per channel a step that takes the last contribution and sends the result at once would wait
// for the peer's same step, which waits for this one.
#pragma once
#include <vector>

#include "plan/builder.h"
#include "tutti/types.h"

namespace tutti {

/// Adds the steps that leave the sum of all ranks' chunk `me` in `result`, a chunk of the output.
using ReducePart = void(plan::Builder& plan, Rank me, plan::Location result);
/// Adds the steps that leave every rank's chunk in the output. `own` is where this rank's chunk is:
/// its place in the output, or the input of an all-gather.
using GatherPart = void(plan::Builder& plan, Rank me, plan::Location own);

/// In direct.cc, for two-shot too.
ReducePart direct_reduce_part;
GatherPart direct_gather_part;

/// Sends `own` to `targets`, and copies it to its place in the output if it is not there yet.
void share(plan::Builder& plan, Rank me, plan::Location own, std::vector<plan::Location> targets);

/// Adds the steps of an all-reduce, one piece per rank: the reduce part, then the gather part.
void reduce_and_gather(plan::Builder& plan, Rank me, ReducePart reduce, GatherPart gather);

/// Adds the steps of a reduce, one piece per rank: the reduce part, then each rank but the root
/// sends the root its result.
void reduce_and_collect(plan::Builder& plan, Rank me, ReducePart part);

}  // namespace tutti
