// File: perf/peers/mpi_loop.c: an MPI library in the timing loop of loop.h. Built once per MPI
// found, with PEER_NAME its name.
//   mpirun.openmpi -n 2 openmpi_loop --sizes 8,1024
#include <mpi.h>
#include <stdio.h>

#include "loop.h"

// MPI's default error handler ends the job with a message, so the calls below can't fail.
static int all_reduce(void* context, const float* input, float* output, size_t count) {
  (void)context;
  MPI_Allreduce(input, output, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  return 0;
}

static int barrier(void* context) {
  (void)context;
  MPI_Barrier(MPI_COMM_WORLD);
  return 0;
}

static int broadcast(void* context, uint64_t* values, size_t count) {
  (void)context;
  MPI_Bcast(values, (int)count, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  return 0;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  LoopOptions options;
  int failure = loop_parse(argc, argv, &options);
  if (failure == 0) {
    LoopPeer peer = {PEER_NAME, 0, 1, 0, NULL, all_reduce, barrier, broadcast};
    MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer.rank_count);
    // What MPI would rather have its buffers in, though for shared memory it is malloc.
    float *input = NULL, *output = NULL;
    MPI_Alloc_mem((MPI_Aint)options.largest, MPI_INFO_NULL, &input);
    MPI_Alloc_mem((MPI_Aint)options.largest, MPI_INFO_NULL, &output);
    failure = loop_run(&peer, &options, input, output);
  }
  if (failure != 0) MPI_Abort(MPI_COMM_WORLD, failure);
  MPI_Finalize();
  return 0;
}
