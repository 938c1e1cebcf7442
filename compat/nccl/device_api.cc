#include "device_api.h"

#include "comm.h"

using namespace tutti::nccl;  // NOLINT(google-build-using-namespace): the API has no namespace.

namespace {

constexpr const char* kNone = "kernels of the user's that communicate are not supported";

bool is_comm(ncclComm_t comm) { return comm != nullptr && comm->magic == ncclComm::kMagic; }

}  // namespace

ncclTeam ncclTeamWorld(ncclComm_t comm) {
  return is_comm(comm) ? ncclTeam{comm->size, comm->rank, 1} : ncclTeam{0, 0, 1};
}

// No rank can address another's memory from a kernel of the user's: every rank is alone.
ncclTeam ncclTeamLsa(ncclComm_t) { return {1, 0, 1}; }

ncclTeam ncclTeamRail(ncclComm_t comm) { return ncclTeamWorld(comm); }

int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam team, int rank) {
  return is_comm(comm) ? comm->rank + (rank - team.rank) * team.stride : -1;
}

int ncclTeamRankToLsa(ncclComm_t, ncclTeam team, int rank) { return rank - team.rank; }

ncclResult_t ncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements*, ncclDevComm*) {
  return bad_usage(is_comm(comm) ? comm : nullptr, __func__, kNone);
}

ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const ncclDevComm*) {
  return bad_usage(is_comm(comm) ? comm : nullptr, __func__, kNone);
}

ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam, int, ncclLsaBarrierHandle*,
                                             ncclDevResourceRequirements*) {
  return bad_usage(nullptr, __func__, kNone);
}

ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam, int, ncclGinBarrierHandle*,
                                             ncclDevResourceRequirements*) {
  return bad_usage(is_comm(comm) ? comm : nullptr, __func__, kNone);
}

ncclResult_t ncclLLA2ACreateRequirement(int, int, ncclLLA2AHandle*, ncclDevResourceRequirements*) {
  return bad_usage(nullptr, __func__, kNone);
}

int ncclLLA2ACalcSlots(int, int) { return 0; }

// The settings of our log are read when a communicator is made.
void ncclResetDebugInit() {}
void ncclResetDebugInitInternal() {}
