// File: topology/checks/chips.h: what a GPU should have, by what it is called.
//
// Checks need it where all GPUs of a machine lack the same, so that none shows the others what is
// missing. A GPU that is in no table has nothing that it should have, and checks are silent.
#pragma once
#include <string>

#include "topology/graph/graph.h"

namespace tutti::topology {

struct Chip {
  long long device;  // PCI device of NVIDIA's.
  const char* name;
  int sm;
  int nvlinks;  // That its board wires; 0: none, or by bridges that a buyer may leave out.
};

/// By the facts "vendor" and "device"; nullptr for a GPU that is not in chips.def.
const Chip* chip_of(const Node& gpu);
/// What of this compute capability is sold with so many NVLinks, fewer than the chip has; nullptr
/// if nothing is.
const Chip* cut_down(int sm, int nvlinks);
/// Transfers in 1e9 a second and lane of the PCI Express generation that a GPU's chip is made for,
/// by "sm", "gfx" or "gcn"; 0 if not known, or if the chip is part of a processor.
double pcie_generation(const Node& gpu);
/// What GPUs that are compared with each other have in common: vendor, device and model; the chip
/// where none of them is known.
std::string chip_key(const Node& gpu);

}  // namespace tutti::topology
