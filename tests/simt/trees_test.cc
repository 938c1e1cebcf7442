// Communicators of devices on a DGX-1, whose NVLinks are not alike: packed trees are chosen, and
// give what they should.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <random>

#include "simt/communicator/device_communicators.h"
#include "support/catch.h"
#include "support/processes.h"
#include "support/sample.h"
#include "topology/graph/text.h"
#include "topology/models/model.h"

namespace tutti {
namespace {

using test::Case;
using test::DeviceCluster;

// Before anything asks for it.
const bool kOnDgx1 = setenv("SIMT_MACHINE", "dgx1-v100", 1) == 0;

Settings settings_with(Contract contract) {
  Settings settings = test::small_settings();
  settings.lanes = 16;
  settings.contract = contract;
  return settings;
}

/// The same with the usual slots: small ones are waited for, however many links there are.
Settings usual_slots(Contract contract) {
  Settings settings = settings_with(contract);
  settings.slot_bytes = settings.slot_count = 0;
  return settings;
}

/// As if on a GPU with room for that.
struct Room {
  Room() { simt::settings().multiprocessors = 64; }
  ~Room() { simt::settings().multiprocessors = before; }
  int before = simt::settings().multiprocessors;
};

/// What a rank has chosen, from its description.
std::string choices_of(const DeviceCommunicator& comm) {
  const std::string text = comm.describe();
  return text.substr(std::min(text.find("plans chosen:"), text.size()));
}

TEST_CASE("long messages go along packed trees, as all ranks find") {
  REQUIRE(kOnDgx1);
  const Room room;
  for (const Contract contract : {Contract::kDeterministic, Contract::kRelaxed}) {
    DeviceCluster cluster({0, 1, 2, 3, 4, 5}, usual_slots(contract));
    REQUIRE(cluster.complaint.empty());
    CHECK(cluster.comms[0].describe().find("to rank 3: NVLink, 40 GB/s to it alone\n") !=
          std::string::npos);
    CHECK(cluster.comms[0].describe().find("to rank 5: PCIe\n") != std::string::npos);
    for (DeviceCommunicator& comm : cluster.comms) {
      for (const auto collective : {Collective::kBroadcast, Collective::kAllReduce})
        REQUIRE(comm.prepare(
            {.collective = collective, .count = std::size_t{1} << 28, .type = DataType::kFloat32}));
      CHECK(choices_of(comm) == choices_of(cluster.comms[0]));
    }
    const std::string choices = choices_of(cluster.comms[0]);
    INFO(choices);
    CHECK(choices.find("broadcast up to 1073741824 bytes, root 0: packed_trees along 3 trees, ") !=
          std::string::npos);
    const bool relaxed = contract == Contract::kRelaxed;
    CHECK((choices.find("all_reduce up to 1073741824 bytes: packed_trees along") !=
           std::string::npos) == relaxed);
  }
}

TEST_CASE("it is explained which way a call goes, and why") {
  const Room room;
  Settings settings = usual_slots(Contract::kDeterministic);
  const auto explain = [&](Collective collective, std::size_t count) {
    const DeviceCluster cluster({0, 1, 2, 3, 4, 5}, settings);
    REQUIRE(cluster.complaint.empty());
    const auto text = cluster.comms[1].explain(
        {.collective = collective, .count = count, .type = DataType::kFloat32});
    REQUIRE(text);
    UNSCOPED_INFO(*text);
    CHECK(*cluster.comms[2].explain(
              {.collective = collective, .count = count, .type = DataType::kFloat32}) == *text);
    return *text;
  };
  constexpr std::size_t kLong = std::size_t{1} << 28;
  const auto says = [](const std::string& text, const char* words) {
    INFO(words);
    CHECK(text.find(words) != std::string::npos);
  };
  std::string text = explain(Collective::kBroadcast, kLong);
  says(text, "groups of 2, ");
  says(text, "3 trees with 1:1:1 of the message");
  says(text, "Taken: packed_trees: ");
  says(text, "times as long");
  text = explain(Collective::kAllReduce, kLong);
  says(text, "with 6 ranks keeps the relaxed");
  says(text, "To be faster: the relaxed contract: packed_trees in ");
  says(explain(Collective::kAllReduce, 10), "Taken: packet");
  settings.algorithm = "ring";
  says(explain(Collective::kBroadcast, kLong), "Taken: ring, which is forced");
  settings.algorithm = "";
  settings.lanes = 2;
  text = explain(Collective::kBroadcast, kLong);
  says(text, "takes more than the 2 lanes");
  CHECK(text.find("Taken: packed_trees") == std::string::npos);
}

TEST_CASE("results along trees of some GPUs, in any order, are right") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  const Room room;
  Settings settings = settings_with(Contract::kRelaxed);
  settings.algorithm = "packed_trees";
  // For the thread sanitizer each thread of a block takes mappings, of which there are 65,530.
  if (test::kSanitized) settings.lanes = 8;
  int packed = 0;
  for (int round = 0; round < 6; ++round) {
    std::vector<int> devices(8);
    std::iota(devices.begin(), devices.end(), 0);
    std::shuffle(devices.begin(), devices.end(), random);
    devices.resize(4 + random() % 5);
    DeviceCluster cluster(devices, settings);
    REQUIRE(cluster.complaint.empty());
    for (const auto collective :
         {Collective::kBroadcast, Collective::kReduce, Collective::kAllReduce}) {
      for (const std::size_t count : {1, 700, 20000}) {
        Case test;
        test.collective = collective;
        test.ranks = static_cast<int>(devices.size());
        test.count = count;
        test.root = static_cast<int>(random() % devices.size());
        test.in_place = random() % 2 == 0;
        // The order of addition makes no difference to integers.
        test.type = random() % 2 == 0 ? DataType::kInt32 : DataType::kInt64;
        test.op = random() % 2 == 0 ? ReduceOp::kSum : ReduceOp::kMax;
        const std::string error = run_in_group(cluster.comms, cluster.streams, test, random());
        INFO(test.to_string());
        // Some have no NVLinks that join all, or an exchange does as well.
        if (error.find("TUTTI_ALGORITHM: packed_trees") != std::string::npos) continue;
        CHECK(error == "");
        ++packed;
      }
    }
  }
  CHECK(packed > 9);
}

TEST_CASE("results of rings on the orders that the links suggest are right") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  const Room room;
  Settings settings = settings_with(Contract::kRelaxed);
  settings.algorithm = "ring";
  const auto graph = topology::model("dgx1-v100");
  REQUIRE(graph);
  const test::ScratchDirectory files;
  settings.topology = files.path() + "/dgx1.topo";
  std::ofstream(settings.topology) << topology::print(*graph);
  DeviceCluster cluster({3, 0, 1, 2, 7, 6, 5, 4}, settings);
  REQUIRE(cluster.complaint.empty());
  for (const auto collective : {Collective::kAllGather, Collective::kReduceScatter,
                                Collective::kAllReduce, Collective::kBroadcast}) {
    for (const std::size_t count : {1, 700, 20000}) {
      Case test;
      test.collective = collective;
      test.ranks = 8;
      test.count = count;
      test.root = static_cast<int>(random() % 8);
      test.in_place = random() % 2 == 0;
      test.type = DataType::kInt32;
      test.op = ReduceOp::kSum;
      INFO(test.to_string());
      CHECK(run_in_group(cluster.comms, cluster.streams, test, random()) == "");
    }
  }
  for (const DeviceCommunicator& comm : cluster.comms)
    CHECK(choices_of(comm) == choices_of(cluster.comms[0]));
  const std::string choices = choices_of(cluster.comms[0]);
  INFO(choices);
  CHECK(choices.find("all_gather") != std::string::npos);
  CHECK(choices.find("ring+order") != std::string::npos);
}

}  // namespace
}  // namespace tutti
