// The host's part of the device API: teams, properties, addresses of peers' windows; and calls with
// a configuration of their own.
#include <cstdlib>
#include <cstring>
#include <string>

#include "client.h"
#include "compat/nccl/device_api.h"

using namespace tutti::test;

namespace {

constexpr std::size_t kBytes = 8192;

/// A symmetric window of each rank, filled with 1 + its rank.
class Windows {
 public:
  explicit Windows(const AllRanks& ranks) : ranks_(ranks) {
    data.resize(static_cast<std::size_t>(ranks.size()));
    windows.resize(data.size());
    ranks.together([&](int r) {
      const auto at = static_cast<std::size_t>(r);
      must(ncclMemAlloc(&data[at], kBytes) == ncclSuccess, "ncclMemAlloc");
      must(cudaMemset(data[at], r + 1, kBytes) == cudaSuccess, "cudaMemset");
      return ncclCommWindowRegister(ranks.comm(r), data[at], kBytes, &windows[at],
                                    NCCL_WIN_COLL_SYMMETRIC);
    });
  }
  ~Windows() {
    for (std::size_t r = 0; r < data.size(); ++r) {
      static_cast<void>(ncclCommWindowDeregister(ranks_.comm(static_cast<int>(r)), windows[r]));
      static_cast<void>(ncclMemFree(data[r]));
    }
  }
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  std::vector<void*> data;
  std::vector<ncclWindow_t> windows;

 private:
  const AllRanks& ranks_;
};

int byte_at(const void* address) {
  unsigned char byte = 0;
  must(cudaMemcpy(&byte, address, 1, cudaMemcpyDeviceToHost) == cudaSuccess, "cudaMemcpy");
  return byte;
}

ncclCommProperties initial(std::size_t size) {
  ncclCommProperties properties;
  std::memset(&properties, 0x5a, sizeof properties);
  properties.size = size;
  properties.magic = 0xcafebeef;
  properties.version = 23007;
  return properties;
}

}  // namespace

TEST_CASE("a window's peers are where the device's kernels see them") {
  const AllRanks ranks(GENERATE(std::vector<int>{0}, std::vector<int>{0, 1, 1}));
  const Windows made(ranks);
  for (std::size_t r = 0; r < made.windows.size(); ++r) {
    for (int peer = 0; peer < ranks.size(); ++peer) {
      void *at = nullptr, *near = nullptr;
      REQUIRE(ncclGetPeerDevicePointer(made.windows[r], 100, peer, &at) == ncclSuccess);
      REQUIRE(at != nullptr);
      CHECK(byte_at(at) == peer + 1);
      REQUIRE(ncclGetLsaDevicePointer(made.windows[r], 100, peer, &near) == ncclSuccess);
      CHECK(near == at);
    }
    void* at = made.data[0];
    CHECK(ncclGetPeerDevicePointer(made.windows[r], kBytes, 0, &at) == ncclInvalidArgument);
    CHECK(at == nullptr);
    CHECK(ncclGetPeerDevicePointer(made.windows[r], 0, ranks.size(), &at) == ncclInvalidArgument);
    CHECK(ncclGetPeerDevicePointer(made.windows[r], 0, -1, &at) == ncclInvalidArgument);
    CHECK(ncclGetPeerDevicePointer(made.windows[r], 0, 0, nullptr) == ncclInvalidArgument);
    at = made.data[0];
    CHECK(ncclGetLsaMultimemDevicePointer(made.windows[r], 0, &at) == ncclSuccess);
    CHECK(at == nullptr);
    CHECK(ncclGetMultimemDevicePointer(made.windows[r], 0, {nullptr}, &at) == ncclInvalidArgument);
    CHECK(ncclGetMultimemDevicePointer(made.windows[r], 0, {made.data[0]}, &at) == ncclSuccess);
  }
  void* at = nullptr;
  CHECK(ncclGetPeerDevicePointer(nullptr, 0, 0, &at) == ncclInvalidArgument);
  CHECK(ncclGetLsaDevicePointer(nullptr, 0, 0, &at) == ncclInvalidArgument);
  CHECK(ncclGetLsaMultimemDevicePointer(nullptr, 0, &at) == ncclInvalidArgument);
}

TEST_CASE("a window that peers do not map has its own rank's address alone") {
  const AllRanks ranks({0, 1});
  ranks.use(0);
  void *data = nullptr, *at = nullptr;
  REQUIRE(ncclMemAlloc(&data, kBytes) == ncclSuccess);
  ncclWindow_t window = nullptr;
  REQUIRE(ncclCommWindowRegister(ranks.comm(0), data, kBytes, &window, NCCL_WIN_DEFAULT) ==
          ncclSuccess);
  REQUIRE(ncclGetPeerDevicePointer(window, 8, 0, &at) == ncclSuccess);
  CHECK(at == static_cast<std::byte*>(data) + 8);
  REQUIRE(ncclGetPeerDevicePointer(window, 8, 1, &at) == ncclSuccess);
  CHECK(at == nullptr);
  CHECK(ncclCommWindowDeregister(ranks.comm(0), window) == ncclSuccess);
  CHECK(ncclMemFree(data) == ncclSuccess);
}

TEST_CASE("properties, as long as the caller's version has them") {
  const AllRanks ranks({0, 1, 2});
  std::uint64_t hash = 0;
  for (int r = 0; r < 3; ++r) {
    ncclCommProperties found = initial(sizeof found);
    REQUIRE(ncclCommQueryProperties(ranks.comm(r), &found) == ncclSuccess);
    CHECK(found.rank == r);
    CHECK(found.nRanks == 3);
    CHECK(found.cudaDev == r);
    CHECK(found.nLsaTeams == 1);
    CHECK_FALSE(found.deviceApiSupport);
    CHECK_FALSE(found.multimemSupport);
    CHECK(found.hostRmaSupport);
    CHECK(found.ginType == 0);
    if (r > 0) CHECK(found.commHash == hash);
    hash = found.commHash;
  }
  ncclCommProperties shorter = initial(56);
  REQUIRE(ncclCommQueryProperties(ranks.comm(1), &shorter) == ncclSuccess);
  CHECK(shorter.rank == 1);
  CHECK(shorter.commHash == 0x5a5a5a5a5a5a5a5aULL);
  ncclCommProperties wrong = initial(8);
  CHECK(ncclCommQueryProperties(ranks.comm(1), &wrong) == ncclInvalidUsage);
  wrong = initial(56);
  wrong.magic = 0;
  CHECK(ncclCommQueryProperties(ranks.comm(1), &wrong) == ncclInvalidUsage);
  CHECK(ncclCommQueryProperties(ranks.comm(1), nullptr) == ncclInvalidArgument);
  CHECK(ncclCommQueryProperties(nullptr, &shorter) == ncclInvalidArgument);
}

TEST_CASE("teams of ranks that reach each other, where groups of two are hosts") {
  REQUIRE(setenv("TUTTI_TRANSPORT", "tcp", 1) == 0);
  REQUIRE(setenv("TUTTI_GROUPS", "2", 1) == 0);
  {
    const AllRanks ranks({0, 1, 2, 3});
    const Windows made(ranks);
    for (int r = 0; r < 4; ++r) {
      const ncclTeam near = ncclTeamLsa(ranks.comm(r)), rail = ncclTeamRail(ranks.comm(r));
      CHECK((near.nRanks == 2 && near.rank == r % 2 && near.stride == 1));
      CHECK((rail.nRanks == 2 && rail.rank == r / 2 && rail.stride == 2));
      ncclCommProperties found = initial(sizeof found);
      REQUIRE(ncclCommQueryProperties(ranks.comm(r), &found) == ncclSuccess);
      CHECK_FALSE(found.hostRmaSupport);
      CHECK(ncclTeamRankToWorld(ranks.comm(r), near, 1) == r / 2 * 2 + 1);
      CHECK(ncclTeamRankToWorld(ranks.comm(r), rail, 1) == 2 + r % 2);
      CHECK(ncclTeamRankToLsa(ranks.comm(r), near, 1) == 1);
      for (int peer = 0; peer < 4; ++peer) {
        void* at = nullptr;
        REQUIRE(ncclGetPeerDevicePointer(made.windows[std::size_t(r)], 0, peer, &at) ==
                ncclSuccess);
        CHECK((at != nullptr) == (peer / 2 == r / 2));
        if (at != nullptr) CHECK(byte_at(at) == peer + 1);
      }
      void* at = nullptr;
      CHECK(ncclGetLsaDevicePointer(made.windows[std::size_t(r)], 0, 2, &at) ==
            ncclInvalidArgument);
    }
  }
  unsetenv("TUTTI_TRANSPORT");
  unsetenv("TUTTI_GROUPS");
}

TEST_CASE("calls with a configuration of their own") {
  const AllRanks ranks({0, 1});
  const std::vector<float> ones(8, 1);
  std::vector<OnDevice<float>> in, out;
  std::vector<cudaEvent_t> launched(2);
  for (int r = 0; r < 2; ++r) {
    ranks.use(r);
    in.emplace_back(std::vector<float>{1.0F + r, 2.0F + r});
    out.emplace_back(std::vector<float>(4, -1));
    REQUIRE(cudaEventCreateWithFlags(&launched[std::size_t(r)], cudaEventDisableTiming) == 0);
  }
  const auto check = [&](const auto& call, int rank, std::vector<float> expected) {
    ranks.together([&](int r) {
      ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
      config.minCTAs = 4;
      config.algSelection = "ring";
      config.launchCompletionEvent = launched[std::size_t(r)];
      return call(in[std::size_t(r)].data(), out[std::size_t(r)].data(), ranks.comm(r),
                  ranks.stream(r), &config);
    });
    auto found = out[std::size_t(rank)].values();
    found.resize(expected.size());
    CHECK(found == expected);
    CHECK(cudaEventQuery(launched[0]) == cudaSuccess);
  };
  using F = const float*;
  using G = float*;
  using C = ncclComm_t;
  using S = cudaStream_t;
  using K = const ncclCollConfig_t*;
  check([](F a, G b, C c, S s,
           K k) { return ncclAllReduceConfig(a, b, 2, ncclFloat, ncclSum, c, s, k); },
        0, {3, 5});
  check([](F a, G b, C c, S s, K k) { return ncclBroadcastConfig(a, b, 2, ncclFloat, 1, c, s, k); },
        0, {2, 3});
  check([](F a, G b, C c, S s,
           K k) { return ncclReduceConfig(a, b, 2, ncclFloat, ncclMax, 1, c, s, k); },
        1, {2, 3});
  check([](F a, G b, C c, S s, K k) { return ncclAllGatherConfig(a, b, 2, ncclFloat, c, s, k); }, 0,
        {1, 2, 2, 3});
  check([](F a, G b, C c, S s,
           K k) { return ncclReduceScatterConfig(a, b, 1, ncclFloat, ncclSum, c, s, k); },
        1, {5});
  check([](F a, G b, C c, S s, K k) { return ncclAlltoAllConfig(a, b, 1, ncclFloat, c, s, k); }, 0,
        {1, 2});
  check([](F a, G b, C c, S s, K k) { return ncclGatherConfig(a, b, 1, ncclFloat, 1, c, s, k); }, 1,
        {1, 2});
  check([](F a, G b, C c, S s, K k) { return ncclScatterConfig(a, b, 1, ncclFloat, 0, c, s, k); },
        1, {2});
  for (cudaEvent_t event : launched) cudaEventDestroy(event);
}

TEST_CASE("a configuration of a call that is none is refused, and its group goes on") {
  const AllRanks ranks({0, 1});
  ranks.use(0);
  OnDevice<float> data(std::vector<float>(8, 1)), other(std::vector<float>(8, 2));
  const auto refused = [&](const ncclCollConfig_t& config) {
    CHECK(ncclAllReduceConfig(data.data(), data.data(), 8, ncclFloat, ncclSum, ranks.comm(0),
                              ranks.stream(0), &config) == ncclInvalidArgument);
    CHECK(std::string(ncclGetLastError(ranks.comm(0))).find("ncclAllReduceConfig") !=
          std::string::npos);
  };
  const ncclCollConfig_t good = NCCL_COLLCONFIG_INITIALIZER;
  std::vector<ncclCollConfig_t> wrong(4, good);
  wrong[0].magic = 7;
  wrong[1].size = 56;
  wrong[2].forceAlgSelection = 2;
  wrong[3].CTAPolicy = 4;
  for (const ncclCollConfig_t& one : wrong) refused(one);
  std::vector<float*> at{data.data(), other.data()};
  ranks.together([&](int r) {
    if (r == 0) refused(wrong[0]);
    return ncclAllReduceConfig(at[std::size_t(r)], at[std::size_t(r)], 8, ncclFloat, ncclSum,
                               ranks.comm(r), ranks.stream(r), nullptr);
  });
  CHECK(data.values() == std::vector<float>(8, 3));
}
