// The functions that this library does not support: each says so, and what to do instead.
#include "group.h"

using namespace tutti::nccl;  // NOLINT(google-build-using-namespace): the API has no namespace.

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
