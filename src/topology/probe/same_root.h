// File: topology/probe/same_root.h: which network cards are below a GPU's PCI Express root complex,
// so that what goes between them stays there, and does not cross the processor.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/probe/sources/file_tree.h"

namespace tutti::topology {

/// The RDMA devices among these ("mlx5_0", or a port, "mlx5_0:1") that are below the same root
/// complex as a GPU. `gpu`: its PCI address. kUnsupported: none is, or that can't be said; which
/// root complexes they are below.
Result<std::vector<std::string>> cards_below_root_of(const FileTree& files, std::string_view gpu,
                                                     std::span<const std::string> cards);

}  // namespace tutti::topology
