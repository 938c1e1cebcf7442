// File: topology/readers/nccl_xml.h: NCCL's and RCCL's topology files (NCCL_TOPO_FILE,
// NCCL_TOPO_DUMP_FILE), written. The reader is nccl_xml_reader of the registry.
//
// What a graph keeps of a file: <pci> is a pcie_switch, gpu, nic, card, or (nothing known) a
// pcie_port; attributes without a field of their own are facts under their names, those that NCCL
// does not define as "xml_<name>", or "pci_<name>" of a <pci>. A fact that has the name of an
// attribute is what is written; so files survive being read and written, texts included.
#pragma once
#include <string>

#include "topology/graph/graph.h"
#include "tutti/result.h"

namespace tutti::topology {

/// The graph as a file that NCCL reads: no XML header, no tabs. Ports of switches, network switches
/// and packages are left out, for NCCL's model has none; hosts are told apart by host_hash. An
/// Error for a graph without NUMA nodes.
Result<std::string> write_nccl_xml(const Graph& graph);

}  // namespace tutti::topology
