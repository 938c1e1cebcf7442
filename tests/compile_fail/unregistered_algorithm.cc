// An algorithm that nobody registered would never be tested nor chosen.
// expect: unused-const-variable|defined but not used|unused variable
#include "algorithms/algorithm.h"

#ifdef TUTTI_MISUSE
#define NAME nobody_registered_this
#else
#define NAME two_shot_all_reduce
#endif

namespace tutti {
constinit const Algorithm NAME("none", Collective::kAllReduce, nullptr,
                               {.rounds = "1", .bytes = "M", .peers = "1", .scratch = "0"},
                               {.good_for = "nothing"});
}  // namespace tutti
