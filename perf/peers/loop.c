// File: perf/peers/loop.c: see loop.h.
#define _POSIX_C_SOURCE 200809L
#include "loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kMostBatches = 10, kLeastBatches = 3 };
static const size_t kMostBytes = (size_t)1 << 30;

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static int refuse(const char* option, const char* value, const char* takes) {
  fprintf(stderr, "%s %s: takes %s\n", option, value, takes);
  return 2;
}

static int parse_number(const char* text, const char* ends, double least, double most,
                        double* value, const char** end) {
  char* stop = NULL;
  errno = 0;
  *value = strtod(text, &stop);
  if (stop == text || errno != 0 || strchr(ends, *stop) == NULL) return 0;
  *end = stop;
  return *value >= least && *value <= most;  // Also refuses what is not a number.
}

static int parse_sizes(const char* text, LoopOptions* options) {
  options->size_count = 0;
  options->largest = 0;
  for (const char* at = text;;) {
    double bytes = 0;
    const char* end = at;
    if (options->size_count == kLoopMostSizes ||
        !parse_number(at, ",", 4, (double)kMostBytes, &bytes, &end) || (size_t)bytes % 4 != 0) {
      return 0;
    }
    const size_t size = (size_t)bytes;
    options->sizes[options->size_count++] = size;
    if (size > options->largest) options->largest = size;
    if (*end == 0) return 1;
    at = end + 1;
  }
}

int loop_parse(int argc, char** argv, LoopOptions* options) {
  memset(options, 0, sizeof *options);
  options->min_ms = 30;
  parse_sizes("8,65536,33554432", options);
  for (int i = 1; i < argc; i += 2) {
    const char* option = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "(nothing)";
    const char* end = NULL;
    double number = 0;
    if (strcmp(option, "--sizes") == 0) {
      if (!parse_sizes(value, options)) {
        return refuse(option, value, "up to 64 multiples of 4, up to 1 GiB, with commas between");
      }
    } else if (strcmp(option, "--min-ms") == 0) {
      if (!parse_number(value, "", 0.1, 60000, &options->min_ms, &end)) {
        return refuse(option, value, "milliseconds, 0.1 to 60000");
      }
    } else if (strcmp(option, "--registered") == 0) {
      if (!parse_number(value, "", 0, 1, &number, &end)) return refuse(option, value, "0 or 1");
      options->registered = (int)number;
    } else if (strcmp(option, "--ranks") == 0) {
      if (!parse_number(value, "", 1, 256, &number, &end)) {
        return refuse(option, value, "a number from 1 to 256");
      }
      options->ranks = (int)number;
    } else {
      fprintf(stderr, "%s: unknown; there are --sizes, --min-ms, --registered and --ranks\n",
              option);
      return 2;
    }
  }
  return 0;
}

// Small whole numbers: their sums are exact in any order.
static float contribution(int rank, size_t index) { return (float)(rank % 16 + (int)(index % 61)); }

static void fill(const LoopPeer* peer, size_t count, float* input, float* output) {
  for (size_t i = 0; i < count; ++i) {
    input[i] = contribution(peer->rank, i);
    output[i] = -1;  // No right result is negative.
  }
}

static int verify(const LoopPeer* peer, size_t count, const float* output) {
  float ranks = 0;
  for (int rank = 0; rank < peer->rank_count; ++rank) ranks += contribution(rank, 0);
  for (size_t i = 0; i < count; ++i) {
    const float expected = peer->copies ? contribution(peer->rank, i)
                                        : ranks + (float)peer->rank_count * contribution(0, i);
    if (output[i] != expected) {
      fprintf(stderr, "%s: rank %d: %zu bytes: element %zu is %g, expected %g\n", peer->name,
              peer->rank, count * sizeof(float), i, (double)output[i], (double)expected);
      return kLoopWrongResult;
    }
  }
  return 0;
}

typedef struct Buffers {
  const float* input;
  float* output;
  size_t count;
} Buffers;

static int time_batch(const LoopPeer* peer, Buffers buffers, uint64_t iterations, double* us) {
  int failure = peer->barrier(peer->context);
  const double start = now_us();
  for (uint64_t i = 0; i < iterations && failure == 0; ++i) {
    failure = peer->all_reduce(peer->context, buffers.input, buffers.output, buffers.count);
  }
  *us = (now_us() - start) / (double)iterations;
  return failure;
}

// Doubles until one batch fills its share of the time: warms up, and finds how many calls that is.
// The best of three probes counts: one interruption must not make the batches short.
static int calibrate(const LoopPeer* peer, Buffers buffers, double min_ms, uint64_t* iterations,
                     uint64_t* batches) {
  const double batch_us = min_ms * 1e3 / kMostBatches;
  uint64_t plan[3] = {1, kMostBatches, 0};  // Calls, batches, whether that is final.
  while (plan[2] == 0) {
    double best = 0;
    for (int probe = 0; probe < 3; ++probe) {
      double us = 0;
      const int failure = time_batch(peer, buffers, plan[0], &us);
      if (failure != 0) return failure;
      if (probe == 0 || us < best) best = us;
    }
    const double filled = best * (double)plan[0];
    if (filled >= batch_us / 2 || plan[0] >= (uint64_t)1 << 24) {
      const double calls = batch_us / best, fitting = min_ms * 1e3 / best;
      plan[0] = calls < 1 ? 1 : (uint64_t)calls;
      if (fitting < kMostBatches) {
        plan[1] = fitting < kLeastBatches ? kLeastBatches : (uint64_t)fitting;
      }
      plan[2] = 1;
    } else {
      plan[0] *= filled * 8 < batch_us ? 8 : 2;
    }
    const int failure = peer->broadcast(peer->context, plan, 3);
    if (failure != 0) return failure;
  }
  *iterations = plan[0];
  *batches = plan[1];
  return 0;
}

static int compare_times(const void* left, const void* right) {
  const double a = *(const double*)left, b = *(const double*)right;
  return (a > b) - (a < b);
}

static int run_size(const LoopPeer* peer, const LoopOptions* options, Buffers buffers) {
  int failure = peer->all_reduce(peer->context, buffers.input, buffers.output, buffers.count);
  if (failure == 0) failure = verify(peer, buffers.count, buffers.output);
  uint64_t iterations = 0, batches = 0;
  if (failure == 0) failure = calibrate(peer, buffers, options->min_ms, &iterations, &batches);
  double times[kMostBatches] = {0};
  for (uint64_t batch = 0; batch < batches && failure == 0; ++batch) {
    failure = time_batch(peer, buffers, iterations, &times[batch]);
  }
  if (failure != 0 || peer->rank != 0) return failure;
  qsort(times, batches, sizeof times[0], compare_times);
  printf(
      "{\"peer\":\"%s\",\"collective\":\"all_reduce\",\"bytes\":%zu,\"us\":%.4f,\"min\":%.4f,"
      "\"max\":%.4f,\"batches\":%d,\"iterations\":%llu}\n",
      peer->name, buffers.count * sizeof(float),
      (times[(batches - 1) / 2] + times[batches / 2]) / 2, times[0], times[batches - 1],
      (int)batches, (unsigned long long)iterations);
  fflush(stdout);
  return 0;
}

int loop_run(const LoopPeer* peer, const LoopOptions* options, float* input, float* output) {
  for (int i = 0; i < options->size_count; ++i) {
    const Buffers buffers = {input, output, options->sizes[i] / sizeof(float)};
    fill(peer, buffers.count, input, output);
    const int failure = run_size(peer, options, buffers);
    if (failure != 0) return failure;
  }
  return 0;
}
