// File: topology/readers/nccl_graph.h: the rings and trees that NCCL chose, as it writes them
// (NCCL_GRAPH_DUMP_FILE), to compare ours with.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/result.h"

namespace tutti::topology {

/// One channel: GPUs in order, and the NICs at its ends (none within a host).
struct NcclChannel {
  std::vector<int> gpus;            // NCCL's `dev`, as in its topology file.
  std::vector<std::uint64_t> nets;  // NCCL's `dev` of <net>; an address of its own since 2.20.
  friend bool operator==(const NcclChannel&, const NcclChannel&) = default;
};

struct NcclGraph {
  int id = 0;       // 0 ring, 1 tree, 2 collnet chain, 3 NVLS, 4 collnet direct.
  int pattern = 0;  // 1 balanced tree, 2 split tree, 3 tree, 4 ring, 5 NVLS, 6 collnet direct.
  int cross_nic = 0;
  int channel_count = 0;                    // As the file says; NCCL may list as many.
  double speed_intra = 0, speed_inter = 0;  // GB/s of one channel.
  double latency_inter = 0;
  std::string type_intra, type_inter;  // "NVL", "PIX", ...
  bool same_channels = false;
  std::vector<NcclChannel> channels;
  friend bool operator==(const NcclGraph&, const NcclGraph&) = default;
};

/// The graphs of a <graphs> file, in its order. An Error has file, line and what is wrong; also if
/// a graph's channels are more than its nchannels, or a channel names one GPU twice.
Result<std::vector<NcclGraph>> parse_nccl_graphs(std::string_view text, std::string_view source);

}  // namespace tutti::topology
