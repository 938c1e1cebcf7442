// ncclConfig_t, of any version.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "comm.h"

namespace tutti::nccl {
namespace {

constexpr unsigned kMagic = 0xcafebeef;
constexpr std::size_t kLeast = offsetof(ncclConfig_t, cgaClusterSize);  // 2.14: until `blocking`.
constexpr std::size_t kMost = 4096;  // More than any version has; less than nonsense.

}  // namespace

bool is_cta_policy(int policy) {
  constexpr int kKnown = NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO;
  return policy == NCCL_CONFIG_UNDEF_INT || (policy >= 0 && (policy & ~kKnown) == 0);
}

Result<bool> read_blocking(const ncclConfig_t* config, bool inherited) {
  if (config == nullptr) return inherited;
  if (config->magic != kMagic || config->size < kLeast || config->size > kMost) {
    return Error{Code::kInvalidArgument,
                 "config was not initialised; start from NCCL_CONFIG_INITIALIZER"};
  }
  // What the caller's version does not have is as if it were not set.
  ncclConfig_t known = NCCL_CONFIG_INITIALIZER;
  std::memcpy(&known, config, std::min(config->size, sizeof known));
  if (known.minCTAs != NCCL_CONFIG_UNDEF_INT && known.maxCTAs != NCCL_CONFIG_UNDEF_INT &&
      known.minCTAs > known.maxCTAs) {
    return Error{Code::kInvalidArgument, "config.minCTAs is more than config.maxCTAs"};
  }
  if (known.blocking == NCCL_CONFIG_UNDEF_INT) return inherited;
  if (known.blocking != 0 && known.blocking != 1) {
    return Error{Code::kInvalidArgument,
                 "config.blocking is " + std::to_string(known.blocking) + "; it is 0 or 1"};
  }
  return known.blocking == 1;
}

}  // namespace tutti::nccl
