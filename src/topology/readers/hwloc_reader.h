// File: topology/readers/hwloc_reader.h: hwloc's files. The registry's hwloc_xml_reader
// (hwloc_xml.cc) reads them with the same code in a process of its own.
#pragma once
#include <string_view>

#include "topology/graph/finding.h"
#include "tutti/result.h"

namespace tutti::topology {

/// Reads a file of hwloc's: NUMA nodes, packages, PCI tree, GPUs and NICs as far as hwloc's plugins
/// knew them. hwloc's plugins leave memory behind, and libhwloc crashes on some files that hwloc
/// has not written, so call it in a child process. kUnsupported in a build without hwloc.
Result<Imported> read_hwloc_here(std::string_view text, std::string_view source);

}  // namespace tutti::topology
