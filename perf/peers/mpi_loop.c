// File: perf/peers/mpi_loop.c: an MPI library in the timing loop of loop.h. Built once per MPI
// found, with PEER_NAME its name.
//   mpirun.openmpi -n 2 openmpi_loop --sizes 8,1024
#include <mpi.h>
#include <stdio.h>

#include "loop.h"

// MPI's default error handler ends the job with a message, so the calls below can't fail.
static int call(void* context, const LoopCall* call) {
  (void)context;
  const float* in = call->input;
  float* out = call->output;
  const int n = (int)call->count;
  const MPI_Comm world = MPI_COMM_WORLD;
  switch (call->collective) {
    case kAllReduce: return MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, world);
    case kReduceScatter: return MPI_Reduce_scatter_block(in, out, n, MPI_FLOAT, MPI_SUM, world);
    case kAllGather: return MPI_Allgather(in, n, MPI_FLOAT, out, n, MPI_FLOAT, world);
    case kBroadcast: return MPI_Bcast(out, n, MPI_FLOAT, 0, world);
    case kReduce: return MPI_Reduce(in, out, n, MPI_FLOAT, MPI_SUM, 0, world);
    case kGather: return MPI_Gather(in, n, MPI_FLOAT, out, n, MPI_FLOAT, 0, world);
    case kScatter: return MPI_Scatter(in, n, MPI_FLOAT, out, n, MPI_FLOAT, 0, world);
    case kAllToAll: return MPI_Alltoall(in, n, MPI_FLOAT, out, n, MPI_FLOAT, world);
    case kScan: return MPI_Scan(in, out, n, MPI_FLOAT, MPI_SUM, world);
    case kExclusiveScan: return MPI_Exscan(in, out, n, MPI_FLOAT, MPI_SUM, world);
    case kBarrier: return MPI_Barrier(world);
    default: return loop_not_there(PEER_NAME, call->collective);
  }
}

static int barrier(void* context) {
  (void)context;
  MPI_Barrier(MPI_COMM_WORLD);
  return 0;
}

static int share(void* context, double mine, double* of_all) {
  (void)context;
  return MPI_Allgather(&mine, 1, MPI_DOUBLE, of_all, 1, MPI_DOUBLE, MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  LoopOptions options;
  int failure = loop_parse(argc, argv, &options);
  if (failure == 0) {
    LoopPeer peer = {PEER_NAME, 0, 1, 0, NULL, call, barrier, share};
    MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer.rank_count);
    // The memory that MPI prefers for buffers, though for shared memory it is malloc.
    float *input = NULL, *output = NULL;
    MPI_Alloc_mem((MPI_Aint)options.largest, MPI_INFO_NULL, &input);
    MPI_Alloc_mem((MPI_Aint)options.largest, MPI_INFO_NULL, &output);
    failure = loop_run(&peer, &options, input, output);
  }
  if (failure != 0) MPI_Abort(MPI_COMM_WORLD, failure);
  MPI_Finalize();
  return 0;
}
