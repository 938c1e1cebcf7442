// File: python/csrc/operations.h: what each operation is called, by us and where we stand in for
// gloo.
#pragma once
#include "work.h"

namespace tutti::python {

#define TUTTI_OPERATION(constant, type, name) TUTTI_OPERATION_(constant, type, name, name)
#define TUTTI_OPERATION_(constant, type, name, title) \
  inline constexpr Operation constant { c10d::OpType::type, name, "tutti:" title, "gloo:" title }
TUTTI_OPERATION(kAllReduce, ALLREDUCE, "all_reduce");
TUTTI_OPERATION(kAllReduceCoalesced, ALLREDUCE_COALESCED, "all_reduce");
TUTTI_OPERATION(kAllReduceSparse, _ALLREDUCE_SPARSE, "sparse_all_reduce");
TUTTI_OPERATION(kBroadcast, BROADCAST, "broadcast");
TUTTI_OPERATION(kReduce, REDUCE, "reduce");
TUTTI_OPERATION(kAllGather, ALLGATHER, "all_gather");
TUTTI_OPERATION(kAllGatherBase, _ALLGATHER_BASE, "all_gather_into_tensor");
TUTTI_OPERATION(kAllGatherCoalesced, ALLGATHER_COALESCED, "all_gather");
TUTTI_OPERATION(kGather, GATHER, "gather");
TUTTI_OPERATION(kScatter, SCATTER, "scatter");
TUTTI_OPERATION(kReduceScatter, REDUCE_SCATTER, "reduce_scatter");
TUTTI_OPERATION(kReduceScatterBase, _REDUCE_SCATTER_BASE, "reduce_scatter_tensor");
TUTTI_OPERATION(kAllToAll, ALLTOALL, "all_to_all");
TUTTI_OPERATION(kAllToAllBase, ALLTOALL_BASE, "all_to_all");
TUTTI_OPERATION(kBarrier, BARRIER, "barrier");
TUTTI_OPERATION(kSend, SEND, "send");
TUTTI_OPERATION(kRecv, RECV, "recv");
TUTTI_OPERATION_(kRecvAny, RECVANYSOURCE, "recv", "recvAnySource");
TUTTI_OPERATION(kCompressed, ALLREDUCE, "compressed_average");
TUTTI_OPERATION(kCoalesced, COALESCED, "coalesced");
TUTTI_OPERATION(kReconfigure, UNKNOWN, "reconfigure");
#undef TUTTI_OPERATION
#undef TUTTI_OPERATION_

}  // namespace tutti::python
