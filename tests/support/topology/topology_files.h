// File: support/topology/topology_files.h: the machine files that the topology tests share.
#pragma once
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace tutti::test {

struct MachineFile {
  const char* name;
  const char* reader;  // Which reader is to recognise it.
};
inline constexpr std::array<MachineFile, 9> kMachineFiles{{
    {"two_nodes.topo", "tutti"},
    {"two_nodes.json", "json"},
    {"two_gpus.nccl.xml", "nccl_xml"},
    {"mi300_pair.rccl.xml", "nccl_xml"},
    {"two_gpus.hwloc2.xml", "hwloc_xml"},
    {"two_gpus.hwloc3.xml", "hwloc_xml"},
    {"four_gpus.matrix.txt", "matrix"},
    {"showtopo.rocm.txt", "matrix"},
    {"four_gpus.amd_smi.txt", "amd_smi"},
}};

inline std::string machine_path(const std::string& name) {
  const char* root = std::getenv("TEST_SOURCE_DIR");
  return std::string(root == nullptr ? "." : root) + "/tests/data/topology/" + name;
}

inline std::string machine_text(const std::string& name) {
  std::ifstream file(machine_path(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace tutti::test
