// A program that uses NCCL, over our libnccl: communicators, groups, collectives, messages,
// mistakes.
#include "client.h"
#include "compat/nccl/comm.h"

#include <chrono>
#include <cstring>
#include <numeric>
#include <string>

using namespace tutti::test;

namespace {

/// What rank `rank` has at `i`: small, so that sums are exact in every type.
float value_of(int rank, std::size_t i) { return static_cast<float>((rank + 1) * 3 + int(i % 7)); }

std::vector<float> values_of(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value_of(rank, i);
  return values;
}

/// Every rank's buffer, filled by `values(rank)`.
std::vector<OnDevice<float>> buffers(const AllRanks& ranks,
                                     const std::function<std::vector<float>(int)>& values) {
  std::vector<OnDevice<float>> made;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    ranks.use(rank);
    made.emplace_back(values(rank));
  }
  return made;
}

float sum_at(int ranks, std::size_t i) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += value_of(rank, i);
  return sum;
}

}  // namespace

TEST_CASE("one thread, a communicator for each device: the collectives that reduce") {
  const auto devices = GENERATE(std::vector<int>{0}, std::vector<int>{0, 1},
                                std::vector<int>{0, 0, 1}, std::vector<int>{0, 1, 2, 3});
  const AllRanks ranks(devices);
  const std::size_t count = GENERATE(1, 37, 5000);
  const int size = ranks.size();
  auto in = buffers(ranks, [&](int rank) { return values_of(rank, count * std::size_t(size)); });
  auto out = buffers(ranks, [&](int) { return std::vector<float>(count * std::size_t(size), -1); });
  CAPTURE(size, count);

  ranks.together([&](int r) {
    return ncclAllReduce(in[r].data(), out[r].data(), count, ncclFloat, ncclSum, ranks.comm(r),
                         ranks.stream(r));
  });
  for (int r = 0; r < size; ++r) {
    const auto found = out[r].values();
    for (std::size_t i = 0; i < count; ++i) REQUIRE(found[i] == sum_at(size, i));
    for (std::size_t i = count; i < found.size(); ++i) REQUIRE(found[i] == -1);
  }

  ranks.together([&](int r) {
    return ncclReduceScatter(in[r].data(), out[r].data(), count, ncclFloat, ncclMax, ranks.comm(r),
                             ranks.stream(r));
  });
  for (int r = 0; r < size; ++r) {
    const auto found = out[r].values();
    for (std::size_t i = 0; i < count; ++i) {
      REQUIRE(found[i] == value_of(size - 1, i + std::size_t(r) * count));
    }
  }

  const int root = size - 1;
  ranks.together([&](int r) {
    return ncclReduce(in[r].data(), r == root ? out[r].data() : nullptr, count, ncclFloat, ncclAvg,
                      root, ranks.comm(r), ranks.stream(r));
  });
  const auto averages = out[root].values();
  for (std::size_t i = 0; i < count; ++i) {
    REQUIRE(averages[i] == Approx(sum_at(size, i) / static_cast<float>(size)));
  }
}

TEST_CASE("one thread, a communicator for each device: the collectives that copy") {
  const AllRanks ranks({0, 1, 2});
  const std::size_t count = GENERATE(1, 1000);
  const int size = ranks.size(), root = 1;
  const std::size_t all = count * std::size_t(size);
  auto in = buffers(ranks, [&](int rank) { return values_of(rank, all); });
  auto out = buffers(ranks, [&](int) { return std::vector<float>(all, -1); });
  CAPTURE(count);

  ranks.together([&](int r) {
    return ncclBroadcast(in[r].data(), out[r].data(), count, ncclFloat, root, ranks.comm(r),
                         ranks.stream(r));
  });
  for (int r = 0; r < size; ++r) REQUIRE(out[r].values()[count - 1] == value_of(root, count - 1));

  ranks.together([&](int r) {
    return ncclAllGather(in[r].data(), out[r].data(), count, ncclFloat, ranks.comm(r),
                         ranks.stream(r));
  });
  for (int r = 0; r < size; ++r) {
    const auto found = out[r].values();
    for (std::size_t i = 0; i < all; ++i) {
      REQUIRE(found[i] == value_of(static_cast<int>(i / count), i % count));
    }
  }

  ranks.together([&](int r) {
    return ncclAlltoAll(in[r].data(), out[r].data(), count, ncclFloat, ranks.comm(r),
                        ranks.stream(r));
  });
  for (int r = 0; r < size; ++r) {
    const auto found = out[r].values();
    for (std::size_t i = 0; i < all; ++i) {
      const auto from = static_cast<int>(i / count);
      REQUIRE(found[i] == value_of(from, std::size_t(r) * count + i % count));
    }
  }

  ranks.together([&](int r) {
    return ncclGather(in[r].data(), out[r].data(), count, ncclFloat, root, ranks.comm(r),
                      ranks.stream(r));
  });
  const auto gathered = out[root].values();
  for (std::size_t i = 0; i < all; ++i) {
    REQUIRE(gathered[i] == value_of(static_cast<int>(i / count), i % count));
  }

  ranks.together([&](int r) {
    return ncclScatter(in[r].data(), out[r].data(), count, ncclFloat, root, ranks.comm(r),
                       ranks.stream(r));
  });
  for (int r = 0; r < size; ++r) {
    REQUIRE(out[r].values()[0] == value_of(root, std::size_t(r) * count));
  }
}

TEST_CASE("messages in a group: around a ring, to oneself, several at once") {
  const AllRanks ranks({0, 1, 2});
  const std::size_t count = 300;
  const int size = ranks.size();
  auto in = buffers(ranks, [&](int rank) { return values_of(rank, count); });
  auto out = buffers(ranks, [&](int) { return std::vector<float>(2 * count, -1); });
  ranks.together([&](int r) {
    REQUIRE(ncclGroupStart() == ncclSuccess);  // Groups nest.
    const int next = (r + 1) % size, before = (r + size - 1) % size;
    REQUIRE(ncclSend(in[r].data(), count, ncclFloat, next, ranks.comm(r), ranks.stream(r)) == 0);
    REQUIRE(ncclRecv(out[r].data(), count, ncclFloat, before, ranks.comm(r), ranks.stream(r)) == 0);
    REQUIRE(ncclSend(in[r].data(), count, ncclFloat, r, ranks.comm(r), ranks.stream(r)) == 0);
    REQUIRE(ncclRecv(out[r].data() + count, count, ncclFloat, r, ranks.comm(r), ranks.stream(r)) ==
            0);
    return ncclGroupEnd();
  });
  for (int r = 0; r < size; ++r) {
    const auto found = out[r].values();
    for (std::size_t i = 0; i < count; ++i) {
      REQUIRE(found[i] == value_of((r + size - 1) % size, i));
      REQUIRE(found[count + i] == value_of(r, i));
    }
  }
}

TEST_CASE("a thread for each rank, met by a unique id, two of them on one device") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  constexpr int kSize = 3;
  const std::size_t count = 1000;
  std::vector<std::string> errors(kSize);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      const auto said = [&](ncclResult_t result) {
        if (result != ncclSuccess && errors[rank].empty()) errors[rank] = ncclGetLastError(nullptr);
        return result == ncclSuccess;
      };
      cudaSetDevice(rank / 2);
      ncclComm_t comm = nullptr;
      if (!said(ncclCommInitRank(&comm, kSize, id, rank))) return;
      int number = -1, of = -1, device = -1;
      if (!said(ncclCommUserRank(comm, &number)) || !said(ncclCommCount(comm, &of)) ||
          !said(ncclCommCuDevice(comm, &device)) || number != rank || of != kSize ||
          device != rank / 2) {
        errors[rank] = "the communicator does not know who it is";
      }
      void* data = nullptr;
      said(ncclMemAlloc(&data, count * sizeof(float)));
      const auto mine = values_of(rank, count);
      cudaMemcpy(data, mine.data(), count * sizeof(float), cudaMemcpyHostToDevice);
      cudaStream_t stream =
          nullptr;  // Ranks of one device and one stream would wait for each other.
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      for (int call = 0; call < 3; ++call) {  // In place.
        said(ncclAllReduce(data, data, count, ncclFloat, ncclSum, comm, stream));
      }
      cudaStreamSynchronize(stream);
      ncclResult_t state = ncclInternalError;
      said(ncclCommGetAsyncError(comm, &state));
      said(state);
      std::vector<float> found(count);
      cudaMemcpy(found.data(), data, count * sizeof(float), cudaMemcpyDeviceToHost);
      for (std::size_t i = 0; i < count; ++i) {
        if (found[i] != sum_at(kSize, i) * kSize * kSize) errors[rank] = "wrong sum";
      }
      said(ncclMemFree(data));
      said(ncclCommFinalize(comm));
      said(ncclCommDestroy(comm));
      cudaStreamDestroy(stream);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) CHECK(error == "");
}

TEST_CASE("a factor of each rank's own") {
  const AllRanks ranks({0, 1});
  auto in = buffers(ranks, [&](int rank) { return values_of(rank, 64); });
  std::vector<ncclRedOp_t> ops(2);
  for (int r = 0; r < 2; ++r) {
    float factor = r == 0 ? 2.0F : 0.5F;
    REQUIRE(ncclRedOpCreatePreMulSum(&ops[r], &factor, ncclFloat, ncclScalarHostImmediate,
                                     ranks.comm(r)) == ncclSuccess);
  }
  ranks.together([&](int r) {
    return ncclAllReduce(in[r].data(), in[r].data(), 64, ncclFloat, ops[r], ranks.comm(r),
                         ranks.stream(r));
  });
  for (std::size_t i = 0; i < 64; ++i) {
    CHECK(in[0].values()[i] == 2 * value_of(0, i) + value_of(1, i) / 2);
  }
  REQUIRE(ncclRedOpDestroy(ops[0], ranks.comm(0)) == ncclSuccess);
  CHECK(ncclAllReduce(in[0].data(), in[0].data(), 64, ncclFloat, ops[0], ranks.comm(0),
                      ranks.stream(0)) == ncclInvalidArgument);
  CHECK(ncclRedOpDestroy(ops[0], ranks.comm(0)) == ncclInvalidArgument);
  CHECK(ncclRedOpDestroy(ncclSum, ranks.comm(0)) == ncclInvalidArgument);
}

TEST_CASE("a split by color: two communicators and a rank of none") {
  const AllRanks ranks({0, 1, 2});
  std::vector<ncclComm_t> parts(3, ranks.comm(0));
  ranks.together([&](int r) {
    return ncclCommSplit(ranks.comm(r), r == 1 ? NCCL_SPLIT_NOCOLOR : 5, -r, &parts[r], nullptr);
  });
  CHECK(parts[1] == nullptr);
  int number = -1, size = -1;
  REQUIRE(ncclCommUserRank(parts[0], &number) == ncclSuccess);
  REQUIRE(ncclCommCount(parts[0], &size) == ncclSuccess);
  CHECK(number == 1);  // By key: rank 2 is first.
  CHECK(size == 2);
  auto in = buffers(ranks, [&](int rank) { return values_of(rank, 8); });
  ranks.together([&](int r) {
    if (parts[r] == nullptr) return ncclSuccess;
    return ncclAllReduce(in[r].data(), in[r].data(), 8, ncclFloat, ncclSum, parts[r],
                         ranks.stream(r));
  });
  CHECK(in[0].values()[3] == value_of(0, 3) + value_of(2, 3));
  CHECK(in[1].values()[3] == value_of(1, 3));
  for (ncclComm_t part : parts) CHECK(ncclCommDestroy(part) == ncclSuccess);
}

TEST_CASE("a communicator that does not block is in progress, then there") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  std::vector<ncclComm_t> comms(2, nullptr);
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(cudaSetDevice(rank) == cudaSuccess);
    CHECK(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config) == ncclInProgress);
    REQUIRE(comms[rank] != nullptr);
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (ncclComm_t comm : comms) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress && std::chrono::steady_clock::now() < end) {
      REQUIRE(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
    }
    INFO(ncclGetLastError(comm));
    CHECK(state == ncclSuccess);
  }
  for (ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

/// Memory of a rank, and its window.
struct Window {
  void* data = nullptr;
  ncclWindow_t window = nullptr;
};

/// What an all-reduce of windows gives, from `offset` bytes on on rank 1.
ncclResult_t reduce_windows(const AllRanks& ranks, std::size_t bytes, std::size_t offset) {
  std::vector<Window> windows(static_cast<std::size_t>(ranks.size()));
  const auto of = [&](int rank) -> Window& { return windows[static_cast<std::size_t>(rank)]; };
  for (int rank = 0; rank < ranks.size(); ++rank) {
    ranks.use(rank);
    REQUIRE(ncclMemAlloc(&of(rank).data, bytes + offset) == ncclSuccess);
    const std::vector<float> ones((bytes + offset) / sizeof(float), 1);
    REQUIRE(cudaMemcpy(of(rank).data, ones.data(), bytes + offset, cudaMemcpyHostToDevice) ==
            cudaSuccess);
  }
  ranks.together([&](int rank) {
    return ncclCommWindowRegister(ranks.comm(rank), of(rank).data, bytes + offset, &of(rank).window,
                                  NCCL_WIN_COLL_SYMMETRIC);
  });
  ranks.together([&](int rank) {
    auto* const data = static_cast<std::byte*>(of(rank).data) + (rank == 1 ? offset : 0);
    return ncclAllReduce(data, data, bytes / sizeof(float), ncclFloat, ncclSum, ranks.comm(rank),
                         ranks.stream(rank));
  });
  ncclResult_t first = ncclSuccess;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    ncclResult_t state = ncclSuccess;
    REQUIRE(ncclCommGetAsyncError(ranks.comm(rank), &state) == ncclSuccess);
    if (first == ncclSuccess) first = state;
    if (state != ncclSuccess || first != ncclSuccess) continue;
    std::vector<float> found(bytes / sizeof(float));
    cudaMemcpy(found.data(), of(rank).data, offset == 0 ? bytes : 0, cudaMemcpyDeviceToHost);
    if (offset == 0)
      CHECK(std::count(found.begin(), found.end(), static_cast<float>(ranks.size())) ==
            static_cast<std::ptrdiff_t>(found.size()));
  }
  for (int rank = ranks.size() - 1; rank >= 0; --rank) {
    CHECK(ncclCommWindowDeregister(ranks.comm(rank), of(rank).window) == ncclSuccess);
    CHECK(ncclMemFree(of(rank).data) == ncclSuccess);  // The others may have it open still.
  }
  return first;
}

TEST_CASE("minCTAs and maxCTAs limit the lanes of a communicator") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  const auto lanes = [&](ncclComm_t comm) {
    const std::string text = comm->device_communicator->describe();
    const std::size_t end = text.find(" lanes\n"), begin = text.rfind(' ', end - 1);
    return text.substr(begin + 1, end - begin - 1);
  };
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.minCTAs = 1;
  config.maxCTAs = 6;
  ncclComm_t comms[3], left[2];
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(cudaSetDevice(rank) == cudaSuccess);
    REQUIRE(ncclCommInitRankConfig(&comms[rank], 3, id, rank, &config) == ncclSuccess);
  }
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  CHECK(lanes(comms[0]) == "6");
  // What is made of it has the same limits, but for those that its own configuration says.
  config.maxCTAs = NCCL_CONFIG_UNDEF_INT;
  config.minCTAs = 5;
  int excluded[] = {2};
  for (ncclConfig_t* own : {static_cast<ncclConfig_t*>(nullptr), &config}) {
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (int rank = 0; rank < 2; ++rank)
      REQUIRE(ncclCommShrink(comms[rank], excluded, 1, &left[rank], own, 0) == ncclSuccess);
    REQUIRE(ncclGroupEnd() == ncclSuccess);
    CHECK(lanes(left[1]) == "6");
    for (ncclComm_t comm : left) CHECK(ncclCommDestroy(comm) == ncclSuccess);
  }
  for (ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST_CASE("windows that are symmetric are read and written by peers") {
  const AllRanks ranks({0, 1, 1});
  for (const std::size_t bytes : {std::size_t{400}, std::size_t{1} << 20})
    CHECK(reduce_windows(ranks, bytes, 0) == ncclSuccess);
  // In another place than on the other ranks: only kernels that touch peers' memory notice that.
  CHECK(reduce_windows(ranks, std::size_t{1} << 20, 4096) != ncclSuccess);
}

TEST_CASE("a graph of calls, replayed") {
  const AllRanks ranks({0, 1});
  auto in = buffers(ranks, [&](int rank) { return values_of(rank, 500); });
  auto out = buffers(ranks, [&](int) { return std::vector<float>(500, -1); });
  const auto call = [&](int r) {
    return ncclAllReduce(in[r].data(), out[r].data(), 500, ncclFloat, ncclSum, ranks.comm(r),
                         ranks.stream(r));
  };
  ranks.together(call);  // What the call needs is there before the capture.
  std::vector<cudaGraphExec_t> graphs(2);
  for (int r = 0; r < 2; ++r) {
    ranks.use(r);
    REQUIRE(cudaStreamBeginCapture(ranks.stream(r), cudaStreamCaptureModeThreadLocal) ==
            cudaSuccess);
  }
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (int r = 0; r < 2; ++r) {
    ranks.use(r);
    REQUIRE(call(r) == ncclSuccess);
  }
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  for (int r = 0; r < 2; ++r) {
    ranks.use(r);
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(ranks.stream(r), &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&graphs[r], graph, 0) == cudaSuccess);
    REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
  }
  for (int replay = 0; replay < 3; ++replay) {
    for (int r = 0; r < 2; ++r) {
      ranks.use(r);
      const std::vector<float> changed(500, static_cast<float>(replay + r));
      REQUIRE(cudaMemcpy(in[r].data(), changed.data(), 500 * sizeof(float),
                         cudaMemcpyHostToDevice) == cudaSuccess);
    }
    for (int r = 0; r < 2; ++r) {
      ranks.use(r);
      REQUIRE(cudaGraphLaunch(graphs[r], ranks.stream(r)) == cudaSuccess);
    }
    for (int r = 0; r < 2; ++r) {
      REQUIRE(cudaStreamSynchronize(ranks.stream(r)) == cudaSuccess);
      REQUIRE(out[r].values()[499] == static_cast<float>(2 * replay + 1));
    }
  }
  for (cudaGraphExec_t graph : graphs) CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
}
