// An algorithm whose cost nobody claimed would never be held to one.
// expect: could not convert|no matching function|no default constructor|deleted
#include "algorithms/algorithm.h"

#ifdef TUTTI_MISUSE
#define ROUNDS
#else
#define ROUNDS .rounds = "1",
#endif

namespace tutti {
constinit const Algorithm two_shot_all_reduce{
    .name = "none",
    .collective = Collective::kAllReduce,
    .applies = always,
    .contract = deterministic,
    .pieces = one_piece,
    .build = nullptr,
    .claims = {ROUNDS.bytes = "M", .peers = "1", .scratch = "0", .good_for = "nothing"}};
}  // namespace tutti
