// File: fake_drivers/nccl.cc: NCCL, as far as a baseline asks for it: ranks of one process, and an
// all-reduce that copies. TUTTI_STAND_IN_NCCL is its version, 23007 if not given.
#include <cstddef>
#include <cstdlib>

#include "fake_driver.h"

// The program's, which has the runtime in it.
extern "C" int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind,
                               void* stream);

namespace {
constexpr int kInvalidUsage = 5;
constexpr int kDefaultCopy = 4;
constexpr int kFloat32 = 7;
}  // namespace

// As in NCCL's header: a call through a pointer is checked for the type.
struct ncclUniqueId {
  char internal[128];
};
struct ncclComm;
struct CUstream_st;

FAKE_DRIVER int ncclGetVersion(int* version) {
  const char* const given = std::getenv("TUTTI_STAND_IN_NCCL");
  *version = given != nullptr ? std::atoi(given) : 23007;
  return 0;
}
FAKE_DRIVER int ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  return 0;
}
FAKE_DRIVER int ncclCommInitRank(ncclComm** comm, int, ncclUniqueId, int rank) {
  MAY_FAIL(kInvalidUsage);
  *comm = reinterpret_cast<ncclComm*>(static_cast<std::size_t>(rank) + 1);
  return 0;
}
FAKE_DRIVER int ncclCommDestroy(ncclComm*) { return 0; }
FAKE_DRIVER int ncclGroupStart() { return 0; }
FAKE_DRIVER int ncclGroupEnd() { return 0; }
FAKE_DRIVER int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int,
                              ncclComm*, CUstream_st* stream) {
  return cudaMemcpyAsync(to, from, count * (type == kFloat32 ? 4 : 2), kDefaultCopy, stream);
}
FAKE_DRIVER const char* ncclGetErrorString(int error) {
  return error == kInvalidUsage ? "invalid usage" : "another error";
}
