// What a program does wrong: one clear line, a result of the right kind, and nothing lost.
#include <cuda.h>

#include <string>
#include <thread>

#include "client.h"
#include "simt/engine.h"
#include "simt/runtime.h"

using namespace tutti::test;

namespace {

std::string last() { return ncclGetLastError(nullptr); }

bool says(const std::string& part) { return last().find(part) != std::string::npos; }

}  // namespace

TEST_CASE("communicators that cannot be") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclComm_t comm = nullptr;
  CHECK(ncclGetUniqueId(nullptr) == ncclInvalidArgument);
  CHECK(ncclCommInitRank(nullptr, 1, id, 0) == ncclInvalidArgument);
  CHECK(ncclCommInitRank(&comm, 0, id, 0) == ncclInvalidArgument);
  CHECK(ncclCommInitRank(&comm, 2, id, 2) == ncclInvalidArgument);
  CHECK(says("rank 2 of 2 ranks"));
  CHECK(comm == nullptr);
  CHECK(ncclCommInitAll(nullptr, 2, nullptr) == ncclInvalidArgument);
  const int none = 1000;
  CHECK(ncclCommInitAll(&comm, 1, &none) == ncclInvalidArgument);
  CHECK(says("device 1000"));
  CHECK(comm == nullptr);
}

TEST_CASE("configurations of any version, and what is none") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  ncclComm_t comm = nullptr;
  struct {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    char more[64] = {};
  } longer;
  // 2.14 had it until `blocking`; 2.28 has 80 bytes; a later one has more than we know.
  longer.config.size = GENERATE(20, 24, 56, 80, sizeof(ncclConfig_t), sizeof(longer));
  longer.config.minCTAs = 4;
  REQUIRE(ncclCommInitRankConfig(&comm, 1, id, 0, &longer.config) == ncclSuccess);
  REQUIRE(ncclCommDestroy(comm) == ncclSuccess);

  ncclConfig_t wrong = NCCL_CONFIG_INITIALIZER;
  wrong.magic = 0;
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &wrong) == ncclInvalidArgument);
  CHECK(says("NCCL_CONFIG_INITIALIZER"));
  wrong = NCCL_CONFIG_INITIALIZER;
  wrong.size = GENERATE(std::size_t{0}, std::size_t{8}, std::size_t{1} << 40);
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &wrong) == ncclInvalidArgument);
  wrong = NCCL_CONFIG_INITIALIZER;
  wrong.blocking = 7;
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &wrong) == ncclInvalidArgument);
  CHECK(says("blocking is 7"));
  struct {
    int ncclConfig_t::*member;
    int value;
  } const refused[] = {
      {&ncclConfig_t::minCTAs, 0},
      {&ncclConfig_t::maxCTAs, -3},
      {&ncclConfig_t::splitShare, 7},
      {&ncclConfig_t::collnetEnable, 9},
      {&ncclConfig_t::CTAPolicy, 99},
      {&ncclConfig_t::cgaClusterSize, 9},
      {&ncclConfig_t::shrinkShare, -1},
      {&ncclConfig_t::nvlsCTAs, 0},
      {&ncclConfig_t::nvlinkCentricSched, 2},
      {&ncclConfig_t::nChannelsPerNetPeer, 0},
  };
  for (const auto& one : refused) {
    wrong = NCCL_CONFIG_INITIALIZER;
    wrong.*one.member = one.value;
    CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &wrong) == ncclInvalidArgument);
    CHECK(says("is " + std::to_string(one.value)));
  }
}

TEST_CASE("calls with wrong arguments name what is wrong") {
  const AllRanks ranks({0, 1});
  ranks.use(0);
  OnDevice<float> data(std::vector<float>(8, 1));
  ncclComm_t comm = ranks.comm(0);
  const auto call = [&](ncclDataType_t type, ncclRedOp_t op, ncclComm_t on) {
    return ncclAllReduce(data.data(), data.data(), 8, type, op, on, ranks.stream(0));
  };
  CHECK(call(ncclFloat, ncclSum, nullptr) == ncclInvalidArgument);
  CHECK(says("ncclAllReduce"));
  CHECK(call(static_cast<ncclDataType_t>(13), ncclSum, comm) == ncclInvalidArgument);
  CHECK(says("type 13"));
  CHECK(std::string(ncclGetLastError(comm)) == last());
  CHECK(call(ncclFloat, static_cast<ncclRedOp_t>(77), comm) == ncclInvalidArgument);
  CHECK(ncclBroadcast(data.data(), data.data(), 8, ncclFloat, 2, comm, nullptr) ==
        ncclInvalidArgument);
  CHECK(says("root 2 of 2"));
  CHECK(ncclSend(data.data(), 8, ncclFloat, -1, comm, nullptr) == ncclInvalidArgument);
  CHECK(ncclAllReduce(data.data(), data.data(), 8, ncclFloat, ncclSum, comm, ranks.stream(1)) ==
        ncclUnhandledCudaError);
  CHECK(says("the stream must belong to device 0"));
  float factor = 1;
  ncclRedOp_t op;
  CHECK(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat, static_cast<ncclScalarResidence_t>(7),
                                 comm) == ncclInvalidArgument);
  int self = 0;
  ncclComm_t made = nullptr;
  CHECK(ncclCommShrink(comm, &self, 1, &made, nullptr, NCCL_SHRINK_DEFAULT) == ncclInvalidArgument);
  CHECK(says("not the calling one"));
  CHECK(ncclCommShrink(comm, nullptr, 1, &made, nullptr, 0) == ncclInvalidArgument);
  CHECK(ncclCommGrow(comm, 2, nullptr, -1, &made, nullptr) == ncclInvalidArgument);
  CHECK(ncclSetEncryption(nullptr) == ncclInvalidUsage);
  CHECK(says("not supported"));
}

TEST_CASE("a mistake in a group is the group's, and nothing of it is started") {
  const AllRanks ranks({0, 1});
  ranks.use(0);
  OnDevice<float> data(std::vector<float>(8, 1));
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (int r = 0; r < 2; ++r) {
    CHECK(ncclAllReduce(data.data(), data.data(), 8, ncclFloat, ncclSum, ranks.comm(r),
                        ranks.stream(r)) == ncclSuccess);
  }
  CHECK(ncclSend(data.data(), 8, ncclFloat, 9, ranks.comm(0), nullptr) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
  REQUIRE(cudaStreamSynchronize(ranks.stream(0)) == cudaSuccess);
  CHECK(data.values()[0] == 1);
  // The next group is a new one.
  REQUIRE(ncclGroupStart() == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
}

TEST_CASE("buffers and windows are known again") {
  const AllRanks ranks({0, 1});
  ranks.use(0);
  void* data = nullptr;
  REQUIRE(ncclMemAlloc(&data, 8192) == ncclSuccess);
  void* handle = nullptr;
  REQUIRE(ncclCommRegister(ranks.comm(0), data, 8192, &handle) == ncclSuccess);
  CHECK(ncclCommDeregister(ranks.comm(1), handle) == ncclInvalidArgument);
  CHECK(ncclCommDeregister(ranks.comm(0), handle) == ncclSuccess);
  ncclWindow_t window = nullptr;
  REQUIRE(ncclCommWindowRegister(ranks.comm(0), data, 8192, &window, NCCL_WIN_DEFAULT) ==
          ncclSuccess);
  void* found = nullptr;
  REQUIRE(ncclWinGetUserPtr(ranks.comm(0), window, &found) == ncclSuccess);
  CHECK(found == data);
  CHECK(ncclCommWindowDeregister(ranks.comm(0), window) == ncclSuccess);
  uint64_t bytes = 0;
  REQUIRE(ncclCommMemStats(ranks.comm(0), ncclStatGpuMemTotal, &bytes) == ncclSuccess);
  CHECK(bytes > 0);
  CHECK(ncclMemFree(data) == ncclSuccess);
  CHECK(ncclMemFree(nullptr) == ncclSuccess);
}

TEST_CASE("memory is for all devices that reach it, and made beside captures") {
  const auto both = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  tutti::simt::settings().no_peers[2] = 1;  // Device 2 does not reach device 0.
  for (const unsigned types : {static_cast<unsigned>(both), 0U}) {  // 0: by cudaMalloc.
    tutti::simt::share_as(types);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    void* data = nullptr;
    ncclResult_t made = ncclSuccess, freed = ncclSuccess;
    bool by_one = false, by_two = true;
    std::thread([&] {
      cudaSetDevice(0);
      made = ncclMemAlloc(&data, 8192);
      by_one = tutti::simt::owner_of(data, 8192, 1).accessible;
      by_two = tutti::simt::owner_of(data, 8192, 2).accessible;
      freed = ncclMemFree(data);
    }).join();
    CHECK(made == ncclSuccess);
    CHECK(freed == ncclSuccess);
    CHECK(by_one == (types != 0));
    CHECK(!by_two);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);  // It was not invalidated.
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  }
  tutti::simt::settings().no_peers[2] = 0;
  tutti::simt::share_as(both);
}

TEST_CASE("settings by name") {
  const char** keys = nullptr;
  int count = 0;
  REQUIRE(ncclParamGetAllParameterKeys(&keys, &count) == ncclSuccess);
  REQUIRE(count > 5);
  ncclParamHandle_t handle = nullptr;
  REQUIRE(ncclParamBind(&handle, "TUTTI_TIMEOUT_MS") == ncclSuccess);
  int64_t timeout = 0;
  REQUIRE(ncclParamGetI64(handle, &timeout) == ncclSuccess);
  CHECK(timeout == 86'400'000);  // A day by default: NCCL has no deadline.
  int8_t small = 0;
  CHECK(ncclParamGetI8(handle, &small) == ncclInvalidArgument);
  CHECK(ncclParamBind(&handle, "NCCL_DEBUG") == ncclInvalidArgument);
}
