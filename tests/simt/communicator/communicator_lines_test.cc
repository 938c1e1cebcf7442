// Communicators of devices over lines of 128 bytes: where estimates choose them, what calls get
// there, and where there are none.
#include <random>
#include <string>

#include "simt/communicator/device_communicators.h"
#include "support/catch.h"
#include "support/kinds.h"

namespace tutti {
namespace {

using test::Case;
using test::DeviceCluster;

Settings few_lanes() {
  Settings settings;
  settings.lanes = 4;
  return settings;
}

bool has_lines(const DeviceCluster& cluster) {
  const std::string text = cluster.comms[0].describe();
  return text.find(" over lines of 128 bytes, ") != std::string::npos;
}

/// Blocks of a middling call, which ends within a line and within a unit.
Case middling(Collective collective, int ranks, std::mt19937_64& random) {
  Case test;
  test.collective = collective;
  test.ranks = ranks;
  test.type = test::any_type(random);
  test.op = static_cast<ReduceOp>(random() % 6);
  test.count = (std::size_t{150} << 10) / size_of(test.type) / static_cast<std::size_t>(ranks) +
               random() % 99;
  test.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
  test.in_place = random() % 2 == 0;
  return test;
}

TEST_CASE("middling calls of every collective go over lines, with the bits of the reference") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  for (const int ranks : {2, 4}) {
    DeviceCluster cluster(ranks == 2 ? std::vector{0, 1} : std::vector{0, 1, 2, 3}, few_lanes());
    REQUIRE(cluster.complaint.empty());
    for (int round = 0; round < 3; ++round) {  // More slots than rings have.
      test::shuffle_threads(round == 0 ? 0 : random());
      for (int i = 0; i < kCollectiveCount; ++i) {
        const Case test = middling(static_cast<Collective>(i), ranks, random);
        INFO(test.to_string());
        CHECK(run_in_group(cluster.comms, cluster.streams, test, random()) == "");
      }
    }
    INFO(cluster.comms[0].describe());
    CHECK(has_lines(cluster));
  }
}

#if !defined(TUTTI_GPU)
TEST_CASE("ranks of one device, and devices that reach each other by the host, have no lines") {
  const test::NoPeerAccess none;
  for (const std::vector<int>& devices : {std::vector{4, 4}, std::vector{0, 1}}) {
    std::mt19937_64 random(5);
    DeviceCluster cluster(devices, few_lanes());
    REQUIRE(cluster.complaint.empty());
    for (int i = 0; i < kCollectiveCount; ++i) {
      const Case test = middling(static_cast<Collective>(i), 2, random);
      CHECK(run_in_group(cluster.comms, cluster.streams, test, random()) == "");
    }
    CHECK_FALSE(has_lines(cluster));
  }
}
#endif

}  // namespace
}  // namespace tutti
