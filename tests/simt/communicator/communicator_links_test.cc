// By which links devices of one host reach each other: what CUDA says, what is tried, and what the
// user excludes.
#include <random>
#include <string>
#include <vector>

#include "simt/communicator/device_communicators.h"
#include "support/catch.h"

namespace tutti {
namespace {

using test::all_reduce_of;
using test::Case;
using test::DeviceCluster;
using test::run_in_group;

TEST_CASE("devices without access to each other go by memory of the host") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  const test::NoPeerAccess none;
  // All pairs, some pairs, and one device.
  for (const std::vector<int>& devices : {std::vector{0, 1}, {0, 1, 2, 0}, {3, 3}}) {
    DeviceCluster cluster(devices);
    REQUIRE(cluster.complaint.empty());
    const bool staged = cluster.comms[0].describe().find("to rank 1: host\n") != std::string::npos;
    CHECK(staged == (devices[0] != devices[1]));
    for (int i = 0; i < kCollectiveCount; ++i) {
      for (const std::size_t count : {9, 4000}) {
        Case test;
        test.collective = static_cast<Collective>(i);
        test.ranks = static_cast<int>(devices.size());
        test.count = count;
        CHECK(run_in_group(cluster.comms, cluster.streams, test, random()) == "");
      }
    }
  }
}

TEST_CASE("TUTTI_PEERS excludes access between devices, not within one") {
  Settings settings = test::small_settings();
  const auto line = [&](const std::string& peers, int other) {
    settings.peers = peers;
    DeviceCluster cluster({0, other}, settings);
    REQUIRE(cluster.complaint.empty());
    Case test = test::all_reduce_of(4000, 2);
    CHECK(run_in_group(cluster.comms, cluster.streams, test, 1) == "");
    const std::string text = cluster.comms[0].describe();
    const auto begin = text.find("to rank 1: ");
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  CHECK(line("auto", 1).starts_with("to rank 1: NVLink"));
  CHECK(line("nvlink", 1) == line("auto", 1));
  CHECK(line("off", 1) == "to rank 1: host; TUTTI_PEERS=off");
  CHECK(line("off", 0) == line("auto", 0));
}

TEST_CASE("devices whose writes to each other are lost go by memory of the host") {
  simt::settings().loses_writes[1] = 1;  // What device 1 writes to device 0.
  {
    DeviceCluster cluster({0, 1, 2});
    CHECK(cluster.complaint == "");
    if (cluster.complaint.empty()) {
      const auto says = [&](std::size_t rank, const std::string& line) {
        return cluster.comms[rank].describe().find(line + "\n") != std::string::npos;
      };
      CHECK(says(0, "to rank 1: host; what its device writes here is lost"));
      CHECK(says(1, "to rank 0: host; what this device writes there is lost"));
      CHECK(says(0, "to rank 2: NVLink"));
      CHECK(says(2, "to rank 1: NVLink"));
      for (const std::size_t count : {9, 4000})
        CHECK(run_in_group(cluster.comms, cluster.streams, all_reduce_of(count, 3), 1) == "");
    }
  }
  simt::settings().loses_writes[1] = 0;
}

TEST_CASE("MIG instances of one GPU are devices of their own, which don't reach each other") {
  const test::NoPeerAccess none;
  const simt::Settings before = simt::settings();
  simt::settings().mig = true;
  Settings settings = test::small_settings();
  settings.lanes = simt::settings().multiprocessors = 40;  // All that one of them has room for.
  {
    DeviceCluster cluster({0, 1}, settings);
    CHECK(cluster.complaint == "");
    if (cluster.complaint.empty()) {
      for (std::size_t rank = 0; rank < 2; ++rank) {
        const std::string text = cluster.comms[rank].describe();
        CAPTURE(text);
        CHECK(text.find(": host") != std::string::npos);
      }
      CHECK(run_in_group(cluster.comms, cluster.streams, all_reduce_of(4000, 2), 1) == "");
    }
  }
  simt::settings() = before;
}

}  // namespace
}  // namespace tutti
