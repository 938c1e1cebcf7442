// File: stand_ins/nccl.cc: NCCL, as far as a baseline asks for it: ranks of one process, and an
// all-reduce that copies. TUTTI_STAND_IN_NCCL is its version, 23007 if not given.
#include <cstddef>
#include <cstdlib>

#include "stand_in.h"

// The program's, which has the runtime in it.
extern "C" int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind,
                               void* stream);

namespace {
constexpr int kInvalidUsage = 5;
constexpr int kDefaultCopy = 4;
constexpr int kFloat32 = 7;
struct Id {
  char internal[128];
};
}  // namespace

STAND_IN int ncclGetVersion(int* version) {
  const char* const given = std::getenv("TUTTI_STAND_IN_NCCL");
  *version = given != nullptr ? std::atoi(given) : 23007;
  return 0;
}
STAND_IN int ncclGetUniqueId(Id* id) {
  *id = {};
  return 0;
}
STAND_IN int ncclCommInitRank(void** comm, int, Id, int rank) {
  MAY_FAIL(kInvalidUsage);
  *comm = reinterpret_cast<void*>(static_cast<std::size_t>(rank) + 1);
  return 0;
}
STAND_IN int ncclCommDestroy(void*) { return 0; }
STAND_IN int ncclGroupStart() { return 0; }
STAND_IN int ncclGroupEnd() { return 0; }
STAND_IN int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int, void*,
                           void* stream) {
  return cudaMemcpyAsync(to, from, count * (type == kFloat32 ? 4 : 2), kDefaultCopy, stream);
}
STAND_IN const char* ncclGetErrorString(int error) {
  return error == kInvalidUsage ? "invalid usage" : "another error";
}
