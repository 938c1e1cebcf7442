#include "device_api.h"

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "group.h"

using namespace tutti::nccl;  // NOLINT(google-build-using-namespace): the API has no namespace.
using tutti::Rank;

namespace {

ncclResult_t none(const char* function, ncclComm_t comm) {
  const Use use(comm);
  return bad_usage(use.get(), function, "kernels of the user's that communicate are not supported");
}

/// The length of the rows of consecutive ranks whose devices all reach each other's memory; 1 if
/// the rows differ in length.
int ranks_in_reach(const ncclComm& comm) {
  const tutti::DeviceCommunicator& ranks = *comm.device_communicator;
  const auto row_of = [&](int rank) {
    int end = rank + 1;
    while (end < comm.size && ranks.reaches(Rank{rank}, Rank{end})) ++end;
    return end - rank;
  };
  const int row = row_of(0);
  for (int first = 0; first < comm.size; first += row) {
    for (int rank = first; rank < first + row; ++rank) {
      const bool ends = rank < comm.size && (row_of(rank) == first + row - rank);
      if (!ends) return 1;
    }
  }
  return row;
}

/// Whether this rank can put data into the windows of all ranks, and signal them.
bool reaches_all(const ncclComm& comm) {
  for (int rank = 0; rank < comm.size; ++rank) {
    if (!comm.device_communicator->reaches(Rank{comm.rank}, Rank{rank})) return false;
  }
  return true;
}

ncclResult_t no_window(const char* function) {
  return bad_argument(nullptr, function, "the window or the place for the answer is NULL");
}

ncclResult_t address_at(const char* function, ncclWindow_t window, size_t offset, int peer,
                        void** out) {
  if (window == nullptr || out == nullptr) return no_window(function);
  *out = nullptr;
  ncclComm* const comm = window->comm.get();
  const Use use(comm);
  if (const ncclResult_t failed = check_made(use.get(), function)) return failed;
  if (peer < 0 || peer >= comm->size || offset >= window->bytes) {
    return bad_argument(comm, function,
                        "offset " + std::to_string(offset) + " of " +
                            std::to_string(window->bytes) + " bytes, rank " + std::to_string(peer) +
                            " of " + std::to_string(comm->size));
  }
  std::byte* const here = static_cast<std::byte*>(window->data) + offset;
  if (!window->open) {  // Like any other memory: only its own rank maps it.
    *out = peer == comm->rank ? here : nullptr;
    return ncclSuccess;
  }
  const auto found = comm->device_communicator->address_at(here, Rank{peer});
  if (!found) return finish(comm, function, found.error());
  *out = *found;
  return ncclSuccess;
}

}  // namespace

ncclTeam ncclTeamWorld(ncclComm_t comm) {
  const Use use(comm);
  if (check_made(use.get(), __func__) != ncclSuccess) return {0, 0, 1};
  return {comm->size, comm->rank, 1};
}

ncclTeam ncclTeamLsa(ncclComm_t comm) {
  const Use use(comm);
  if (check_made(use.get(), __func__) != ncclSuccess) return {1, 0, 1};
  const int row = ranks_in_reach(*comm);
  return {row, comm->rank % row, 1};
}

ncclTeam ncclTeamRail(ncclComm_t comm) {
  const ncclTeam world = ncclTeamWorld(comm), near = ncclTeamLsa(comm);
  return {world.nRanks / near.nRanks, world.rank / near.nRanks, near.nRanks};
}

// Needs hardware that is not supported here: a team has one rank.
ncclTeam ncclTeamCft(ncclComm_t, int) { return {1, 0, 1}; }
ncclTeam ncclTeamCftMultimem(ncclComm_t) { return {1, 0, 1}; }

int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam team, int rank) {
  const Use use(comm);
  return use ? comm->rank + (rank - team.rank) * team.stride : -1;
}

int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam team, int rank) {
  const Use use(comm);
  const int world = ncclTeamRankToWorld(comm, team, rank);
  return use && world >= 0 ? world - (comm->rank - ncclTeamLsa(comm).rank) : -1;
}

ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties* properties) {
  const Use use(comm);
  if (const ncclResult_t failed = check_made(use.get(), __func__)) return failed;
  if (properties == nullptr) return bad_argument(comm, __func__, "the place for them is NULL");
  constexpr size_t kLeast = offsetof(ncclCommProperties, commHash), kMost = 4096;
  if (properties->magic != 0xcafebeef || properties->size < kLeast || properties->size > kMost) {
    return bad_usage(comm, __func__,
                     "the properties were not initialised; start from "
                     "NCCL_COMM_PROPERTIES_INITIALIZER");
  }
  ncclCommProperties known = {};
  known.size = properties->size;
  known.magic = properties->magic;
  known.version = properties->version;
  known.rank = comm->rank;
  known.nRanks = comm->size;
  known.cudaDev = comm->device;
  known.nvmlDev = -1;  // Not looked up: no function here takes it.
  known.nLsaTeams = comm->size / ranks_in_reach(*comm);
  known.hostRmaSupport = reaches_all(*comm);
  known.commHash = tutti::hash_text(
      std::string(reinterpret_cast<const char*>(comm->id.bytes.data()), comm->id.bytes.size()) +
      comm->name);
  std::memcpy(properties, &known, std::min(known.size, sizeof known));
  return ncclSuccess;
}

ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void** out) {
  return address_at(__func__, window, offset, peer, out);
}

ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int peer, void** out) {
  if (window == nullptr || out == nullptr) return no_window(__func__);
  const Use use(window->comm.get());
  if (const ncclResult_t failed = check_made(use.get(), __func__)) return failed;
  const ncclTeam near = ncclTeamLsa(window->comm.get());
  if (peer < 0 || peer >= near.nRanks) {
    return bad_argument(nullptr, __func__,
                        "rank " + std::to_string(peer) + " of the " + std::to_string(near.nRanks) +
                            " that ncclTeamLsa has");
  }
  return address_at(__func__, window, offset, window->comm->rank - near.rank + peer, out);
}

ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t, void** out) {
  if (window == nullptr || out == nullptr) return no_window(__func__);
  *out = nullptr;
  return ncclSuccess;
}

ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset,
                                          ncclMultimemHandle multimem, void** out) {
  if (multimem.mcBasePtr == nullptr)
    return bad_argument(nullptr, __func__, "the handle's mcBasePtr is NULL");
  return ncclGetLsaMultimemDevicePointer(window, offset, out);
}

#define TUTTI_NONE(name, comm_or_null, ...) \
  ncclResult_t name(__VA_ARGS__) { return none(__func__, comm_or_null); }
TUTTI_NONE(ncclGetMultimemDeviceLeInfo, nullptr, ncclWindow_t, size_t, uint32_t*, size_t*)
TUTTI_NONE(ncclGetCftDeviceLeInfo, nullptr, ncclWindow_t, size_t, int, ncclTeam, uint32_t*, size_t*)
TUTTI_NONE(ncclGetPeerDeviceLeInfo, nullptr, ncclWindow_t, size_t, int, uint32_t*, size_t*)
TUTTI_NONE(ncclDevCommCreate, comm, ncclComm_t comm, const ncclDevCommRequirements*, ncclDevComm*)
TUTTI_NONE(ncclDevCommDestroy, comm, ncclComm_t comm, const ncclDevComm*)
TUTTI_NONE(ncclLsaBarrierCreateRequirement, nullptr, ncclTeam, int, ncclLsaBarrierHandle*,
           ncclDevResourceRequirements*)
TUTTI_NONE(ncclGinBarrierCreateRequirement, comm, ncclComm_t comm, ncclTeam, int,
           ncclGinBarrierHandle*, ncclDevResourceRequirements*)
TUTTI_NONE(ncclGinOutboxCreateRequirement, nullptr, int, int, ncclGinOutboxHandle*,
           ncclDevResourceRequirements*)
TUTTI_NONE(ncclGinInboxA2ACreateRequirement, nullptr, ncclTeam, int, int, ncclGinInboxA2AHandle*,
           ncclDevResourceRequirements*)
TUTTI_NONE(ncclLLA2ACreateRequirement, nullptr, int, int, ncclLLA2AHandle*,
           ncclDevResourceRequirements*)
#undef TUTTI_NONE

int ncclLLA2ACalcSlots(int, int) { return 0; }

// The settings of our log are read when a communicator is made.
void ncclResetDebugInit() {}
void ncclResetDebugInitInternal() {}
