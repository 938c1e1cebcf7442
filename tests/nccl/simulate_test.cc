// ncclGroupSimulateEnd: how long a group would take, which is not started.
#include <vector>

#include "nccl/client.h"

using namespace tutti::test;

namespace {

constexpr int kRanks = 4;

/// What the library says that a group takes, in microseconds.
template <class Calls>
float estimate(const Calls& calls) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  REQUIRE(ncclGroupStart() == ncclSuccess);
  calls();
  REQUIRE(ncclGroupSimulateEnd(&info) == ncclSuccess);
  return info.estimatedTime;
}

struct Group {
  AllRanks ranks{{0, 1, 2, 3}};
  std::vector<OnDevice<float>> data;
  explicit Group(std::size_t count) {
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.use(rank);
      data.emplace_back(std::vector<float>(count, 1));
    }
  }
  void reduce(int rank, std::size_t count) {
    float* const at = data[static_cast<std::size_t>(rank)].data();
    CHECK(ncclAllReduce(at, at, count, ncclFloat, ncclSum, ranks.comm(rank), ranks.stream(rank)) ==
          ncclSuccess);
  }
  void send(int rank, int peer, std::size_t count) {
    CHECK(ncclSend(data[static_cast<std::size_t>(rank)].data(), count, ncclFloat, peer,
                   ranks.comm(rank), ranks.stream(rank)) == ncclSuccess);
  }
  void recv(int rank, int peer, std::size_t count) {
    CHECK(ncclRecv(data[static_cast<std::size_t>(rank)].data(), count, ncclFloat, peer,
                   ranks.comm(rank), ranks.stream(rank)) == ncclSuccess);
  }
};

}  // namespace

TEST_CASE("a group's time is that of its calls, which are not started") {
  constexpr std::size_t kMany = std::size_t{1} << 22;
  Group group(kMany);
  const auto reduces = [&](int times, std::size_t count, int ranks = 1) {
    return estimate([&] {
      for (int rank = 0; rank < ranks; ++rank)
        for (int i = 0; i < times; ++i) group.reduce(rank, count);
    });
  };
  const float small = reduces(1, 2), large = reduces(1, kMany);
  CHECK(small > 0);
  CHECK(large > 2 * small);
  CHECK(reduces(3, kMany) == Approx(3 * large));
  CHECK(reduces(1, kMany, kRanks) == Approx(large));  // Communicators run side by side.
  for (const auto& one : group.data) CHECK(one.values() == std::vector<float>(kMany, 1));

  // The group that is simulated takes no call with it.
  group.ranks.together([&](int rank) {
    group.reduce(rank, 10);
    return ncclSuccess;
  });
  CHECK(group.data[2].values()[9] == kRanks);
  CHECK(group.data[2].values()[10] == 1);
}

TEST_CASE("messages of a group are estimated in both directions at a time") {
  constexpr std::size_t kMany = std::size_t{1} << 20;
  Group group(kMany);
  const float none = estimate([] {});
  const float empty = estimate([&] { group.send(0, 1, 0); });
  const float one = estimate([&] { group.send(0, 1, kMany); });
  CHECK(none == 0);
  CHECK(empty > 0);
  CHECK(one > empty);
  const float both = estimate([&] {
    group.send(0, 1, kMany);
    group.recv(0, 2, kMany);
  });
  CHECK(both == Approx(one));
  const float two = estimate([&] {
    group.send(0, 1, kMany);
    group.send(0, 2, kMany);
  });
  CHECK(two - empty == Approx(2 * (one - empty)));
}

TEST_CASE("groups that are simulated nest, and keep their errors") {
  Group group(4);
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  CHECK(ncclGroupSimulateEnd(&info) == ncclInvalidUsage);
  const float outer = estimate([&] {
    CHECK(ncclGroupStart() == ncclSuccess);
    group.reduce(0, 4);
    CHECK(ncclGroupSimulateEnd(&info) == ncclSuccess);
    CHECK(info.estimatedTime == NCCL_UNDEF_FLOAT);  // Known at the outermost end.
  });
  CHECK(outer > 0);
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclSend(nullptr, 4, ncclFloat, 9, group.ranks.comm(0), nullptr) == ncclInvalidArgument);
  CHECK(ncclGroupSimulateEnd(&info) == ncclInvalidArgument);
  info.magic = 0;
  for (ncclSimInfo_t* const bad : {&info, static_cast<ncclSimInfo_t*>(nullptr)}) {
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclGroupSimulateEnd(bad) == ncclInvalidArgument);
  }
}
