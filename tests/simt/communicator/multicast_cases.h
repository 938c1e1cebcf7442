// File: simt/communicator/multicast_cases.h: a machine that has multicast memory, and calls that
// can go over it.
#pragma once
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>

#include "simt/communicator/device_communicators.h"
#include "support/processes.h"
#include "topology/graph/text.h"
#include "topology/models/model.h"

namespace tutti::test {

/// Before anything asks which machine it is.
[[maybe_unused]] inline const int kMachine = setenv("SIMT_MACHINE", "hgx-h100", 1);

/// What the host's probe would find there; a file that goes with the program.
class TopologyFile {
 public:
  TopologyFile() : path_(directory_.path() + "/hgx-h100.topo") {
    if (const auto graph = topology::model("hgx-h100"))
      std::ofstream(path_) << topology::print(*graph);
  }
  const std::string& path() const { return path_; }

 private:
  ScratchDirectory directory_;
  std::string path_;
};
inline const TopologyFile kTopology;

inline constexpr Collective kTaken[] = {Collective::kAllReduce, Collective::kReduceScatter,
                                        Collective::kAllGather, Collective::kBroadcast};

inline Settings settings_of(const std::string& algorithm, Contract contract) {
  Settings settings = small_settings();
  settings.topology = kTopology.path();
  settings.algorithm = algorithm;
  settings.contract = contract;
  return settings;
}

inline Case case_of(Collective collective, int ranks, std::mt19937_64& random, bool exact) {
  constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16,
                                 DataType::kInt32};
  Case test;
  test.collective = collective;
  test.ranks = ranks;
  test.type = kTypes[random() % 4];
  test.op = exact || random() % 2 == 0 ? ReduceOp::kSum : ReduceOp::kAvg;
  test.exact = exact;
  test.count = 1 + random() % 40000;
  test.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
  test.in_place = random() % 2 == 0;
  test.misalign = random() % 3 == 0 ? size_of(test.type) : 0;
  return test;
}

}  // namespace tutti::test
