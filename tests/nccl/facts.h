/* What a program compiled against an nccl.h has in it: values, sizes, where members are. Compiled
 * twice, with our header and with NVIDIA's, into two tables that have to be the same. */
#include <stddef.h>

struct nccl_fact {
  const char* what;
  long long value;
};

#define FACT(expression) \
  { #expression, (long long)(expression) }
#define MEMBER(type, member) \
  { #type "." #member, (long long)offsetof(type, member) }

#define FACTS                                                                                     \
  {                                                                                               \
    FACT(sizeof(ncclUniqueId)), FACT(sizeof(ncclSimInfo_t)), FACT(sizeof(ncclRedOp_t)),           \
        FACT(sizeof(ncclResult_t)), FACT(sizeof(ncclDataType_t)), FACT(ncclSuccess),              \
        FACT(ncclUnhandledCudaError), FACT(ncclSystemError), FACT(ncclInternalError),             \
        FACT(ncclInvalidArgument), FACT(ncclInvalidUsage), FACT(ncclRemoteError),                 \
        FACT(ncclInProgress), FACT(ncclSum), FACT(ncclProd), FACT(ncclMax), FACT(ncclMin),        \
        FACT(ncclAvg), FACT(ncclNumOps), FACT(ncclMaxRedOp), FACT(ncclInt8), FACT(ncclChar),      \
        FACT(ncclUint8), FACT(ncclInt32), FACT(ncclInt), FACT(ncclUint32), FACT(ncclInt64),       \
        FACT(ncclUint64), FACT(ncclFloat16), FACT(ncclHalf), FACT(ncclFloat32), FACT(ncclFloat),  \
        FACT(ncclFloat64), FACT(ncclDouble), FACT(ncclBfloat16), FACT(ncclFloat8e4m3),            \
        FACT(ncclFloat8e5m2), FACT(ncclNumTypes), FACT(ncclScalarDevice),                         \
        FACT(ncclScalarHostImmediate), FACT(NCCL_CONFIG_UNDEF_INT), FACT(NCCL_SPLIT_NOCOLOR),     \
        FACT(NCCL_WIN_DEFAULT), FACT(NCCL_WIN_COLL_SYMMETRIC), FACT(NCCL_WIN_REQUIRED_ALIGNMENT), \
        FACT(NCCL_SHRINK_DEFAULT), FACT(NCCL_SHRINK_ABORT), FACT(NCCL_REVOKE_DEFAULT),            \
        FACT(NCCL_CTA_POLICY_DEFAULT), FACT(NCCL_CTA_POLICY_EFFICIENCY),                          \
        FACT(NCCL_CTA_POLICY_ZERO), FACT(initial.magic), FACT(initial.blocking),                  \
        FACT(initial.netName == NULL), FACT(simulated.magic), FACT(simulated.size),               \
        MEMBER(ncclConfig_t, size), MEMBER(ncclConfig_t, magic), MEMBER(ncclConfig_t, version),   \
        MEMBER(ncclConfig_t, blocking), MEMBER(ncclConfig_t, cgaClusterSize),                     \
        MEMBER(ncclConfig_t, minCTAs), MEMBER(ncclConfig_t, maxCTAs),                             \
        MEMBER(ncclConfig_t, netName), MEMBER(ncclConfig_t, splitShare),                          \
        MEMBER(ncclConfig_t, trafficClass), MEMBER(ncclConfig_t, commName),                       \
        MEMBER(ncclConfig_t, collnetEnable), MEMBER(ncclConfig_t, CTAPolicy),                     \
        MEMBER(ncclConfig_t, shrinkShare), MEMBER(ncclConfig_t, nvlsCTAs),                        \
        MEMBER(ncclConfig_t, nChannelsPerNetPeer), MEMBER(ncclConfig_t, nvlinkCentricSched),      \
        MEMBER(ncclSimInfo_t, estimatedTime), {NULL, 0},                                          \
  }

/* `name` gives the table. */
#define DEFINE_FACTS(name)                                                        \
  const struct nccl_fact* name(void) {                                            \
    static const ncclConfig_t initial_value = NCCL_CONFIG_INITIALIZER;            \
    static const ncclSimInfo_t simulated_value = NCCL_SIM_INFO_INITIALIZER;       \
    const ncclConfig_t initial = initial_value;                                   \
    const ncclSimInfo_t simulated = simulated_value;                              \
    static struct nccl_fact facts[128];                                           \
    const struct nccl_fact made[] = FACTS;                                        \
    for (size_t i = 0; i < sizeof made / sizeof made[0]; ++i) facts[i] = made[i]; \
    return facts;                                                                 \
  }
