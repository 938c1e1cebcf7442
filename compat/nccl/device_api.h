// File: compat/nccl/device_api.h: the host functions of NCCL's device API, of which programs'
// linkers want to know. Teams are answered; what makes something for kernels is not supported.
#pragma once
#include "nccl.h"

struct ncclDevComm;
struct ncclDevCommRequirements;
struct ncclDevResourceRequirements;
struct ncclLsaBarrierHandle;
struct ncclGinBarrierHandle;
struct ncclLLA2AHandle;

/// The ranks rank0, rank0 + stride, ... of which the caller is number `rank`.
struct ncclTeam {
  int nRanks, rank, stride;
};

extern "C" {
ncclTeam ncclTeamWorld(ncclComm_t comm);
ncclTeam ncclTeamLsa(ncclComm_t comm);
ncclTeam ncclTeamRail(ncclComm_t comm);
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam team, int rank);
int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam team, int rank);
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements* wanted,
                               ncclDevComm* made);
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const ncclDevComm* made);
ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam team, int barriers,
                                             ncclLsaBarrierHandle* handle,
                                             ncclDevResourceRequirements* wanted);
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam team, int barriers,
                                             ncclGinBarrierHandle* handle,
                                             ncclDevResourceRequirements* wanted);
ncclResult_t ncclLLA2ACreateRequirement(int blocks, int slots, ncclLLA2AHandle* handle,
                                        ncclDevResourceRequirements* wanted);
int ncclLLA2ACalcSlots(int elements, int element_bytes);
void ncclResetDebugInitInternal();
}
