// File: plan/verify/verify.h: proves a plan by running it on symbols instead of bytes.
//
// What is proved, for any message size, transport and timing:
//   result      every output chunk is the canonical tree of all contributions (deterministic
//               contract), or contains each contribution exactly once (relaxed); gathers and
//               broadcasts get each block from its owner. Nothing undefined is read; forms are what
//               they claim to be.
//   deadlock    with bounded slots, also with one slot per channel; nothing is left in a channel.
//   races       no two unordered accesses touch the same memory, one of them writing: within a
//               call, between ranks (mapped peers), between lanes, with input and output in place,
//               and between one call and the next (scratch and slots are used again).
//   resources   scratch, peers, chunks and slots within what the plan and `Limits` say.
#pragma once
#include "plan/plan.h"
#include "plan/structure.h"
#include "tutti/result.h"

namespace tutti::plan {

/// Ok, or kInvalidPlan with rank, lane, step and reason (in one line). Pure; any thread. Time is
/// linear in the plan, times the rank count where a plan waits for signals; a relaxed plan takes
/// rank_count / 8 bytes for each different sum in it. Mapped buffers: of at most 4096 ranks.
Status verify(const Plan& plan, const Limits& limits = {});

}  // namespace tutti::plan
