// File: compat/nccl/device_api.h: the host functions of NCCL's device API, which programs link
// against, as nccl_device.h of 2.28 to 2.32 declares them. Functions for teams, properties and
// addresses of peers' windows work; functions that make something for kernels are not supported.
#pragma once
#include "nccl.h"

struct ncclDevComm;
struct ncclDevCommRequirements;
struct ncclDevResourceRequirements;
struct ncclLsaBarrierHandle;
struct ncclGinBarrierHandle;
struct ncclGinInboxA2AHandle;
struct ncclGinOutboxHandle;
struct ncclLLA2AHandle;

/// The ranks rank0, rank0 + stride, ... of which the caller is number `rank`.
struct ncclTeam {
  int nRanks, rank, stride;
};

/// An address of multicast memory.
struct ncclMultimemHandle {
  void* mcBasePtr;
};

/// The features of a communicator. `size` says how much of it there is, as in ncclConfig_t.
struct ncclCommProperties {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int rank;
  int nRanks;
  int cudaDev;
  int nvmlDev;
  bool deviceApiSupport;
  bool multimemSupport;
  int ginType;
  int nLsaTeams;
  bool hostRmaSupport;
  int railedGinType;  // 2.29 and 2.30 end here.
  uint64_t commHash;
  int ginMinStride;
  int ginConnectionType;
  bool ginSupport[64];
  size_t devCommRuntimeVersionSize;
  bool cftSupport;
  bool cftMulticastSupport;
  bool cftCountedSupport;
};

extern "C" {
ncclTeam ncclTeamWorld(ncclComm_t comm);
ncclTeam ncclTeamLsa(ncclComm_t comm);
ncclTeam ncclTeamRail(ncclComm_t comm);
ncclTeam ncclTeamCft(ncclComm_t comm, int mode);
ncclTeam ncclTeamCftMultimem(ncclComm_t comm);
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam team, int rank);
int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam team, int rank);
ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties* properties);
/// The address at which this rank's kernels find `offset` in a peer's window. `peer` is a rank of
/// the communicator, or of ncclTeamLsa. NULL: this rank does not reach that peer's memory.
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void** out);
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int peer, void** out);
/// Gives NULL: no window has multicast memory here.
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void** out);
ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset,
                                          ncclMultimemHandle multimem, void** out);
ncclResult_t ncclGetMultimemDeviceLeInfo(ncclWindow_t window, size_t offset, uint32_t* id,
                                         size_t* at);
ncclResult_t ncclGetCftDeviceLeInfo(ncclWindow_t window, size_t offset, int peer, ncclTeam team,
                                    uint32_t* id, size_t* at);
ncclResult_t ncclGetPeerDeviceLeInfo(ncclWindow_t window, size_t offset, int peer, uint32_t* id,
                                     size_t* at);
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements* wanted,
                               ncclDevComm* made);
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const ncclDevComm* made);
ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam team, int barriers,
                                             ncclLsaBarrierHandle* handle,
                                             ncclDevResourceRequirements* wanted);
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam team, int barriers,
                                             ncclGinBarrierHandle* handle,
                                             ncclDevResourceRequirements* wanted);
ncclResult_t ncclGinOutboxCreateRequirement(int blocks, int size_log2, ncclGinOutboxHandle* handle,
                                            ncclDevResourceRequirements* wanted);
ncclResult_t ncclGinInboxA2ACreateRequirement(ncclTeam peers, int blocks, int size_log2,
                                              ncclGinInboxA2AHandle* handle,
                                              ncclDevResourceRequirements* wanted);
ncclResult_t ncclLLA2ACreateRequirement(int blocks, int slots, ncclLLA2AHandle* handle,
                                        ncclDevResourceRequirements* wanted);
int ncclLLA2ACalcSlots(int elements, int element_bytes);
void ncclResetDebugInitInternal();
}
