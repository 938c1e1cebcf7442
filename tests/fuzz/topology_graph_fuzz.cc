// The parser of NCCL's <graphs> against any bytes: an error is one line, and what is taken keeps
// the bounds and invariants that nccl_graph.h states.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string_view>

#include "topology/readers/nccl_graph.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::topology;
  const auto require = [](bool condition) {
    if (!condition) std::abort();
  };
  const auto graphs = parse_nccl_graphs({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!graphs) {
    require(graphs.error().what.find('\n') == std::string::npos);
    require(graphs.error().what.starts_with("fuzz"));
    return 0;
  }
  for (const NcclGraph& graph : *graphs) {
    require(graph.channels.size() <= 256);
    require(static_cast<int>(graph.channels.size()) <= graph.channel_count);
    for (const double speed : {graph.speed_intra, graph.speed_inter, graph.latency_inter}) {
      require(speed >= 0 && speed < 1e9);
    }
    for (const NcclChannel& channel : graph.channels) {
      const std::set<int> distinct(channel.gpus.begin(), channel.gpus.end());
      require(distinct.size() == channel.gpus.size());
      require(distinct.empty() || *distinct.begin() >= 0);
    }
  }
  return 0;
}
