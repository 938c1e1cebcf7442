// Communicators of devices whose ranks are of one process: every collective against the reference
// on the host, groups, streams, captures, and how they end.
#include <random>
#include <thread>

#include "simt/device_communicators.h"
#include "support/catch.h"

namespace tutti {
namespace {

using test::Case;
using test::DeviceCase;
using test::DeviceCluster;
using test::said;

std::vector<int> devices_for(int ranks, int devices) {
  std::vector<int> list;
  for (int rank = 0; rank < ranks; ++rank) list.push_back(rank % devices);
  return list;
}

TEST_CASE("every collective, over types, operations and sizes") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  test::shuffle_threads(seed);
  for (const int ranks : {1, 2, 3, 5}) {
    DeviceCluster cluster(devices_for(ranks, 3));  // Some share a device.
    REQUIRE(cluster.complaint.empty());
    for (int i = 0; i < kCollectiveCount; ++i) {
      Case test;
      test.collective = static_cast<Collective>(i);
      test.ranks = ranks;
      // Nothing, one, what one shot takes, and several slots.
      for (const std::size_t count : {0, 1, 333, 5000}) {
        test.type = static_cast<DataType>(random() % 12);
        test.op = static_cast<ReduceOp>(random() % 6);
        test.count = count;
        test.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
        test.in_place = random() % 2 == 0;
        CHECK(run_in_group(cluster.comms, cluster.streams, test, random()) == "");
      }
    }
  }
}

}  // namespace
}  // namespace tutti
