// Calls that differ between ranks, through libnccl: an error at once that names both calls.
#include <chrono>
#include <string>
#include <vector>

#include "client.h"

using namespace tutti::test;

namespace {

struct Call {
  const char* name;
  std::function<ncclResult_t(float* from, float* to, ncclComm_t comm, cudaStream_t stream)> make;
};

Call all_reduce(std::size_t count, ncclDataType_t type = ncclFloat, ncclRedOp_t op = ncclSum) {
  return {"all_reduce of", [=](float* from, float* to, ncclComm_t comm, cudaStream_t stream) {
            return ncclAllReduce(from, to, count, type, op, comm, stream);
          }};
}
Call broadcast(std::size_t count, int root) {
  return {"broadcast of", [=](float* from, float* to, ncclComm_t comm, cudaStream_t stream) {
            return ncclBroadcast(from, to, count, ncclFloat, root, comm, stream);
          }};
}
Call reduce_scatter(std::size_t count) {
  return {"reduce_scatter of", [=](float* from, float* to, ncclComm_t comm, cudaStream_t stream) {
            return ncclReduceScatter(from, to, count, ncclFloat, ncclSum, comm, stream);
          }};
}
Call send(std::size_t count) {
  return {"bytes", [=](float* from, float*, ncclComm_t comm, cudaStream_t stream) {
            return ncclSend(from, count, ncclFloat, 1, comm, stream);
          }};
}
Call receive(std::size_t count) {
  return {"bytes", [=](float*, float* to, ncclComm_t comm, cudaStream_t stream) {
            return ncclRecv(to, count, ncclFloat, 0, comm, stream);
          }};
}

/// The error that rank `rank` got.
std::string told(const AllRanks& ranks, int rank) {
  ncclResult_t state = ncclSuccess;
  if (ncclCommGetAsyncError(ranks.comm(rank), &state) != ncclSuccess) return "no answer";
  return state == ncclSuccess ? "" : ncclGetLastError(ranks.comm(rank));
}

void check(const Call& one, const Call& other) {
  const AllRanks ranks({0, 1});
  std::vector<OnDevice<float>> from, to;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.use(rank);
    from.emplace_back(std::vector<float>(200000, 1));
    to.emplace_back(std::vector<float>(200000, 0));
  }
  const auto begin = std::chrono::steady_clock::now();
  ranks.together([&](int rank) {
    return (rank == 0 ? one : other)
        .make(from[std::size_t(rank)].data(), to[std::size_t(rank)].data(), ranks.comm(rank),
              ranks.stream(rank));
  });
  std::string texts[2];
  // A rank that only gave learns of it by the other rank's error.
  for (const int rank : {1, 0, 1}) texts[rank] = told(ranks, rank);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
  for (const std::string& text : texts) {
    CAPTURE(text);
    CHECK(text.find(" met ") != std::string::npos);
    CHECK(text.find(one.name) != std::string::npos);
    CHECK(text.find(other.name) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("calls that differ between two ranks are named on both") {
  for (const std::size_t count : {100, 1000, 100000}) {
    CAPTURE(count);
    check(all_reduce(count), all_reduce(count / 2));
    check(all_reduce(count), all_reduce(count - 1));
    check(all_reduce(count), all_reduce(count, ncclFloat, ncclMax));
    check(all_reduce(count), all_reduce(count, ncclInt32));
    check(all_reduce(count), all_reduce(2 * count, ncclHalf));
    check(all_reduce(count), broadcast(count, 0));
    check(broadcast(count, 1), broadcast(count, 0));
    check(all_reduce(count), reduce_scatter(count));
  }
}

TEST_CASE("messages whose ends expect different sizes are named on both") {
  check(send(100), receive(50));
  check(send(50), receive(100));
  check(send(100000), receive(50));
  check(send(50), receive(100000));
}
