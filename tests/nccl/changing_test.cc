// Communicators that get smaller, larger, or are given up while they are made; factors in device
// memory; and ranks of several hosts, as far as they know.
#include <chrono>
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
  error += said(ncclCommGetAsyncError(comm, &state)) + said(state);
  return data.values() == std::vector<int>(kCount, (1 << size) - 1) ? error : error + "wrong sum";
}

/// Has a thread for each rank do `live`, with that device.
void each(int ranks, const std::function<std::string(int rank)>& live) {
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

}  // namespace

TEST_CASE("a communicator without some of its ranks, which do nothing for it") {
  const int flags = GENERATE(NCCL_SHRINK_DEFAULT, NCCL_SHRINK_ABORT);
  const ncclUniqueId id = new_id();
  each(4, [&](int rank) -> std::string {
    ncclComm_t comm = nullptr, less = nullptr, least = nullptr;
    std::string error = said(ncclCommInitRank(&comm, 4, id, rank));
    if (!error.empty()) return error;
    if (rank == 0 || rank == 2) {
      int out[] = {3, 1};
      error = said(ncclCommShrink(comm, out, 2, &less, nullptr, flags));
      if (error.empty()) error = sum_up(less);
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
      if (rank == 1) {
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
  const auto start = std::chrono::steady_clock::now();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclUniqueId id = new_id();
  ncclComm_t comm = nullptr, other = nullptr;
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  REQUIRE(ncclCommInitRankConfig(&comm, 3, id, 0, &config) == ncclInProgress);
  REQUIRE(ncclCommInitRankConfig(&other, 3, id, 1, &config) == ncclInProgress);
  // It is to wait by now; rank 2 never comes. The usual timeout is a minute.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(ncclCommAbort(comm) == ncclSuccess);
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) REQUIRE(ncclCommGetAsyncError(other, &state) == ncclSuccess);
  CHECK(state != ncclSuccess);
  CHECK(std::string(ncclGetLastError(other)).find("gave the communicator up") != std::string::npos);
  CHECK(ncclCommAbort(other) == ncclSuccess);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
}

TEST_CASE("a factor in device memory, which the stream writes just before") {
  const AllRanks ranks({0, 1});
  std::vector<OnDevice<float>> data, factors;
  std::vector<ncclRedOp_t> ops(2);
  const float values[] = {2.0F, 0.5F};
  for (int r = 0; r < 2; ++r) {
    ranks.use(r);
    data.emplace_back(std::vector<float>(64, 8));
    factors.emplace_back(std::vector<float>(1, -1));
    REQUIRE(ncclRedOpCreatePreMulSum(&ops[r], factors[r].data(), ncclFloat, ncclScalarDevice,
                                     ranks.comm(r)) == ncclSuccess);
  }
  ranks.together([&](int r) {
    cudaMemcpyAsync(factors[r].data(), values + r, sizeof(float), cudaMemcpyHostToDevice,
                    ranks.stream(r));
    return ncclAllReduce(data[r].data(), data[r].data(), 64, ncclFloat, ops[r], ranks.comm(r),
                         ranks.stream(r));
  });
  for (int r = 0; r < 2; ++r) CHECK(data[r].values() == std::vector<float>(64, 20));
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
