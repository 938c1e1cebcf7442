#include "comm/nic_paths.h"

#include "topology/probe/nic_paths.h"
#include "topology/probe/probe.h"

namespace tutti {

NicPaths nic_paths_of(std::span<const Peer> peers) {
  return [peers](std::span<const int> ranks, std::span<const std::string> cards) {
    std::vector<topology::Place> places;
    for (const int rank : ranks)
      places.push_back({.gpu = "", .cpus = peers[static_cast<std::size_t>(rank)].cpus});
    return topology::nic_paths(topology::this_machine(), places, cards);
  };
}

}  // namespace tutti
