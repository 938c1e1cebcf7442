// The functions that this library does not support: each says so, and what to do instead.
#include "group.h"

using namespace tutti::nccl;  // NOLINT(google-build-using-namespace): the API has no namespace.

namespace {

ncclResult_t no(ncclComm_t comm, const char* function, const char* instead) {
  const Use use(comm);
  if (const ncclResult_t failed = check_ready(use.get(), function))
    return Group::current().fail(failed);
  return Group::current().fail(bad_usage(comm, function, std::string("not supported; ") + instead));
}

}  // namespace

ncclResult_t ncclCommSuspend(ncclComm_t comm, int) {
  return no(comm, __func__, "destroy the communicator and make it again");
}

ncclResult_t ncclCommResume(ncclComm_t comm) {
  return no(comm, __func__, "destroy the communicator and make it again");
}

ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t*) {
  return bad_usage(nullptr, __func__,
                   "not supported: what goes between hosts is not encrypted; use a network of your "
                   "own for it");
}

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* info) {
  const ncclResult_t dropped = Group::current().drop(__func__);
  if (info == nullptr || dropped != ncclSuccess) {
    return dropped != ncclSuccess ? dropped : bad_argument(nullptr, __func__, "simInfo is NULL");
  }
  return bad_usage(nullptr, __func__, "not supported; `tutti explain` says what a call takes");
}
