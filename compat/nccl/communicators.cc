// Making communicators, asking them, and giving them back.
#include <cstring>

#include "group.h"
#include "tutti/rendezvous.h"

namespace tutti::nccl {
namespace {

constexpr int kMostRanks = 1 << 20;

/// The ncclUniqueId is ours, byte for byte.
UniqueId to_id(const ncclUniqueId& id) {
  static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
  UniqueId made;
  std::memcpy(made.bytes.data(), &id, sizeof id);
  return made;
}

ncclResult_t current_device(const char* function, int* device) {
  if (const auto said = cudaGetDevice(device)) {
    finish(nullptr, Error{Code::kSystem,
                          std::string(function) + ": no CUDA device: " + cudaGetErrorString(said)});
    return ncclUnhandledCudaError;
  }
  return ncclSuccess;
}

ncclResult_t init(const char* function, ncclComm_t* comm, int size, const ncclUniqueId& id,
                  int rank, const ncclConfig_t* config) {
  Group& group = Group::current();
  if (comm == nullptr) return group.fail(bad_argument(nullptr, function, "comm is NULL"));
  *comm = nullptr;
  if (size < 1 || size > kMostRanks || rank < 0 || rank >= size) {
    return group.fail(bad_argument(nullptr, function,
                                   "rank " + std::to_string(rank) + " of " + std::to_string(size) +
                                       " ranks; it is from 0 to ranks - 1"));
  }
  auto wanted = read_blocking(config, true);
  if (!wanted) return group.fail(finish(nullptr, wanted.error()));
  auto made = std::make_unique<ncclComm>();
  if (const ncclResult_t failed = current_device(function, &made->device))
    return group.fail(failed);
  made->rank = rank;
  made->size = size;
  made->blocking = *wanted;
  *comm = made.release();
  return group.make(*comm, nullptr, [id = to_id(id)](ncclComm& self) -> Status {
    TUTTI_TRY(const Settings settings, Settings::from_environment());
    TUTTI_TRY(auto found,
              DeviceCommunicator::create(id, Rank{self.rank}, self.size, self.device, settings));
    self.device_communicator.emplace(std::move(found));
    return ok();
  });
}

/// A communicator of some of a communicator's ranks; `color` < 0: without this one.
ncclResult_t split(const char* function, ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                   const ncclConfig_t* config) {
  Group& group = Group::current();
  if (const ncclResult_t failed = check_ready(comm, function)) return group.fail(failed);
  if (newcomm == nullptr) return group.fail(bad_argument(comm, function, "newcomm is NULL"));
  *newcomm = nullptr;
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
    return group.fail(bad_argument(
        comm, function,
        "color " + std::to_string(color) + "; it is 0 or more, or NCCL_SPLIT_NOCOLOR"));
  }
  auto wanted = read_blocking(config, comm->blocking);
  if (!wanted) return group.fail(finish(comm, wanted.error()));
  auto made = std::make_unique<ncclComm>();
  made->device = comm->device;
  made->blocking = *wanted;
  // A rank of no colour takes part, and gets no handle.
  const bool joins = color != NCCL_SPLIT_NOCOLOR;
  made->blocking = made->blocking || !joins;
  ncclComm* handle = made.get();
  if (joins) *newcomm = made.release();
  return group.make(handle, std::move(made), [comm, color, key](ncclComm& self) -> Status {
    auto found = comm->device_communicator->split(color, key);
    // To take part without a colour is no mistake here.
    const bool none = color < 0 && !found && found.error().code == Code::kInvalidArgument;
    if (none) return ok();
    if (!found) return std::move(found.error());
    self.rank = found->rank().value;
    self.size = found->rank_count();
    self.device_communicator.emplace(*std::move(found));
    return ok();
  });
}

/// Whoever asks for a communicator's number: needs it made, or being made.
ncclResult_t check_handle(ncclComm_t comm, const char* function, const void* out) {
  if (comm == nullptr || comm->magic != ncclComm::kMagic) {
    return bad_argument(nullptr, function, "this is no communicator, or it was given back");
  }
  if (out == nullptr) return bad_argument(comm, function, "the place for the answer is NULL");
  return ncclSuccess;
}

}  // namespace
}  // namespace tutti::nccl

using namespace tutti::nccl;  // NOLINT(google-build-using-namespace): the API has no namespace.
using tutti::Error;

ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr) return bad_argument(nullptr, __func__, "version is NULL");
  *version = NCCL_VERSION(2, 30, 7);
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return bad_argument(nullptr, __func__, "uniqueId is NULL");
  auto made = tutti::make_unique_id();
  if (!made) return finish(nullptr, made.error());
  std::memcpy(id, made->bytes.data(), sizeof *id);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank) {
  return init(__func__, comm, nranks, id, rank, nullptr);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return init(__func__, comm, nranks, id, rank, config);
}

// Several ids spread the work of NCCL's meeting point; ours needs one.
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int nranks, int rank, int ids,
                                      ncclUniqueId* id, ncclConfig_t* config) {
  if (id == nullptr || ids < 1) {
    return Group::current().fail(bad_argument(nullptr, __func__, "there is no unique id"));
  }
  return init(__func__, comm, nranks, id[0], rank, config);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  if (comms == nullptr || count < 1) {
    return bad_argument(nullptr, __func__, "there is room for no communicator");
  }
  int before = 0;
  if (const ncclResult_t failed = current_device(__func__, &before)) return failed;
  ncclUniqueId id;
  if (const ncclResult_t failed = ncclGetUniqueId(&id)) return failed;
  ncclGroupStart();
  for (int rank = 0; rank < count; ++rank) {
    const int device = devices != nullptr ? devices[rank] : rank;
    if (const auto said = cudaSetDevice(device)) {
      finish(nullptr, Error{tutti::Code::kInvalidArgument, std::string(__func__) + ": device " +
                                                               std::to_string(device) + ": " +
                                                               cudaGetErrorString(said)});
      comms[rank] = nullptr;
      Group::current().fail(ncclInvalidArgument);
      break;
    }
    init(__func__, comms + rank, count, id, rank, nullptr);
  }
  const ncclResult_t result = ncclGroupEnd();
  cudaSetDevice(before);
  return result;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config) {
  return split(__func__, comm, color, key, newcomm, config);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (const ncclResult_t failed = check_ready(comm, __func__)) return failed;
  // What a communicator has to wait for, it waits for when it is given back.
  comm->finalized = true;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  if (const ncclResult_t failed = check_handle(comm, __func__, comm)) return failed;
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  if (const ncclResult_t failed = check_handle(comm, __func__, comm)) return failed;
  if (comm->maker.joinable()) comm->maker.join();
  if (comm->device_communicator) comm->device_communicator->abort("ncclCommAbort");
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  if (const ncclResult_t failed = check_ready(comm, __func__)) return failed;
  if (flags != NCCL_REVOKE_DEFAULT) return bad_argument(comm, __func__, "flags are not 0");
  comm->device_communicator->abort("ncclCommRevoke");
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (const ncclResult_t failed = check_handle(comm, __func__, error)) return failed;
  // Acquire: see the state that its maker left.
  *error = comm->state.load(std::memory_order_acquire);
  if (*error != ncclSuccess || !comm->device_communicator) return ncclSuccess;
  if (auto status = comm->device_communicator->check(); !status) *error = finish(comm, status);
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  if (const ncclResult_t failed = check_handle(comm, __func__, count)) return failed;
  *count = comm->size;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  if (const ncclResult_t failed = check_handle(comm, __func__, device)) return failed;
  *device = comm->device;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  if (const ncclResult_t failed = check_handle(comm, __func__, rank)) return failed;
  *rank = comm->rank;
  return ncclSuccess;
}
