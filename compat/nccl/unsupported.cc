// The functions that this library does not support: each says so, and what to do instead.
#include "group.h"

using namespace tutti::nccl;  // NOLINT(google-build-using-namespace): the API has no namespace.

ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t*) {
  return bad_usage(nullptr, __func__,
                   "not supported: what goes between hosts is not encrypted; use a network of your "
                   "own for it");
}
