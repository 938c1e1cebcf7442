// Communicators that get smaller, larger, or are given up while they are made; factors in device
// memory; and ranks of several hosts, as far as they know.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "client.h"

using namespace tutti::test;

namespace {

/// What a rank said last if `result` is no success.
std::string said(ncclResult_t result) {
  return result == ncclSuccess ? "" : std::string("failed: ") + ncclGetLastError(nullptr);
}

/// Sums 2^rank over the communicator's ranks, several slots of it; empty if all is well.
std::string sum_up(ncclComm_t comm) {
  constexpr std::size_t kCount = 3000;
  int rank = -1, size = -1;
  std::string error = said(ncclCommUserRank(comm, &rank)) + said(ncclCommCount(comm, &size));
  if (!error.empty()) return error;
  OnDevice<int> data(std::vector<int>(kCount, 1 << rank));
  cudaStream_t stream = nullptr;  // Ranks of one device and one stream would wait for each other.
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  error += said(ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, comm, stream));
  cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  ncclResult_t state = ncclSuccess;
  error += said(ncclCommGetAsyncError(comm, &state));
  error += said(state);
  return data.values() == std::vector<int>(kCount, (1 << size) - 1) ? error : error + "wrong sum";
}

/// Has a thread for each rank do `live`, with that device.
void each(int ranks, const std::function<std::string(int rank)>& live) {
  REQUIRE(cudaSetDevice(0) == cudaSuccess);  // The simulated devices are there before threads ask.
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      cudaSetDevice(rank % 3);
      errors[static_cast<std::size_t>(rank)] = live(rank);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) CHECK(error == "");
}

ncclUniqueId new_id() {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  return id;
}

ncclConfig_t not_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

/// Once it is made, or can't be.
ncclResult_t result_of(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) return ncclInternalError;
    std::this_thread::yield();
  }
  return state;
}

/// It ends because another rank gave up, not by a timeout; and is given back.
void check_given_up(ncclComm_t comm) {
  CHECK(result_of(comm) != ncclSuccess);
  const std::string error = ncclGetLastError(comm);
  INFO(error);
  CHECK(error.find("gave the communicator up") != std::string::npos);
  CHECK(ncclCommAbort(comm) == ncclSuccess);
}

}  // namespace

TEST_CASE("a communicator without some of its ranks, which do nothing for it") {
  const int flags = GENERATE(NCCL_SHRINK_DEFAULT, NCCL_SHRINK_ABORT);
  const ncclUniqueId id = new_id();
  std::barrier<> joined(4);  // An abort may fail a peer that is still joining.
  std::barrier<> summed(2);  // Before one of the two aborts what they have summed over.
  each(4, [&](int rank) -> std::string {
    ncclComm_t comm = nullptr, less = nullptr, least = nullptr;
    std::string error = said(ncclCommInitRank(&comm, 4, id, rank));
    joined.arrive_and_wait();
    if (!error.empty()) return error;
    if (rank == 0 || rank == 2) {
      int out[] = {3, 1};
      error = said(ncclCommShrink(comm, out, 2, &less, nullptr, flags));
      if (error.empty()) error = sum_up(less);
      summed.arrive_and_wait();
      int number = -1;
      error += said(ncclCommUserRank(less, &number));
      if (number != rank / 2) error += "its number is another one";
      int other[] = {1 - number};
      // Once more, of what is left.
      if (rank == 0 && error.empty())
        error = said(ncclCommShrink(less, other, 1, &least, nullptr, flags));
      if (rank == 0 && error.empty()) error = sum_up(least);
    }
    for (ncclComm_t one : {least, less, comm}) error += said(ncclCommDestroy(one));
    return error;
  });
}

TEST_CASE("a communicator with more ranks than before") {
  const ncclUniqueId id = new_id();
  ncclUniqueId more{};
  std::atomic<bool> there{false};
  each(4, [&](int rank) -> std::string {
    ncclComm_t comm = nullptr, grown = nullptr;
    if (rank < 2) {
      std::string error = said(ncclCommInitRank(&comm, 2, id, rank));
      if (!error.empty()) return error;
      if (rank == 0) {  // The other rank knows nothing of what this one makes alone.
        int out[] = {1};
        ncclComm_t alone = nullptr;
        error = said(ncclCommShrink(comm, out, 1, &alone, nullptr, NCCL_SHRINK_DEFAULT));
        error += said(ncclCommDestroy(alone));
      } else {
        error = said(ncclCommGetUniqueId(comm, &more));
        there.store(true);
      }
      error += said(ncclCommGrow(comm, 4, rank == 1 ? &more : nullptr, -1, &grown, nullptr));
      if (!error.empty()) return error;
    } else {
      while (!there.load()) std::this_thread::yield();
      const std::string error = said(ncclCommGrow(nullptr, 4, &more, rank, &grown, nullptr));
      if (!error.empty()) return error;
    }
    int number = -1;
    std::string error = said(ncclCommUserRank(grown, &number));
    error += sum_up(grown);
    if (number != rank) error += "its number is another one";
    return error + said(ncclCommDestroy(grown)) + said(ncclCommDestroy(comm));
  });
}

TEST_CASE("a communicator that is given up while it is made") {
  ncclConfig_t config = not_blocking();
  const ncclUniqueId id = new_id();
  ncclComm_t comm = nullptr, other = nullptr;
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  REQUIRE(ncclCommInitRankConfig(&comm, 3, id, 0, &config) == ncclInProgress);
  REQUIRE(ncclCommInitRankConfig(&other, 3, id, 1, &config) == ncclInProgress);
  // Whether it waits by now or not yet; rank 2 never comes.
  CHECK(ncclCommAbort(comm) == ncclSuccess);
  check_given_up(other);
}

TEST_CASE("a child that is given up ends for all, and what is made later is not touched") {
  const AllRanks ranks({0, 1, 2});
  int out[] = {0};
  const auto start = [&](int rank) {
    ncclConfig_t config = not_blocking();
    ncclComm_t less = nullptr;
    REQUIRE(ncclCommShrink(ranks.comm(rank), out, 1, &less, &config, NCCL_SHRINK_DEFAULT) ==
            ncclInProgress);
    return less;
  };
  for (const int quitter : {1, 2}) {  // The one that knows where to meet, or the one that asks.
    for (const bool alone : {true, false}) {
      ncclComm_t given_up = start(quitter), other = alone ? nullptr : start(3 - quitter);
      CHECK(ncclCommAbort(given_up) == ncclSuccess);
      check_given_up(alone ? start(3 - quitter) : other);
    }
  }
  each(3, [&](int rank) -> std::string {
    ncclComm_t less = nullptr;
    if (rank == 0) return "";
    std::string error = said(ncclCommShrink(ranks.comm(rank), out, 1, &less, nullptr, 0));
    if (error.empty()) error = sum_up(less);
    return error + said(ncclCommDestroy(less));
  });
}

TEST_CASE("a part that is given up while it is split off ends for all") {
  const AllRanks ranks({0, 1});
  ncclConfig_t config = not_blocking();
  ncclComm_t part = nullptr, other = nullptr;
  REQUIRE(ncclCommSplit(ranks.comm(0), 0, 0, &part, &config) == ncclInProgress);
  CHECK(ncclCommAbort(part) == ncclSuccess);
  REQUIRE(ncclCommSplit(ranks.comm(1), 0, 1, &other, &config) == ncclInProgress);
  check_given_up(other);
}

TEST_CASE("children have names alike on all ranks, whatever some have made without the others") {
  const ncclUniqueId id = new_id();
  each(4, [&](int rank) -> std::string {
    ncclComm_t comm = nullptr, part = nullptr;
    std::string error = said(ncclCommInitRank(&comm, 4, id, rank));
    if (!error.empty()) return error;
    const auto without = [&](ncclComm_t parent, std::vector<int> out) {
      ncclComm_t less = nullptr;
      error += said(ncclCommShrink(parent, out.data(), out.size(), &less, nullptr, 0));
      if (error.empty()) error = sum_up(less);
      error += said(ncclCommDestroy(less));
    };
    // Halves that leave each other out at the same time; then one is left out.
    without(comm, rank % 2 == 0 ? std::vector<int>{1, 3} : std::vector<int>{2, 0});
    if (rank != 3) without(comm, {3});
    error += said(ncclCommSplit(comm, 0, rank, &part, nullptr));
    if (error.empty()) error = sum_up(part);
    if (rank != 0 && error.empty()) without(part, {0});
    return error + said(ncclCommDestroy(part)) + said(ncclCommDestroy(comm));
  });
}

TEST_CASE("a parent that is given back while others are made of it") {
  const bool grows = GENERATE(false, true);
  const ncclUniqueId id = new_id(), more = new_id();
  std::atomic<int> gone{0};
  // The last rank of a process that leaves frees its ranks' memory, and waits for their devices.
  std::barrier<> all_made(grows ? 3 : 2);
  each(grows ? 3 : 2, [&](int rank) -> std::string {
    ncclComm_t comm = nullptr, child = nullptr;
    ncclConfig_t config = not_blocking();
    std::string error;
    if (rank == 2) {
      while (gone.load() < 2) std::this_thread::yield();
      error = said(ncclCommGrow(nullptr, 3, &more, 2, &child, nullptr));
    } else {
      error = said(ncclCommInitRank(&comm, 2, id, rank));
      const auto* const given = rank == 1 ? &more : nullptr;
      const ncclResult_t begun = grows ? ncclCommGrow(comm, 3, given, -1, &child, &config)
                                       : ncclCommSplit(comm, 0, rank, &child, &config);
      if (begun != ncclInProgress) error += "it was not begun";
      error += said(ncclCommDestroy(comm));
      gone.fetch_add(1);
      if (error.empty()) error = said(result_of(child));
    }
    all_made.arrive_and_wait();
    if (error.empty()) error = sum_up(child);
    return error + said(ncclCommDestroy(child));
  });
}

/// Captures and replays an all-reduce in which each rank has a factor of type T in device memory,
/// which the stream writes before each replay.
template <class T>
void scale_by_memory(ncclDataType_t type, std::size_t count) {
  const AllRanks ranks({0, 1});
  std::vector<OnDevice<T>> in, out, factors;
  std::vector<ncclRedOp_t> ops(2);
  std::vector<cudaGraphExec_t> graphs(2);
  for (int r = 0; r < 2; ++r) {
    ranks.use(r);
    in.emplace_back(std::vector<T>(count, 8));
    out.emplace_back(std::vector<T>(count, 0));
    factors.emplace_back(std::vector<T>(1, 1));
    REQUIRE(ncclRedOpCreatePreMulSum(&ops[r], factors[r].data(), type, ncclScalarDevice,
                                     ranks.comm(r)) == ncclSuccess);
    REQUIRE(cudaStreamBeginCapture(ranks.stream(r), cudaStreamCaptureModeThreadLocal) ==
            cudaSuccess);
    const ncclResult_t called = ncclAllReduce(in[r].data(), out[r].data(), count, type, ops[r],
                                              ranks.comm(r), ranks.stream(r));
    INFO(ncclGetLastError(nullptr));
    REQUIRE(called == ncclSuccess);
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(ranks.stream(r), &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&graphs[r], graph, 0) == cudaSuccess);
    REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
  }
  for (const T factor : {T{2}, T{5}}) {
    for (int r = 0; r < 2; ++r) {
      ranks.use(r);
      const T own = static_cast<T>(factor + static_cast<T>(r));
      // The stream is idle, so the value is copied at once.
      cudaMemcpyAsync(factors[r].data(), &own, sizeof own, cudaMemcpyHostToDevice, ranks.stream(r));
      cudaStreamSynchronize(ranks.stream(r));
      REQUIRE(cudaGraphLaunch(graphs[r], ranks.stream(r)) == cudaSuccess);
    }
    for (int r = 0; r < 2; ++r) {
      REQUIRE(cudaStreamSynchronize(ranks.stream(r)) == cudaSuccess);
      const auto found = out[r].values();
      const auto sum = static_cast<T>(8 * factor + 8 * (factor + 1));
      CHECK(std::count(found.begin(), found.end(), sum) == static_cast<std::ptrdiff_t>(count));
    }
  }
  for (cudaGraphExec_t graph : graphs) CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
}

TEST_CASE("a factor in device memory is read when the call runs, in graphs too") {
  for (const std::size_t count : {std::size_t{64}, std::size_t{70000}}) {
    scale_by_memory<float>(ncclFloat, count);
    scale_by_memory<std::int64_t>(ncclInt64, count);
  }
}

TEST_CASE("ranks of several hosts, as far as they know: by a network, in groups of two") {
  REQUIRE(setenv("TUTTI_TRANSPORT", "tcp", 1) == 0);
  REQUIRE(setenv("TUTTI_GROUPS", "2", 1) == 0);
  const ncclUniqueId id = new_id();
  each(4, [&](int rank) -> std::string {
    ncclComm_t comm = nullptr, part = nullptr;
    std::string error = said(ncclCommInitRank(&comm, 4, id, rank));
    if (!error.empty()) return error;
    error = sum_up(comm);
    error += said(ncclCommSplit(comm, rank % 2, rank, &part, nullptr));
    if (error.empty()) error = sum_up(part);
    return error + said(ncclCommDestroy(part)) + said(ncclCommDestroy(comm));
  });
  unsetenv("TUTTI_TRANSPORT");
  unsetenv("TUTTI_GROUPS");
}
