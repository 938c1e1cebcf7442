// File: perf/peers/loop.h: the one timing loop that ours and every peer runs, in C, so that all are
// measured by the same code: `mpicc` compiles it as it is.
//
// Sizes are counted as nccl-tests counts: the larger of what a rank gives and what it gets. Where
// that consists of a block for each rank, a block has bytes / ranks, rounded down to elements; a
// size too small for an element a block is left out. A barrier has one size, 0.
//
// put, get and put_signal are one-sided: they access memory of a window, in which both buffers of a
// rank lie. Rank r works with the next rank, (r + 1) mod ranks; a size is what one rank moves.
//   put         writes the input to the next rank's output, and returns once it is there
//   get         reads the next rank's input to this rank's output
//   put_signal  waits until the next rank's output is free, puts, and signals that; returns once
//               the previous rank's data have come
// A program that hands data on in each step needs put_signal. With MPI it is post, start, put,
// complete and wait. The two differ in when a rank says that its output is free: MPI's post says so
// at the start of a call. Windows of ours leave that to the program, so the loop sends a signal
// back at the end of the call before. That word is under way earlier, which favours ours. Either
// way a call is one put, one word to the next rank and one to the previous rank.
//
// Per size: one verified call, up to 31 calls within 20 ms to get warm and to try out what there is
// to try out, the search for how many calls fill a batch, then batches. A
// batch is a barrier and that many calls (float32, sum, root 0, the same buffers again and again,
// nothing between two calls). Every rank times itself; a batch takes as long as its slowest rank
// does. For rooted collectives that is the throughput of calls in a row: the ranks that only give
// may run ahead as far as their library lets them, and the same holds for every peer. Input and
// output are apart but for a broadcast, which is in place, because MPI's is.
//
// `by` runs another way to the same result, two collectives one after the other, in place (Traff,
// Gropp, Thakur, "Self-consistent MPI performance guidelines", IEEE TPDS 2010): all-reduce by
// reduce and broadcast, say. It is for ours alone: MPI wants to be told of buffers that overlap.
// Sizes that such a pair can't cut into equal pieces are left out.
//
// All ranks know all ranks' times, so all decide alike on the number of calls and batches.
// Rank 0 prints one JSON object a line and size:
//   {"peer":"openmpi","collective":"all_reduce","ranks":2,"bytes":8,"count":2,"us":0.41,"min":0.40,
//    "max":0.52,"us_mean_rank":0.41,"batches":10,"iterations":7000}
// "us" is the time of one call in microseconds on the slowest rank, the median over the batches;
// "us_mean_rank" the same of the mean over the ranks. "count" is of a block.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  kLoopMostSizes = 64,
  kLoopMostRanks = 256,
  kLoopWrongResult = 3,
  kLoopNotThere = 4,  // This peer has no such collective.
};

typedef enum LoopCollective {  // NOLINT(modernize-use-using): C.
#define TUTTI_COLLECTIVE(enumerator, ...) enumerator,
#include "tutti/collectives.def"
#undef TUTTI_COLLECTIVE
  kBarrier,
  kPut,  // From here on one-sided.
  kGet,
  kPutSignal
} LoopCollective;

// The options of the command line.
typedef struct LoopOptions {  // NOLINT(modernize-use-using): C.
  LoopCollective collective;
  size_t sizes[kLoopMostSizes];  // Bytes, each a multiple of 4, at most 1 GiB.
  int size_count;
  size_t largest;           // Bytes of the largest size: what the buffers have to hold.
  double min_ms;            // Time to measure for, per size.
  int registered;           // Buffers that peers can map; ours only.
  int prepared;             // Calls that are prepared once; ours only.
  int ranks;                // For peers that start their ranks themselves; 0 where a launcher does.
  int rank;                 // For peers that would start them, if another program does; else -1.
  const char* meet;         // Where these meet: a folder or ADDRESS:PORT, as the peer says.
  const char* interface;    // Over which network interface; NULL: loopback.
  const struct Detour* by;  // Another way to the same result; NULL: the collective itself.
} LoopOptions;

// One call: `count` elements a block, from root 0 or to it.
typedef struct LoopCall {  // NOLINT(modernize-use-using): C.
  LoopCollective collective;
  const float* input;
  float* output;
  size_t count;
} LoopCall;

// A library under test, as one rank sees it. The callbacks return 0, or an exit code after having
// said on stderr what went wrong.
typedef struct LoopPeer {  // NOLINT(modernize-use-using): C.
  const char* name;
  int rank;
  int rank_count;
  int copies;  // Not 0: an all-reduce copies input to output only; that is what is verified.
  void* context;
  int (*call)(void* context, const LoopCall* call);
  int (*barrier)(void* context);
  int (*share)(void* context, double mine, double* of_all);  // An all-gather of one number.
} LoopPeer;

// For peers between hosts also --rank 0 --meet PLACE --interface eth0 (perf/compare_hosts).
// Reads --collective all_reduce --sizes 8,32,... --min-ms 30 --registered 0|1 --prepared 0|1
// --ranks N --by reduce+broadcast (after --collective). 0, or 2 after one line on stderr.
int loop_parse(int argc, char** argv, LoopOptions* options);

// The name that --collective takes.
const char* loop_name(LoopCollective collective);

// Whether it is one-sided, and wants both buffers in a window.
int loop_is_one_sided(LoopCollective collective);

// Bytes of a buffer in such a window: the input lies at 0, the output behind it, at this offset.
// Whole pages, so that what a rank reads and what others write share no cache line.
size_t loop_window_part(const LoopOptions* options);

// Says on stderr that `peer` lacks the collective; kLoopNotThere.
int loop_not_there(const char* peer, LoopCollective collective);

// Runs all sizes on this rank with buffers of options->largest bytes. 0, kLoopWrongResult if a
// result was wrong (after one line on stderr), or what a callback returned. For one-sided calls,
// `barrier` also orders memory: behind it, a rank's loads see what others have put before it, and
// others' calls see what the rank has stored.
int loop_run(const LoopPeer* peer, const LoopOptions* options, float* input, float* output);

#ifdef __cplusplus
}
#endif
