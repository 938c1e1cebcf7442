// File: perf/peers/loop.h: the one timing loop that ours and every peer runs, in C, so that all are
// measured by the same code: `mpicc` compiles it as it is.
//
// Per size: one verified all-reduce, a warm-up that finds how many calls fill a batch, then
// batches. A batch is a barrier and that many all-reduces (float32, sum, input to output, the same
// buffers again and again), timed on rank 0. Rank 0 decides the number of calls and batches and
// broadcasts it, so all ranks make the same calls. Rank 0 prints one JSON object a line and size:
//   {"peer":"openmpi","collective":"all_reduce","bytes":8,"us":0.41,"min":0.40,"max":0.52,
//    "batches":10,"iterations":7000}
// "us" is the median over the batches of the time of one call in microseconds.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { kLoopMostSizes = 64, kLoopWrongResult = 3 };

// What the command line says.
typedef struct LoopOptions {     // NOLINT(modernize-use-using): C.
  size_t sizes[kLoopMostSizes];  // Bytes, each a multiple of 4, at most 1 GiB.
  int size_count;
  size_t largest;  // Bytes of the largest size: what the buffers have to hold.
  double min_ms;   // Time to measure for, per size.
  int registered;  // Buffers that peers can map; ours only.
  int ranks;       // Of peers that start their ranks themselves; 0 where a launcher does.
} LoopOptions;

// A library under test, as one rank sees it. The callbacks return 0, or an exit code after having
// said on stderr what went wrong.
typedef struct LoopPeer {  // NOLINT(modernize-use-using): C.
  const char* name;
  int rank;
  int rank_count;
  int copies;  // Not 0: `all_reduce` copies input to output only; that is what is verified.
  void* context;
  int (*all_reduce)(void* context, const float* input, float* output, size_t count);
  int (*barrier)(void* context);
  int (*broadcast)(void* context, uint64_t* values, size_t count);  // From rank 0.
} LoopPeer;

// Reads --sizes 8,32,... --min-ms 30 --registered 0|1 --ranks N. 0, or 2 after one line on stderr.
int loop_parse(int argc, char** argv, LoopOptions* options);

// Runs all sizes on this rank with buffers of options->largest bytes. 0, kLoopWrongResult if a
// result was wrong (after one line on stderr), or what a callback returned.
int loop_run(const LoopPeer* peer, const LoopOptions* options, float* input, float* output);

#ifdef __cplusplus
}
#endif
