// An algorithm whose cost nobody claimed would never be held to one.
// expect: could not convert|no matching function|no default constructor|deleted
#include "algorithms/algorithm.h"

#ifdef TUTTI_MISUSE
#define ROUNDS
#else
#define ROUNDS .rounds = "1",
#endif

namespace tutti {
constinit const Algorithm two_shot_all_reduce("none", Collective::kAllReduce, nullptr,
                                              {ROUNDS.bytes = "M", .peers = "1", .scratch = "0"},
                                              {.good_for = "nothing"});
}  // namespace tutti
