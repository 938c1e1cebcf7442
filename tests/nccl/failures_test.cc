// Which of NCCL's results a failure is, and what the last error of the process says.
#include <chrono>
#include <cstdlib>
#include <string>

#include "client.h"

using namespace tutti::test;
using namespace std::chrono_literals;

namespace {

/// Gives communicators that are made while it lives a short deadline.
class ShortDeadline {
 public:
  ShortDeadline() { must(setenv("TUTTI_TIMEOUT_MS", "500", 1) == 0, "setenv"); }
  ~ShortDeadline() { unsetenv("TUTTI_TIMEOUT_MS"); }
  ShortDeadline(const ShortDeadline&) = delete;
  ShortDeadline& operator=(const ShortDeadline&) = delete;
};

/// The communicator's first state other than success and in progress. Waits for it well beyond the
/// deadline.
ncclResult_t failure_of(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  const auto end = std::chrono::steady_clock::now() + 60s;
  while ((state == ncclSuccess || state == ncclInProgress) &&
         std::chrono::steady_clock::now() < end) {
    must(ncclCommGetAsyncError(comm, &state) == ncclSuccess, "ncclCommGetAsyncError");
    std::this_thread::sleep_for(1ms);
  }
  return state;
}

std::string last(ncclComm_t comm = nullptr) { return ncclGetLastError(comm); }

/// Communicators that a test gives back itself.
std::vector<ncclComm_t> make(int ranks) {
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks));
  std::vector<int> devices;
  for (int r = 0; r < ranks; ++r) devices.push_back(r);
  REQUIRE(ncclCommInitAll(comms.data(), ranks, devices.data()) == ncclSuccess);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  return comms;
}

/// An all-reduce that only rank 0 makes, on a stream of its own.
class Alone {
 public:
  explicit Alone(ncclComm_t comm) : data_(std::vector<float>(8, 1)) {
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "a stream");
    result = ncclAllReduce(data_.data(), data_.data(), 8, ncclFloat, ncclSum, comm, stream);
  }
  ~Alone() { static_cast<void>(cudaStreamDestroy(stream)); }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

  cudaStream_t stream = nullptr;
  ncclResult_t result;

 private:
  OnDevice<float> data_;
};

}  // namespace

TEST_CASE("a peer that aborts is a remote error of the others") {
  const auto comms = make(2);
  const Alone call(comms[0]);
  REQUIRE(call.result == ncclSuccess);
  REQUIRE(ncclCommAbort(comms[1]) == ncclSuccess);
  CHECK(failure_of(comms[0]) == ncclRemoteError);
  CHECK(last().find("rank 1 called ncclCommAbort") != std::string::npos);
  const Alone next(comms[0]);
  CHECK(next.result == ncclRemoteError);
  CHECK(ncclCommAbort(comms[0]) == ncclSuccess);
}

TEST_CASE("a peer that does not call until the deadline is a remote error") {
  const ShortDeadline deadline;
  const auto comms = make(2);
  const Alone call(comms[0]);
  REQUIRE(call.result == ncclSuccess);
  CHECK(failure_of(comms[0]) == ncclRemoteError);
  CHECK(last(comms[0]).find("rank 1") != std::string::npos);
  for (ncclComm_t comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("a peer that does not come until the deadline is a remote error") {
  const ShortDeadline deadline;
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRank(&comm, 2, id, 0) == ncclRemoteError);
  CHECK(last().find("rank 1") != std::string::npos);
  CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("what CUDA refuses is an error of CUDA") {
  const AllRanks ranks({0, 1});
  ranks.use(0);
  OnDevice<float> data(std::vector<float>(8, 1));
  CHECK(ncclAllReduce(data.data(), data.data(), 8, ncclFloat, ncclSum, ranks.comm(0),
                      ranks.stream(1)) == ncclUnhandledCudaError);
  CHECK(last().find("ncclAllReduce") != std::string::npos);
}

TEST_CASE("the last error is the process's, and the communicator's own stays its own") {
  const ShortDeadline deadline;
  ncclComm_t comm = in_the_making();
  REQUIRE(failure_of(comm) != ncclSuccess);
  const std::string of_comm = last(comm);
  CHECK(of_comm.find("rank 1") != std::string::npos);
  CHECK(last() == of_comm);
  int size = 0;
  std::thread([&] { ncclCommCount(nullptr, &size); }).join();
  CHECK(last().find("ncclCommCount") != std::string::npos);
  CHECK(last(comm) == of_comm);
  // A thread that asks for the state makes it the last error again.
  REQUIRE(failure_of(comm) != ncclSuccess);
  CHECK(last() == of_comm);
  CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("lines name the function, and a mistake is not called unsupported") {
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  CHECK(last().starts_with("ncclGroupEnd: "));
  const AllRanks ranks({0, 1});
  ranks.use(0);
  OnDevice<float> data(std::vector<float>(8, 1));
  CHECK(ncclAllReduce(nullptr, data.data(), 8, ncclFloat, ncclSum, ranks.comm(0),
                      ranks.stream(0)) == ncclInvalidArgument);
  CHECK(last().starts_with("ncclAllReduce: "));
}
