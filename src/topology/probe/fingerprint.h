// File: topology/probe/fingerprint.h: a graph in 64 bits, so that what was measured on a machine is
// found again on machines like it, and on no others.
//
// What counts: hosts' processors, NUMA nodes and the CPUs and distances of each, packages, GPUs and
// NICs by maker and type, bridges, and the links between all these: kind, number, what PCI Express
// could do at most. What does not: names, bus addresses, serial numbers, the kernel, what a link
// does just now, the order in which nodes were found. So a reboot, or a driver that counts anew,
// changes nothing.
#pragma once
#include <cstdint>

#include "topology/graph/graph.h"

namespace tutti::topology {

/// The same for graphs that differ in the above only; else different, but for one pair in 2^64, and
/// for links that differ only in how alike nodes are joined far from them (Weisfeiler and Leman's
/// refinement of colors, some rounds of it).
std::uint64_t fingerprint(const Graph& graph);

/// The fingerprint of the machine that this process runs on, from its files alone: no driver is
/// loaded for it. Made once in a process; some milliseconds. Any thread.
std::uint64_t fingerprint_of_this_machine();

}  // namespace tutti::topology
