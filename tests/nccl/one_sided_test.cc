// One-sided operations: what a put brings, how many signals a wait takes, and what is refused.
#include <chrono>
#include <string>
#include <thread>

#include "client.h"

using namespace tutti::test;

namespace {

bool says(const std::string& part) {
  return std::string(ncclGetLastError(nullptr)).find(part) != std::string::npos;
}

/// A window of each rank, of so many floats that are all `value`.
class Windows {
 public:
  Windows(const AllRanks& ranks, std::size_t count, float value, int flags) : ranks_(ranks) {
    windows_.resize(static_cast<std::size_t>(ranks.size()));
    for (int rank = 0; rank < ranks.size(); ++rank) {
      ranks.use(rank);
      memories_.emplace_back(std::vector<float>(count, value));
    }
    ranks.together([&](int rank) {
      return ncclCommWindowRegister(ranks.comm(rank), memory(rank).data(), count * sizeof(float),
                                    &window(rank), flags);
    });
  }
  ~Windows() {
    for (int rank = 0; rank < ranks_.size(); ++rank)
      static_cast<void>(ncclCommWindowDeregister(ranks_.comm(rank), window(rank)));
  }
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;
  ncclWindow_t& window(int rank) { return windows_[static_cast<std::size_t>(rank)]; }
  OnDevice<float>& memory(int rank) { return memories_[static_cast<std::size_t>(rank)]; }

 private:
  const AllRanks& ranks_;
  std::vector<OnDevice<float>> memories_;
  std::vector<ncclWindow_t> windows_;
};

}  // namespace

TEST_CASE("all ranks put to all in a group, and wait for all by one list") {
  const AllRanks ranks({0, 1, 2});
  constexpr std::size_t kCount = 700;
  Windows windows(ranks, 3 * kCount, -1, NCCL_WIN_COLL_SYMMETRIC);
  std::vector<OnDevice<float>> sources;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.use(rank);
    sources.emplace_back(std::vector<float>(kCount, static_cast<float>(rank)));
  }
  ranks.together([&](int rank) {
    ncclWaitSignalDesc_t list[3];
    for (int peer = 0; peer < 3; ++peer) {
      const ncclResult_t put = ncclPutSignal(
          sources[static_cast<std::size_t>(rank)].data(), kCount, ncclFloat, peer,
          windows.window(rank), static_cast<std::size_t>(rank) * kCount * sizeof(float), 0, 0, 0,
          ranks.comm(rank), ranks.stream(rank));
      if (put != ncclSuccess) return put;
      list[peer] = {1, peer, 0, 0};
    }
    return ncclWaitSignal(3, list, ranks.comm(rank), ranks.stream(rank));
  });
  for (int rank = 0; rank < 3; ++rank) {
    ranks.use(rank);
    const std::vector<float> found = windows.memory(rank).values();
    for (std::size_t i = 0; i < found.size(); ++i)
      REQUIRE(found[i] == static_cast<float>(i / kCount));
  }
}

TEST_CASE("a wait takes as many signals as its descriptor says, of that index and context") {
  const AllRanks ranks({0, 1});
  ranks.use(0);
  for (int i = 0; i < 3; ++i)
    REQUIRE(ncclSignal(1, 2, 1, 0, ranks.comm(0), ranks.stream(0)) == ncclSuccess);
  REQUIRE(ncclSignal(1, 2, 0, 0, ranks.comm(0), ranks.stream(0)) == ncclSuccess);
  REQUIRE(cudaStreamSynchronize(ranks.stream(0)) == cudaSuccess);
  ranks.use(1);
  ncclWaitSignalDesc_t list[] = {{2, 0, 2, 1}, {1, 0, 2, 0}, {0, 0, 0, 0}};
  REQUIRE(ncclWaitSignal(3, list, ranks.comm(1), ranks.stream(1)) == ncclSuccess);
  CHECK(cudaStreamSynchronize(ranks.stream(1)) == cudaSuccess);
  // One is left, but of another context. So the stream waits until it is let go.
  REQUIRE(ncclWaitSignal(1, list + 1, ranks.comm(1), ranks.stream(1)) == ncclSuccess);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(cudaStreamQuery(ranks.stream(1)) == cudaErrorNotReady);
  ncclResult_t state = ncclSuccess;
  CHECK(ncclCommGetAsyncError(ranks.comm(1), &state) == ncclSuccess);
  CHECK(state == ncclSuccess);
  CHECK(ncclCommRevoke(ranks.comm(1), NCCL_REVOKE_DEFAULT) == ncclSuccess);
  CHECK(cudaStreamSynchronize(ranks.stream(1)) == cudaSuccess);
}

TEST_CASE("what is wrong with a one-sided operation is said, and nothing is started") {
  const AllRanks ranks({0, 1}), others({0, 1});
  Windows windows(ranks, 100, 1, NCCL_WIN_COLL_SYMMETRIC), plain(ranks, 100, 1, NCCL_WIN_DEFAULT);
  ranks.use(0);
  ncclComm_t comm = ranks.comm(0);
  cudaStream_t stream = ranks.stream(0);
  float* const data = windows.memory(0).data();
  const auto put = [&](ncclWindow_t window, std::size_t count, std::size_t offset, int peer = 1,
                       int index = 0, int context = 0, unsigned flags = 0) {
    return ncclPutSignal(data, count, ncclFloat, peer, window, offset, index, context, flags, comm,
                         stream);
  };
  ncclWindow_t window = windows.window(0);
  CHECK(put(window, 100, 4) == ncclInvalidArgument);
  CHECK(says("ncclPutSignal: 100 elements of 4 bytes at offset 4 of a window of 400 bytes"));
  CHECK(put(window, ~std::size_t{0}, 0) == ncclInvalidArgument);
  CHECK(put(window, 1, 401) == ncclInvalidArgument);
  CHECK(put(nullptr, 1, 0) == ncclInvalidArgument);
  CHECK(says("peerWin is no window of the communicator"));
  CHECK(ncclPutSignal(data, 1, ncclFloat, 1, window, 0, 0, 0, 0, others.comm(0), stream) ==
        ncclInvalidArgument);
  CHECK(ncclPutSignal(nullptr, 1, ncclFloat, 1, window, 0, 0, 0, 0, comm, stream) ==
        ncclInvalidArgument);
  CHECK(ncclPutSignal(data, 1, static_cast<ncclDataType_t>(13), 1, window, 0, 0, 0, 0, comm,
                      stream) == ncclInvalidArgument);
  CHECK(put(window, 1, 0, 2) == ncclInvalidArgument);
  CHECK(says("peer is 2; it is from 0 to 1"));
  CHECK(put(window, 1, 0, 1, 8) == ncclInvalidArgument);
  CHECK(says("sigIdx is 8"));
  CHECK(put(window, 1, 0, 1, 0, -1) == ncclInvalidArgument);
  CHECK(says("ctx is -1"));
  CHECK(put(window, 1, 0, 1, 0, 0, 1) == ncclInvalidArgument);
  CHECK(says("flags is 1"));
  CHECK(put(plain.window(0), 1, 0) == ncclInvalidUsage);
  CHECK(says("NCCL_WIN_COLL_SYMMETRIC"));
  CHECK(ncclSignal(2, 0, 0, 0, comm, stream) == ncclInvalidArgument);
  CHECK(ncclSignal(1, 0, 0, 0, nullptr, stream) == ncclInvalidArgument);
  ncclWaitSignalDesc_t list[] = {{1, 1, 0, 0}, {-1, 1, 0, 0}};
  CHECK(ncclWaitSignal(2, list, comm, stream) == ncclInvalidArgument);
  CHECK(says("ncclWaitSignal: descriptor 1: opCnt is -1"));
  list[0].peer = -1;
  CHECK(ncclWaitSignal(1, list, comm, stream) == ncclInvalidArgument);
  CHECK(ncclWaitSignal(1, nullptr, comm, stream) == ncclInvalidArgument);
  CHECK(ncclWaitSignal(-1, list, comm, stream) == ncclInvalidArgument);
  CHECK(ncclWaitSignal(0, nullptr, comm, stream) == ncclSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);  // Nothing waits there.
  ranks.use(1);
  CHECK(windows.memory(1).values() == std::vector<float>(100, 1));
}
