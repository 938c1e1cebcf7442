// File: topology/nccl/nccl_xml.h: NCCL's and RCCL's topology files (NCCL_TOPO_FILE,
// NCCL_TOPO_DUMP_FILE), read and written.
//
// They have a room of their own, apart from other formats (topology/readers), since communicators
// read and write them too.
//
// What a graph keeps of a file: <pci> is a pcie_switch, gpu, nic, card, or (nothing known) a
// pcie_port; attributes without a field of their own are facts under their names, those that NCCL
// does not define as "xml_<name>", or "pci_<name>" of a <pci>. A fact that has the name of an
// attribute is what is written; so files survive being read and written, texts included.
#pragma once
#include <string>
#include <string_view>

#include "topology/graph/finding.h"
#include "tutti/result.h"

namespace tutti::topology {

/// Whether a text looks like such a file. Cheap; looks at the beginning only.
bool is_nccl_xml(std::string_view text);
/// The graph that it describes; `source` is what messages call the text. Bounded in time and memory
/// whatever the text is. Not validated.
Result<Imported> read_nccl_xml(std::string_view text, std::string_view source);

/// The graph as a file that NCCL reads: no XML header, no tabs. Ports of switches, network switches
/// and packages are left out, for NCCL's model has none; hosts are told apart by host_hash. An
/// Error for a graph without NUMA nodes.
Result<std::string> write_nccl_xml(const Graph& graph);

}  // namespace tutti::topology
