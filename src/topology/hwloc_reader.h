// File: topology/hwloc_reader.h: this machine as hwloc sees it. hwloc's files are read by
// hwloc_xml_reader of the registry, with the same code.
#pragma once
#include "topology/finding.h"
#include "tutti/result.h"

namespace tutti::topology {

/// The machine this runs on: NUMA nodes, packages, PCI tree, GPUs and NICs as far as hwloc's
/// plugins know them. kUnsupported in a build without hwloc.
Result<Imported> probe_hwloc();

}  // namespace tutti::topology
