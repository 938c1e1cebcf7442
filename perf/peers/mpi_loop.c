// File: perf/peers/mpi_loop.c: an MPI library in the timing loop of loop.h. Built once per MPI
// found, with PEER_NAME its name.
//   mpirun.openmpi -n 2 openmpi_loop --sizes 8,1024
#include <mpi.h>
#include <stdio.h>

#include "loop.h"

// What one-sided calls access; see loop.h.
typedef struct Window {
  MPI_Win memory;
  MPI_Aint output_at;  // In elements; the input is at 0.
  int next_rank;
  MPI_Group next, previous;  // Of one rank each.
  int locked;                // put and get: one epoch of all ranks, from start to end.
} Window;

static void open_window(Window* window, const LoopOptions* options, const LoopPeer* peer,
                        float** input, float** output) {
  const size_t part = loop_window_part(options);
  const int next = (peer->rank + 1) % peer->rank_count;
  const int previous = (peer->rank + peer->rank_count - 1) % peer->rank_count;
  MPI_Win_allocate((MPI_Aint)(2 * part), sizeof(float), MPI_INFO_NULL, MPI_COMM_WORLD, input,
                   &window->memory);
  window->output_at = (MPI_Aint)(part / sizeof(float));
  *output = *input + window->output_at;
  window->next_rank = next;
  MPI_Group all;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_incl(all, 1, &next, &window->next);
  MPI_Group_incl(all, 1, &previous, &window->previous);
  MPI_Group_free(&all);
  window->locked = options->collective != kPutSignal;
  // NOCHECK: all locks are shared, so none conflicts.
  if (window->locked) MPI_Win_lock_all(MPI_MODE_NOCHECK, window->memory);
}

static void close_window(Window* window) {
  if (window->locked) MPI_Win_unlock_all(window->memory);
  MPI_Group_free(&window->next);
  MPI_Group_free(&window->previous);
  MPI_Win_free(&window->memory);
}

static int put(const Window* window, const float* in, int n) {
  return MPI_Put(in, n, MPI_FLOAT, window->next_rank, window->output_at, n, MPI_FLOAT,
                 window->memory);
}

static int put_and_flush(const Window* window, const float* in, int n) {
  put(window, in, n);
  return MPI_Win_flush(window->next_rank, window->memory);
}

static int get_and_flush(const Window* window, float* out, int n) {
  MPI_Get(out, n, MPI_FLOAT, window->next_rank, 0, n, MPI_FLOAT, window->memory);
  return MPI_Win_flush(window->next_rank, window->memory);
}

// MPI's nearest to a put and a signal; loop.h says where they differ.
static int put_between_neighbours(const Window* window, const float* in, int n) {
  MPI_Win_post(window->previous, 0, window->memory);
  MPI_Win_start(window->next, 0, window->memory);
  put(window, in, n);
  MPI_Win_complete(window->memory);
  return MPI_Win_wait(window->memory);
}

// MPI's default error handlers end the job with a message, so the calls below can't fail.
static int call(void* context, const LoopCall* call) {
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
    case kPut: return put_and_flush(context, in, n);
    case kGet: return get_and_flush(context, out, n);
    case kPutSignal: return put_between_neighbours(context, in, n);
    default: return loop_not_there(PEER_NAME, call->collective);
  }
}

static int barrier(void* context) {
  const Window* window = context;
  // Before the barrier: others' calls see what this rank has stored. Behind it: this rank's loads
  // see what others have put (MPI-4.0, 12.5.4 and 12.7).
  if (window->locked) MPI_Win_sync(window->memory);
  MPI_Barrier(MPI_COMM_WORLD);
  if (window->locked) MPI_Win_sync(window->memory);
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
    Window window = {.locked = 0};
    LoopPeer peer = {PEER_NAME, 0, 1, 0, &window, call, barrier, share};
    MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer.rank_count);
    float *input = NULL, *output = NULL;
    const int one_sided = loop_is_one_sided(options.collective);
    if (one_sided) {
      open_window(&window, &options, &peer, &input, &output);
    } else {
      // The memory that MPI prefers for buffers, though for shared memory it is malloc.
      MPI_Alloc_mem((MPI_Aint)options.largest, MPI_INFO_NULL, &input);
      MPI_Alloc_mem((MPI_Aint)options.largest, MPI_INFO_NULL, &output);
    }
    failure = loop_run(&peer, &options, input, output);
    if (failure == 0 && one_sided) close_window(&window);
  }
  if (failure != 0) MPI_Abort(MPI_COMM_WORLD, failure);
  MPI_Finalize();
  return 0;
}
