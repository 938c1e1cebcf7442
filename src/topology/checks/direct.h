// File: topology/checks/direct.h: whether a GPU and another GPU or a NIC exchange data directly, so
// far as a graph's facts say, and the way through host memory if not.
//
// A path (paths.h) is what wires allow; drivers, kernels and bridges may allow less, and libraries
// then copy through host memory without a word: NCCL rewrites its paths so where P2P is disabled or
// GPUDirect is off. A fact that is missing forbids nothing.
#pragma once
#include <string>
#include <vector>

#include "topology/graph/paths.h"

namespace tutti::topology {

struct Direct {
  enum class Verdict {
    kAllowed,  // Nothing speaks against it.
    kDepends,  // On what the facts do not say.
    kDetour,   // Allowed, and all of it goes up to the processor and back.
    kRefused,  // Through host memory only.
  };
  Verdict verdict = Verdict::kAllowed;
  std::string why{};  // What was found, and in whose words; "" if allowed.
  /// If refused: from the GPU to the memory of its NUMA node, and on from there. Empty if there is
  /// no such way.
  std::vector<Path> staged{};
};

/// What keeps a GPU from another GPU or a NIC of its host; allowed for any other two nodes. The
/// order matters between GPUs: it is `from` that reads or writes the other's memory. Linear in the
/// graph.
Direct direct_access(const Graph& graph, NodeId from, NodeId to);

}  // namespace tutti::topology
