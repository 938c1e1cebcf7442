// Communicators that are finalized, destroyed, aborted or revoked: in groups, and while other
// threads use them.
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <string>

#include "client.h"

using namespace tutti::test;
using namespace std::chrono_literals;

namespace {

struct Given {
  std::vector<ncclComm_t> comms;
  std::vector<cudaStream_t> streams;
  std::vector<OnDevice<float>> data;

  explicit Given(int ranks, bool blocking = true) {
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    comms.resize(static_cast<std::size_t>(ranks));
    streams.resize(comms.size());
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (std::size_t r = 0; r < comms.size(); ++r) {
      REQUIRE(cudaSetDevice(static_cast<int>(r)) == cudaSuccess);
      data.emplace_back(std::vector<float>(8, static_cast<float>(r + 1)));
      REQUIRE(cudaStreamCreateWithFlags(&streams[r], cudaStreamNonBlocking) == cudaSuccess);
      REQUIRE(ncclCommInitRankConfig(&comms[r], ranks, id, static_cast<int>(r), &config) ==
              ncclSuccess);
    }
    REQUIRE(ncclGroupEnd() == (blocking ? ncclSuccess : ncclInProgress));
    for (ncclComm_t comm : comms) REQUIRE(settle(comm) == ncclSuccess);
  }
  ~Given() {
    for (cudaStream_t stream : streams) static_cast<void>(cudaStreamDestroy(stream));
  }
  Given(const Given&) = delete;
  Given& operator=(const Given&) = delete;

  std::size_t size() const { return comms.size(); }
  ncclResult_t add(std::size_t r) { return add(r, comms[r]); }
  ncclResult_t add(std::size_t r, ncclComm_t comm) {
    return ncclAllReduce(data[r].data(), data[r].data(), 8, ncclFloat, ncclSum, comm, streams[r]);
  }
  void check_sums() {
    for (std::size_t r = 0; r < size(); ++r) {
      CHECK(cudaStreamSynchronize(streams[r]) == cudaSuccess);
      CHECK(data[r].values() ==
            std::vector<float>(8, static_cast<float>(size() * (size() + 1) / 2)));
    }
  }
  void destroy() {
    for (ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
  }
  static ncclResult_t settle(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) return ncclInternalError;
      std::this_thread::yield();
    }
    return state;
  }
  /// What became of a call that returned `result`.
  static ncclResult_t outcome(ncclComm_t comm, ncclResult_t result) {
    return result == ncclInProgress ? settle(comm) : result;
  }
};

bool is_gone(ncclComm_t comm) {
  int size = 0;
  return ncclCommCount(comm, &size) == ncclInvalidArgument;
}

/// Holds a stream until it is let go, or for a long time.
struct Held {
  std::atomic<bool> let_go{false};
  explicit Held(cudaStream_t stream) {
    must(cudaLaunchHostFunc(stream, wait, this) == cudaSuccess, "cudaLaunchHostFunc");
  }
  static void wait(void* held) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (!static_cast<Held*>(held)->let_go && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(1ms);
  }
};

}  // namespace

TEST_CASE("communicators are destroyed at the end of a group, after its calls") {
  const bool destroys_first = GENERATE(false, true);
  Given given(3);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (std::size_t r = 0; r < 3 && !destroys_first; ++r) CHECK(given.add(r) == ncclSuccess);
  for (ncclComm_t comm : given.comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
  for (std::size_t r = 0; r < 3 && destroys_first; ++r) CHECK(given.add(r) == ncclSuccess);
  CHECK(ncclCommDestroy(given.comms[0]) == ncclInvalidArgument);  // The group destroys it already.
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
  for (ncclComm_t comm : given.comms) CHECK(is_gone(comm));
  for (cudaStream_t stream : given.streams) CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
}

TEST_CASE("calls, finalization and destruction in one group") {
  Given given(3);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(given.add(r) == ncclSuccess);
    CHECK(ncclCommFinalize(given.comms[r]) == ncclSuccess);
    CHECK(ncclCommDestroy(given.comms[r]) == ncclSuccess);
  }
  CHECK(ncclGroupEnd() == ncclSuccess);
  for (ncclComm_t comm : given.comms) CHECK(is_gone(comm));
  given.check_sums();
}

TEST_CASE("a group that fails destroys what was to be destroyed all the same") {
  Given given(2);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  CHECK(ncclSend(given.data[0].data(), 8, ncclFloat, 9, given.comms[0], given.streams[0]) ==
        ncclInvalidArgument);
  for (ncclComm_t comm : given.comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
  for (ncclComm_t comm : given.comms) CHECK(is_gone(comm));
}

TEST_CASE("an abort in a group drops that communicator's calls, and no other's") {
  Given given(2), other(2);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (std::size_t r = 0; r < 2; ++r) {
    CHECK(given.add(r) == ncclSuccess);
    CHECK(ncclCommAbort(given.comms[r]) == ncclSuccess);
    CHECK(other.add(r) == ncclSuccess);
  }
  CHECK(ncclGroupEnd() == ncclSuccess);
  for (ncclComm_t comm : given.comms) CHECK(is_gone(comm));
  other.check_sums();
  CHECK(given.data[0].values() == std::vector<float>(8, 1));
  other.destroy();
}

TEST_CASE("an abort while other threads are inside the communicator") {
  for (int round = 0; round < 5; ++round) {
    Given given(2);
    std::atomic<int> looks{0};
    std::atomic<bool> waits{false};
    // One thread asks, as a watchdog does; one waits for a rank that never comes; this one aborts.
    std::thread watchdog([&] {
      ncclResult_t state = ncclSuccess;
      while (ncclCommGetAsyncError(given.comms[0], &state) == ncclSuccess) ++looks;
    });
    ncclWindow_t window = nullptr;
    void* memory = nullptr;
    ncclResult_t registered = ncclSuccess;
    std::thread waiter([&] {
      cudaSetDevice(0);
      must(ncclMemAlloc(&memory, 4096) == ncclSuccess, "ncclMemAlloc");
      waits = true;
      registered =
          ncclCommWindowRegister(given.comms[0], memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC);
    });
    while (looks < 100 || !waits) std::this_thread::yield();
    std::this_thread::sleep_for(20ms);
    CHECK(ncclCommAbort(given.comms[0]) == ncclSuccess);
    watchdog.join();
    waiter.join();
    CHECK(registered != ncclSuccess);
    CHECK(is_gone(given.comms[0]));
    CHECK(ncclCommAbort(given.comms[0]) == ncclInvalidArgument);
    CHECK(ncclCommAbort(given.comms[1]) == ncclSuccess);
    CHECK(ncclMemFree(memory) == ncclSuccess);
  }
}

TEST_CASE("an abort while another thread makes the communicator, blocked") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclComm_t comm = nullptr;
  std::atomic<ncclComm_t*> place{&comm};
  ncclResult_t made = ncclSuccess;
  std::thread maker([&] {
    cudaSetDevice(0);
    made = ncclCommInitRank(place.load(), 2, id, 0);  // Rank 1 never comes.
  });
  // The handle is there before the communicator.
  const auto handle = std::atomic_ref<ncclComm_t>(comm);
  while (handle.load() == nullptr) std::this_thread::yield();
  std::this_thread::sleep_for(50ms);
  CHECK(ncclCommAbort(handle.load()) == ncclSuccess);
  maker.join();
  CHECK(made != ncclSuccess);
}

TEST_CASE("a blocking finalization waits until its calls are done, and is the last thing") {
  Given given(2);
  void* handle = nullptr;
  ncclRedOp_t op;
  float factor = 2;
  REQUIRE(ncclCommRegister(given.comms[0], given.data[0].data(), 32, &handle) == ncclSuccess);
  REQUIRE(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat, ncclScalarHostImmediate,
                                   given.comms[0]) == ncclSuccess);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  Held held(given.streams[1]);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (std::size_t r = 0; r < 2; ++r) CHECK(given.add(r) == ncclSuccess);
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  std::thread later([&] {
    std::this_thread::sleep_for(200ms);
    held.let_go = true;
  });
  REQUIRE(ncclCommFinalize(given.comms[0]) == ncclSuccess);
  CHECK(held.let_go);
  CHECK(cudaStreamQuery(given.streams[0]) == cudaSuccess);
  later.join();
  CHECK(given.add(0) == ncclInvalidUsage);
  CHECK(ncclCommFinalize(given.comms[0]) == ncclInvalidArgument);
  CHECK(ncclCommFinalize(nullptr) == ncclSuccess);
  int size = 0;
  CHECK(ncclCommCount(given.comms[0], &size) == ncclSuccess);
  CHECK(size == 2);
  // What it had is given back until it is destroyed.
  CHECK(ncclCommDeregister(given.comms[0], handle) == ncclSuccess);
  CHECK(ncclRedOpDestroy(op, given.comms[0]) == ncclSuccess);
  given.check_sums();
  given.destroy();
}

TEST_CASE("without blocking, finalization and revocation are in progress, and then done") {
  Given given(2, false);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  Held held(given.streams[1]);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (std::size_t r = 0; r < 2; ++r) CHECK(given.add(r) == ncclSuccess);
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  const bool revokes = GENERATE(false, true);
  for (ncclComm_t comm : given.comms) {
    CHECK((revokes ? ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT) : ncclCommFinalize(comm)) ==
          ncclInProgress);
  }
  int size = 0;
  CHECK(ncclCommCount(given.comms[1], &size) == ncclInvalidArgument);
  held.let_go = true;
  for (ncclComm_t comm : given.comms) CHECK(Given::settle(comm) == ncclSuccess);
  CHECK(ncclCommCount(given.comms[1], &size) == ncclSuccess);
  given.destroy();
}

TEST_CASE("a revoked communicator ends its own calls, takes no more, and splits") {
  Given given(2);
  CHECK(ncclCommRevoke(nullptr, NCCL_REVOKE_DEFAULT) == ncclSuccess);
  CHECK(ncclCommRevoke(given.comms[0], 1) == ncclInvalidArgument);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  REQUIRE(given.add(0) == ncclSuccess);  // Rank 1 never calls.
  REQUIRE(ncclCommRevoke(given.comms[0], NCCL_REVOKE_DEFAULT) == ncclSuccess);
  CHECK(cudaStreamSynchronize(given.streams[0]) == cudaSuccess);
  for (ncclComm_t comm : given.comms) {  // Rank 1 notices nothing.
    ncclResult_t state = ncclInProgress;
    REQUIRE(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
    CHECK(state == ncclSuccess);
  }
  CHECK(given.add(0) == ncclInvalidUsage);
  CHECK(ncclCommRevoke(given.comms[0], NCCL_REVOKE_DEFAULT) == ncclInvalidArgument);
  CHECK(ncclCommFinalize(given.comms[0]) == ncclInvalidArgument);
  CHECK(ncclCommRevoke(given.comms[1], NCCL_REVOKE_DEFAULT) == ncclSuccess);
  std::vector<ncclComm_t> parts(2);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (std::size_t r = 0; r < 2; ++r)
    CHECK(ncclCommSplit(given.comms[r], 0, int(r), &parts[r], nullptr) == ncclSuccess);
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  for (std::size_t r = 0; r < 2; ++r)
    given.data[r] = OnDevice<float>(std::vector<float>(8, float(r + 1)));
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (std::size_t r = 0; r < 2; ++r) CHECK(given.add(r, parts[r]) == ncclSuccess);
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  given.check_sums();
  for (ncclComm_t part : parts) CHECK(ncclCommDestroy(part) == ncclSuccess);
  given.destroy();
}

TEST_CASE("a revoked communicator shrinks, and takes no calls after that either") {
  const int flags = GENERATE(NCCL_SHRINK_DEFAULT, NCCL_SHRINK_ABORT);
  Given given(3);
  for (ncclComm_t comm : given.comms)
    REQUIRE(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT) == ncclSuccess);
  std::vector<ncclComm_t> less(2);
  int out[] = {2};
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (std::size_t r = 0; r < 2; ++r)
    CHECK(ncclCommShrink(given.comms[r], out, 1, &less[r], nullptr, flags) == ncclSuccess);
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (std::size_t r = 0; r < 2; ++r) CHECK(given.add(r, less[r]) == ncclSuccess);
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  for (std::size_t r = 0; r < 2; ++r) {
    CHECK(cudaStreamSynchronize(given.streams[r]) == cudaSuccess);
    CHECK(given.data[r].values() == std::vector<float>(8, 3));
    CHECK(given.add(r) == ncclInvalidUsage);
    CHECK(ncclCommDestroy(less[r]) == ncclSuccess);
  }
  given.destroy();
}

TEST_CASE("a suspended communicator takes no calls until it is resumed, and can be destroyed") {
  for (const bool blocking : {true, false}) {
    INFO("blocking " << blocking);
    Given given(2, blocking);
    for (ncclComm_t comm : given.comms) {
      CHECK(ncclCommSuspend(comm, 0) == ncclInvalidArgument);
      CHECK(ncclCommResume(comm) == ncclInvalidUsage);
      CHECK(Given::outcome(comm, ncclCommSuspend(comm, NCCL_SUSPEND_MEM)) == ncclSuccess);
      CHECK(ncclCommSuspend(comm, NCCL_SUSPEND_MEM) == ncclInvalidUsage);
      std::uint64_t freed = 1;
      CHECK(ncclCommMemStats(comm, ncclStatGpuMemSuspended, &freed) == ncclSuccess);
      CHECK(freed == 0);
    }
    CHECK(given.add(0) == ncclInvalidUsage);
    CHECK(std::string(ncclGetLastError(given.comms[0])).find("ncclCommResume") !=
          std::string::npos);
    for (ncclComm_t comm : given.comms) CHECK(ncclCommResume(comm) == ncclSuccess);
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (std::size_t r = 0; r < given.size(); ++r) CHECK(given.add(r) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
    given.check_sums();
    CHECK(Given::outcome(given.comms[0], ncclCommSuspend(given.comms[0], NCCL_SUSPEND_MEM)) ==
          ncclSuccess);
    given.destroy();
  }
}

TEST_CASE("a communicator in the making has neither size nor rank yet") {
  ncclComm_t comm = in_the_making();
  int number = -7;
  CHECK(ncclCommCount(comm, &number) == ncclInvalidArgument);
  CHECK(ncclCommUserRank(comm, &number) == ncclInvalidArgument);
  CHECK(ncclCommCuDevice(comm, &number) == ncclInvalidArgument);
  CHECK(number == -7);
  CHECK(ncclCommDestroy(comm) == ncclInvalidArgument);  // It would wait for rank 1.
  CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("NCCL_COMM_BLOCKING says whether communicators block, whatever the program says") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm = nullptr;
  REQUIRE(setenv("NCCL_COMM_BLOCKING", "0", 1) == 0);
  config.blocking = 1;
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInProgress);
  CHECK(Given::settle(comm) == ncclSuccess);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
  REQUIRE(setenv("NCCL_COMM_BLOCKING", "1", 1) == 0);
  config.blocking = 0;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclSuccess);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
  unsetenv("NCCL_COMM_BLOCKING");
}
