// ncclConfig_t, of any version.
#include <algorithm>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstring>

#include "base/settings/settings_table.h"
#include "comm.h"
#include "environment.h"

namespace tutti::nccl {
namespace {

constexpr unsigned kMagic = 0xcafebeef;
constexpr std::size_t kLeast = offsetof(ncclConfig_t, cgaClusterSize);  // 2.14: until `blocking`.
constexpr std::size_t kMost = 4096;          // More than any version has; less than nonsense.
constexpr std::size_t kMostNameBytes = 256;  // What is read of a name; less is shown.

constexpr int kMostTrafficClass = 255, kMostServiceLevel = 15;

/// The values that NCCL takes; it refuses others. Most have no meaning here.
struct Range {
  const char* name;
  int ncclConfig_t::*member;
  int least, most;
};
constexpr Range kRanges[] = {
    {"blocking", &ncclConfig_t::blocking, 0, 1},
    {"cgaClusterSize", &ncclConfig_t::cgaClusterSize, 0, 8},
    {"minCTAs", &ncclConfig_t::minCTAs, 1, INT_MAX},
    {"maxCTAs", &ncclConfig_t::maxCTAs, 1, INT_MAX},
    {"splitShare", &ncclConfig_t::splitShare, 0, 1},
    {"collnetEnable", &ncclConfig_t::collnetEnable, 0, 1},
    {"shrinkShare", &ncclConfig_t::shrinkShare, 0, 1},
    {"nvlsCTAs", &ncclConfig_t::nvlsCTAs, 1, INT_MAX},
    {"nChannelsPerNetPeer", &ncclConfig_t::nChannelsPerNetPeer, 1, 1024},
    {"nvlinkCentricSched", &ncclConfig_t::nvlinkCentricSched, 0, 1},
};

/// NCCL_COMM_BLOCKING overrides the program's choice, as in NCCL.
bool blocking_of(int asked, bool inherited) {
  const std::string word = value_of("NCCL_COMM_BLOCKING");
  if (word == "0" || word == "1") return word == "1";
  return asked == NCCL_CONFIG_UNDEF_INT ? inherited : asked == 1;
}

/// NCCL_NET overrides the program's choice, as in NCCL.
Result<std::string> transport_of(const char* asked, const std::string& inherited) {
  if (asked == nullptr || !value_of("NCCL_NET").empty()) return inherited;
  const std::string_view name(asked, ::strnlen(asked, kMostNameBytes));
  const auto transport = transport_of_network(name);
  if (transport) return *transport;
  return Error{Code::kUnsupported, "config.netName is '" + shown_value(name) +
                                       "'; it is Socket or IB: there are no network plugins"};
}

}  // namespace

bool is_cta_policy(int policy) {
  constexpr int kKnown = NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO;
  return policy == NCCL_CONFIG_UNDEF_INT || (policy >= 0 && (policy & ~kKnown) == 0);
}

Result<Settings> settings_of_environment() {
  return settings_or([](std::string_view variable) -> std::string {
    const auto found = environment().settings.find(variable);
    if (found != environment().settings.end()) return found->second;
    // NCCL waits for ever, also for ranks that come late, and leaves it to the framework to end a
    // hung job (torch does so after 10 minutes). Aborts are seen at once.
    constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24);
    return variable == "TUTTI_TIMEOUT_MS" ? std::to_string(kLongest.count()) : "";
  });
}

Result<Settings> settings_for(const Config& config) {
  TUTTI_TRY(Settings settings, settings_of_environment());
  if (settings.least_lanes == 0) settings.least_lanes = config.min_ctas;
  if (settings.most_lanes == 0) settings.most_lanes = config.max_ctas;
  if (settings.transport.empty()) settings.transport = config.transport;
  // NCCL uses the one number for both fields, of which the service level has 4 bits.
  if (settings.rdma_traffic_class < 0) settings.rdma_traffic_class = config.traffic_class;
  if (settings.rdma_service_level < 0 && config.traffic_class <= kMostServiceLevel)
    settings.rdma_service_level = config.traffic_class;
  return settings;
}

Result<Config> read_config(const ncclConfig_t* config, const Config& inherited) {
  Config made = inherited;
  made.blocking = blocking_of(NCCL_CONFIG_UNDEF_INT, inherited.blocking);
  if (config == nullptr) return made;
  if (config->magic != kMagic || config->size < kLeast || config->size > kMost) {
    return Error{Code::kInvalidArgument,
                 "config was not initialised; start from NCCL_CONFIG_INITIALIZER"};
  }
  // Members that the caller's version does not have are as if they were not set.
  ncclConfig_t known = NCCL_CONFIG_INITIALIZER;
  std::memcpy(&known, config, std::min(config->size, sizeof known));
  for (const Range& range : kRanges) {
    const int value = known.*range.member;
    if (value == NCCL_CONFIG_UNDEF_INT || (value >= range.least && value <= range.most)) continue;
    return Error{Code::kInvalidArgument,
                 std::string("config.") + range.name + " is " + std::to_string(value) +
                     "; it is from " + std::to_string(range.least) +
                     (range.most == INT_MAX ? " on" : " to " + std::to_string(range.most))};
  }
  if (!is_cta_policy(known.CTAPolicy)) {
    return Error{Code::kInvalidArgument, "config.CTAPolicy is " + std::to_string(known.CTAPolicy) +
                                             ", no NCCL_CTA_POLICY_..."};
  }
  if (known.minCTAs != NCCL_CONFIG_UNDEF_INT && known.maxCTAs != NCCL_CONFIG_UNDEF_INT &&
      known.minCTAs > known.maxCTAs) {
    return Error{Code::kInvalidArgument, "config.minCTAs is more than config.maxCTAs"};
  }
  TUTTI_TRY(made.transport, transport_of(known.netName, inherited.transport));
  if (known.commName != nullptr)
    made.comm_name = shown_value({known.commName, ::strnlen(known.commName, kMostNameBytes)});
  if (known.trafficClass >= 0 && known.trafficClass <= kMostTrafficClass)
    made.traffic_class = known.trafficClass;
  made.blocking = blocking_of(known.blocking, inherited.blocking);
  if (known.minCTAs != NCCL_CONFIG_UNDEF_INT) made.min_ctas = std::min(known.minCTAs, kMostLanes);
  if (known.maxCTAs != NCCL_CONFIG_UNDEF_INT) made.max_ctas = std::min(known.maxCTAs, kMostLanes);
  return made;
}

}  // namespace tutti::nccl
