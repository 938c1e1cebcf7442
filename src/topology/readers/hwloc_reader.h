// File: topology/readers/hwloc_reader.h: this machine as hwloc sees it. hwloc's files are read by
// hwloc_xml_reader of the registry (hwloc_xml.cc), with the same code in a process of its own.
#pragma once
#include <string_view>

#include "topology/graph/finding.h"
#include "tutti/result.h"

namespace tutti::topology {

/// The machine this runs on: NUMA nodes, packages, PCI tree, GPUs and NICs as far as hwloc's
/// plugins know them. kUnsupported in a build without hwloc.
Result<Imported> probe_hwloc();

/// The same in this process, where hwloc's plugins leave what they have allocated behind.
Result<Imported> probe_hwloc_here();

/// A file of hwloc's. libhwloc crashes on some files that nobody has written with hwloc.
Result<Imported> read_hwloc_here(std::string_view text, std::string_view source);

}  // namespace tutti::topology
