// File: perf/peers/loop.c: see loop.h.
#define _POSIX_C_SOURCE 200809L
#include "loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kMostBatches = 10, kLeastBatches = 3 };
// Warming up: batches of 1, 2, 4, ... calls to this many, until this time is over.
enum { kMostWarmCalls = 16, kWarmUs = 20000 };

// The inputs and outputs of a collective, as in collectives.def.
typedef struct Traits {
  const char* name;
  enum { kNone, kAll, kUpTo, kBelow } summed;
  int root_input, input_each, root_output, output_each;
  enum { kPrevious = -1, kNobody, kNext } neighbour;  // One-sided: whose input an output gets.
} Traits;
enum { kEvery = 0, kRoot = 1, kOne = 0, kEach = 1 };
static const Traits kTraits[] = {
#define TUTTI_COLLECTIVE(enumerator, name, summed, from, input, to, output) \
  {name, summed, from, input, to, output, kNobody},
#include "tutti/collectives.def"
#undef TUTTI_COLLECTIVE
    {"barrier", kNone, kEvery, kOne, kEvery, kOne, kNobody},
    {"put", kNone, kEvery, kOne, kEvery, kOne, kPrevious},
    {"get", kNone, kEvery, kOne, kEvery, kOne, kNext},
    {"put_signal", kNone, kEvery, kOne, kEvery, kOne, kPrevious}};
enum { kTraitCount = sizeof kTraits / sizeof kTraits[0] };

// A collective's result by two others; the first takes the input, the second what the first gave.
typedef struct Detour {
  LoopCollective whole, first, then;
} Detour;
static const Detour kDetours[] = {{kAllReduce, kReduce, kBroadcast},
                                  {kAllReduce, kReduceScatter, kAllGather},
                                  {kAllGather, kGather, kBroadcast},
                                  {kBroadcast, kScatter, kAllGather}};
enum { kDetourCount = sizeof kDetours / sizeof kDetours[0] };

static const size_t kMostBytes = (size_t)1 << 30;

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
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

static int parse_collective(const char* text, LoopCollective* collective) {
  for (int i = 0; i < kTraitCount; ++i) {
    if (strcmp(text, kTraits[i].name) != 0) continue;
    *collective = (LoopCollective)i;
    return 1;
  }
  return 0;
}

// "reduce+broadcast", of those that lead to `whole`.
static int parse_detour(const char* text, LoopCollective whole, const Detour** by) {
  const char* plus = strchr(text, '+');
  for (int i = 0; i < kDetourCount && plus != NULL; ++i) {
    const char* first = kTraits[kDetours[i].first].name;
    if (kDetours[i].whole != whole || strlen(first) != (size_t)(plus - text) ||
        strncmp(text, first, strlen(first)) != 0 ||
        strcmp(plus + 1, kTraits[kDetours[i].then].name) != 0) {
      continue;
    }
    *by = &kDetours[i];
    return 1;
  }
  return 0;
}

const char* loop_name(LoopCollective collective) { return kTraits[collective].name; }

int loop_is_one_sided(LoopCollective collective) {
  return kTraits[collective].neighbour != kNobody;
}

size_t loop_window_part(const LoopOptions* options) {
  enum { kPage = 4096 };
  return (options->largest + kPage - 1) / kPage * kPage;
}

int loop_not_there(const char* peer, LoopCollective collective) {
  fprintf(stderr, "%s has no %s\n", peer, loop_name(collective));
  return kLoopNotThere;
}

int loop_parse(int argc, char** argv, LoopOptions* options) {
  memset(options, 0, sizeof *options);
  options->min_ms = 30;
  options->rank = -1;
  parse_sizes("8,65536,33554432", options);
  for (int i = 1; i < argc; i += 2) {
    const char* option = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "(nothing)";
    const char *end = NULL, *takes = NULL;  // What it takes, if that is not what it got.
    double number = 0;
    if (strcmp(option, "--collective") == 0) {
      if (!parse_collective(value, &options->collective))
        takes = "a collective's name, as all_reduce, or barrier, put, get, put_signal";
    } else if (strcmp(option, "--sizes") == 0) {
      if (!parse_sizes(value, options))
        takes = "up to 64 multiples of 4, up to 1 GiB, with commas between";
    } else if (strcmp(option, "--min-ms") == 0) {
      if (!parse_number(value, "", 0.1, 60000, &options->min_ms, &end))
        takes = "milliseconds, 0.1 to 60000";
    } else if (strcmp(option, "--registered") == 0 || strcmp(option, "--prepared") == 0) {
      if (!parse_number(value, "", 0, 1, &number, &end)) takes = "0 or 1";
      *(option[2] == 'r' ? &options->registered : &options->prepared) = (int)number;
    } else if (strcmp(option, "--ranks") == 0) {
      if (!parse_number(value, "", 1, kLoopMostRanks, &number, &end))
        takes = "a number from 1 to 256";
      options->ranks = (int)number;
    } else if (strcmp(option, "--rank") == 0) {
      if (!parse_number(value, "", 0, kLoopMostRanks - 1, &number, &end))
        takes = "a number from 0 to 255";
      options->rank = (int)number;
    } else if (strcmp(option, "--meet") == 0) {
      options->meet = value;
    } else if (strcmp(option, "--interface") == 0) {
      options->interface = value;
    } else if (strcmp(option, "--by") == 0) {
      if (!parse_detour(value, options->collective, &options->by))
        takes = "two collectives that make --collective, as reduce+broadcast";
    } else {
      fprintf(stderr,
              "%s: unknown; there are --collective, --by, --sizes, --min-ms, --registered, "
              "--prepared, --ranks, --rank, --meet, --interface\n",
              option);
      return 2;
    }
    if (takes != NULL) {
      fprintf(stderr, "%s %s: takes %s\n", option, value, takes);
      return 2;
    }
  }
  return 0;
}

// What `rank` gives to the block `block`. Whole numbers whose sums over all ranks are below 2^24,
// and so exact in any order. The hash betrays blocks and ranks that were mixed up; the term added
// to it, places within a block.
static float base(int rank, size_t block) {
  uint32_t mixed = (uint32_t)rank * 0x9e3779b1U + (uint32_t)block * 0x85ebca77U + 0x27d4eb2fU;
  mixed = (mixed ^ mixed >> 15) * 0x2c1b3c6dU;
  return (float)((mixed ^ mixed >> 13) >> 17);
}
static float place(size_t index) { return (float)(index % 8191); }

typedef struct Test {
  const LoopPeer* peer;
  LoopCall call;
  size_t bytes;
  const Traits* traits;
  const Detour* by;  // NULL: the collective itself.
} Test;

static size_t blocks(const Test* test, int each_rank) {
  return each_rank ? (size_t)test->peer->rank_count : 1;
}

// Both buffers; what a rank does not have too, so that its pages are there.
static void fill(const Test* test, float* input, float* output) {
  const size_t count = test->call.count;
  for (size_t block = 0; block < blocks(test, test->traits->output_each); ++block) {
    for (size_t i = 0; i < count; ++i) output[block * count + i] = -1;  // Never a right result.
  }
  // In place, only the root's data may be there before.
  if (input == output && test->peer->rank != 0) return;
  for (size_t block = 0; block < blocks(test, test->traits->input_each); ++block) {
    const float first = base(test->peer->rank, block);
    for (size_t i = 0; i < count; ++i) input[block * count + i] = first + place(i);
  }
}

static int verify_block(const Test* test, size_t block, float first, float places) {
  const float* output = test->call.output + block * test->call.count;
  for (size_t i = 0; i < test->call.count; ++i) {
    const float expected = first + places * place(i);
    if (output[i] != expected) {
      fprintf(stderr, "%s: rank %d: %s of %zu bytes: element %zu of block %zu is %g, expected %g\n",
              test->peer->name, test->peer->rank, test->traits->name, test->bytes, i, block,
              (double)output[i], (double)expected);
      return kLoopWrongResult;
    }
  }
  return 0;
}

static int verify(const Test* test) {
  const Traits* traits = test->traits;
  const LoopPeer* peer = test->peer;
  const int first_gets_none = traits->summed == kBelow;
  if (traits->root_output ? peer->rank != 0 : first_gets_none && peer->rank == 0) return 0;
  // The block of a rank's input that is meant for this rank.
  const size_t mine = traits->input_each ? (size_t)peer->rank : 0;
  if (peer->copies) return verify_block(test, 0, base(peer->rank, 0), 1);
  if (traits->summed != kNone) {
    const int summed = traits->summed == kAll    ? peer->rank_count
                       : traits->summed == kUpTo ? peer->rank + 1
                                                 : peer->rank;
    float sum = 0;
    for (int rank = 0; rank < summed; ++rank) sum += base(rank, mine);
    return verify_block(test, 0, sum, (float)summed);
  }
  int failure = 0;
  for (size_t block = 0; block < blocks(test, traits->output_each) && failure == 0; ++block) {
    const int neighbour = (peer->rank + peer->rank_count + traits->neighbour) % peer->rank_count;
    const int giver = traits->neighbour != kNobody ? neighbour
                      : traits->root_input         ? 0
                                                   : (int)block;
    failure = verify_block(test, block, base(giver, mine), 1);
  }
  return failure;
}

// Whether a collective is of one block for each rank, on one side or both.
static int has_blocks(LoopCollective collective) {
  return kTraits[collective].input_each || kTraits[collective].output_each;
}

// Whether the blocks of a detour's parts come out even.
static int divides(const Detour* by, size_t elements, int ranks) {
  return (!has_blocks(by->first) && !has_blocks(by->then)) || elements % (size_t)ranks == 0;
}

// One half of a detour. A piece of the result lies where the whole result will have it.
static int call_part(const Test* test, LoopCollective collective, int is_second) {
  const LoopPeer* peer = test->peer;
  const Traits* traits = &kTraits[collective];
  const size_t all = test->call.count * blocks(test, test->traits->output_each);
  const size_t count = has_blocks(collective) ? all / (size_t)peer->rank_count : all;
  float* const whole = test->call.output;
  float* const piece = whole + (size_t)peer->rank * count;
  LoopCall part = {collective, test->call.input, whole, count};
  if (traits->input_each && !traits->output_each) part.output = piece;
  if (is_second) part.input = traits->output_each && !traits->input_each ? piece : whole;
  return peer->call(peer->context, &part);
}

static int call_once(const Test* test) {
  if (test->by == NULL) return test->peer->call(test->peer->context, &test->call);
  const int failure = call_part(test, test->by->first, 0);
  return failure != 0 ? failure : call_part(test, test->by->then, 1);
}

// The first call of a size, verified. A one-sided call does not wait until the other rank has
// filled its buffers, and a put does not tell it that data have come.
static int call_verified(const Test* test) {
  const LoopPeer* peer = test->peer;
  int failure = test->traits->neighbour != kNobody ? peer->barrier(peer->context) : 0;
  if (failure == 0) failure = call_once(test);
  if (failure == 0 && test->call.collective == kPut) failure = peer->barrier(peer->context);
  return failure != 0 ? failure : verify(test);
}

// The time of one call in a batch, in microseconds.
typedef struct Time {
  double slowest, mean;  // Over the ranks.
} Time;

static int time_batch(const Test* test, uint64_t iterations, Time* time) {
  const LoopPeer* peer = test->peer;
  int failure = peer->barrier(peer->context);
  const double start = now_us();
  for (uint64_t i = 0; i < iterations && failure == 0; ++i) {
    failure = call_once(test);
  }
  const double mine = (now_us() - start) / (double)iterations;
  double of_all[kLoopMostRanks] = {0};
  if (failure == 0) failure = peer->share(peer->context, mine, of_all);
  *time = (Time){0, 0};
  for (int rank = 0; rank < peer->rank_count; ++rank) {
    if (of_all[rank] > time->slowest) time->slowest = of_all[rank];
    time->mean += of_all[rank] / peer->rank_count;
  }
  return failure;
}

// Calls that are not timed: a library that tries out in its first calls which way is faster has
// done so.
static int warm_up(const Test* test) {
  double spent_us = 0;
  for (uint64_t calls = 1; calls <= kMostWarmCalls && spent_us < kWarmUs; calls *= 2) {
    Time time;
    const int failure = time_batch(test, calls, &time);
    if (failure != 0) return failure;
    spent_us += time.slowest * (double)calls;
  }
  return 0;
}

// Doubles until one batch fills its share of the time: warms up, and finds how many calls that is.
// The best of three probes counts: one interruption must not make the batches short.
static int calibrate(const Test* test, double min_ms, uint64_t* iterations, uint64_t* batches) {
  const double batch_us = min_ms * 1e3 / kMostBatches;
  for (*iterations = 1;;) {
    double best = 0;
    for (int probe = 0; probe < 3; ++probe) {
      Time time;
      const int failure = time_batch(test, *iterations, &time);
      if (failure != 0) return failure;
      if (probe == 0 || time.slowest < best) best = time.slowest;
    }
    const double filled = best * (double)*iterations;
    if (filled >= batch_us / 2 || *iterations >= (uint64_t)1 << 24) {
      const double calls = batch_us / best, fitting = min_ms * 1e3 / best;
      *iterations = calls < 1 ? 1 : (uint64_t)calls;
      *batches = fitting >= kMostBatches    ? kMostBatches
                 : fitting >= kLeastBatches ? (uint64_t)fitting
                                            : kLeastBatches;
      return 0;
    }
    *iterations *= filled * 8 < batch_us ? 8 : 2;
  }
}

static int compare_numbers(const void* left, const void* right) {
  const double a = *(const double*)left, b = *(const double*)right;
  return (a > b) - (a < b);
}

static double median(double* numbers, uint64_t count) {
  qsort(numbers, count, sizeof numbers[0], compare_numbers);
  return (numbers[(count - 1) / 2] + numbers[count / 2]) / 2;
}

static int run_size(const Test* test, double min_ms) {
  const LoopPeer* peer = test->peer;
  int failure = call_verified(test);
  if (failure == 0) failure = warm_up(test);
  uint64_t iterations = 0, batches = 0;
  if (failure == 0) failure = calibrate(test, min_ms, &iterations, &batches);
  double slowest[kMostBatches] = {0}, mean[kMostBatches] = {0};
  for (uint64_t batch = 0; batch < batches && failure == 0; ++batch) {
    Time time;
    failure = time_batch(test, iterations, &time);
    slowest[batch] = time.slowest;
    mean[batch] = time.mean;
  }
  if (failure != 0 || peer->rank != 0) return failure;
  const double us = median(slowest, batches);  // It sorts them.
  printf(
      "{\"peer\":\"%s\",\"collective\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"count\":%zu,\"us\":%.4f,"
      "\"min\":%.4f,\"max\":%.4f,\"us_mean_rank\":%.4f,\"batches\":%d,\"iterations\":%llu}\n",
      peer->name, test->traits->name, peer->rank_count, test->bytes, test->call.count, us,
      slowest[0], slowest[batches - 1], median(mean, batches), (int)batches,
      (unsigned long long)iterations);
  fflush(stdout);
  return 0;
}

int loop_run(const LoopPeer* peer, const LoopOptions* options, float* input, float* output) {
  if (peer->rank_count > kLoopMostRanks) {
    fprintf(stderr, "%s: %d ranks; the loop takes up to %d\n", peer->name, peer->rank_count,
            kLoopMostRanks);
    return 2;
  }
  Test test = {
      peer, {options->collective, input, output, 0}, 0, &kTraits[options->collective], options->by};
  if (options->collective == kBarrier) return run_size(&test, options->min_ms);
  if (options->collective == kBroadcast) test.call.input = input = output;
  const size_t most_blocks = blocks(&test, has_blocks(options->collective));
  for (int i = 0; i < options->size_count; ++i) {
    test.bytes = options->sizes[i];
    test.call.count = test.bytes / sizeof(float) / most_blocks;
    if (test.call.count == 0) continue;
    if (test.by != NULL && !divides(test.by, test.bytes / sizeof(float), peer->rank_count))
      continue;
    fill(&test, input, output);
    const int failure = run_size(&test, options->min_ms);
    if (failure != 0) return failure;
  }
  return 0;
}
