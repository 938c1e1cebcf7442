// File: perf/peers/copy_floor.cc: what the memory of this host can do: every rank is a thread that
// copies its own buffer with streaming stores, all at the same time and without waiting for each
// other. An all-reduce of M bytes reads M and writes M per rank at least, which is the traffic of
// this copy of M; so its time is the floor of an all-reduce of the same size (beyond the caches).
//   copy_floor --ranks 2 --sizes 67108864
// It runs in the timing loop of loop.h and prints what peers print.
#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <thread>
#include <vector>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "loop.h"

namespace {

/// The memory that the ranks share.
struct Shared {
  explicit Shared(int ranks) : gate(ranks) {}
  std::barrier<> gate;
  double times[kLoopMostRanks] = {};
};

struct Copier {
  Shared* shared;
  int rank, rank_count;
};

int copy(void*, const LoopCall* call) {
  if (call->collective != kAllReduce) return loop_not_there("copy_floor", call->collective);
  const float* input = call->input;
  float* output = call->output;
  const std::size_t count = call->count;
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> tag;
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    for (std::size_t j = i; j < i + 4 * lanes; j += lanes) {
      hn::Stream(hn::Load(tag, input + j), tag, output + j);
    }
  }
  for (; i < count; ++i) output[i] = input[i];
  hwy::FlushStream();
  return 0;
}

int barrier(void* context) {
  static_cast<Copier*>(context)->shared->gate.arrive_and_wait();
  return 0;
}

int share(void* context, double mine, double* of_all) {
  const auto* me = static_cast<Copier*>(context);
  me->shared->times[me->rank] = mine;
  me->shared->gate.arrive_and_wait();
  std::copy_n(me->shared->times, me->rank_count, of_all);
  me->shared->gate.arrive_and_wait();
  return 0;
}

/// A failure ends the process: the other ranks would wait for this one for ever.
void run_rank(int rank, const LoopOptions& options, Shared& shared) {
  constexpr std::size_t kPage = 4096;
  const std::size_t bytes = (options.largest + kPage - 1) / kPage * kPage;
  auto* input = static_cast<float*>(std::aligned_alloc(kPage, bytes));
  auto* output = static_cast<float*>(std::aligned_alloc(kPage, bytes));
  Copier me{&shared, rank, options.ranks};
  const LoopPeer peer{"copy_floor", rank, options.ranks, 1, &me, copy, barrier, share};
  int failure = 1;
  if (input != nullptr && output != nullptr) failure = loop_run(&peer, &options, input, output);
  if (failure != 0) std::_Exit(failure);
  std::free(input);
  std::free(output);
}

}  // namespace

int main(int argc, char** argv) {
  LoopOptions options;
  if (const int failure = loop_parse(argc, argv, &options); failure != 0) return failure;
  if (options.ranks == 0) options.ranks = 2;
  Shared shared(options.ranks);
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < options.ranks; ++rank) {
    ranks.emplace_back(run_rank, rank, std::cref(options), std::ref(shared));
  }
  return 0;
}
