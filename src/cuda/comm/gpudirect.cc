#include "cuda/comm/gpudirect.h"

#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/topology.h"
#include "cuda/comm/exchange_status.h"
#include "topology/nccl/complete.h"
#include "topology/probe/nic_paths.h"
#include "topology/probe/probe.h"
#include "topology/probe/same_root.h"
#include "topology/probe/sources/sysfs.h"

namespace tutti {
namespace {

using Cards = std::vector<std::string>;

struct Offer {
  ExchangedStatus status;
  ExchangedStatus without;  // Why this rank's slots are not to be apart, where that is no trouble.
};

/// Which cards to use: those near the device, if there are any. Before anything is made.
Result<Cards> choose_cards(DeviceRank& self, const Transport& transport, const Opening& opening) {
  TUTTI_RETURN_IF_ERROR(exec::GpuDirectMemory::check(self.device));
  TUTTI_TRY(Cards cards, transport.cards(opening));
  char bus[20] = {};
  TUTTI_RETURN_IF_ERROR(exec::cuda_status(cudaDeviceGetPCIBusId(bus, sizeof bus - 1, self.device),
                                          "asking a device where it is"));
  auto near = topology::cards_below_root_of(topology::files_of_this_machine(), bus, cards);
  if (near) {
    cards = *std::move(near);
  } else if (self.settings.gpudirect == "auto") {
    return Error{near.error().code, near.error().what +
                                        ", so the way between them may be slow "
                                        "(TUTTI_GPUDIRECT=on takes it)"};
  }
  return cards;
}

/// Makes the memory, and tries whether the cards take it.
Status make(DeviceRank& self, const Transport& transport, const Cards& chosen, Opening& opening) {
  const std::vector<int>& hosts = self.machine.hosts.of;
  TUTTI_TRY(self.between_hosts.gpudirect,
            exec::GpuDirectMemory::allocate(self.device,
                                            gpudirect_bytes(opening.config, hosts, self.me.value)));
  opening.gpudirect = self.between_hosts.gpudirect.description(hosts);
  opening.only_cards = chosen;
  TUTTI_TRY(const Cards cards, transport.cards(opening));
  self.between_hosts.slots_words =
      fmt::format("in device memory (GPUDirect over {})", fmt::join(cards, ", "));
  return ok();
}

/// Whether all ranks can; if not, the words say which can't. An error where one has to.
Result<bool> all_can(DeviceRank& self, const Status& mine) {
  Status failure = ok();
  Offer offer;
  if (!mine && self.settings.gpudirect == "on") {
    failure = Error{mine.error().code, "TUTTI_GPUDIRECT=on: " + mine.error().what, self.me};
  } else {
    offer.without = ExchangedStatus(mine);
  }
  TUTTI_TRY(const auto offers, exchange_status(self.control, offer, failure));
  for (std::size_t rank = 0; rank < offers.size(); ++rank) {
    const ExchangedStatus& without = offers[rank].without;
    if (without.code == 0) continue;
    self.between_hosts.slots_words =
        fmt::format("in pinned memory: rank {}: {}", rank, without.words());
    return false;
  }
  return true;
}

/// What a file of NCCL says of this host; nothing: there is none, or it is of another host. Virtual
/// machines hide which card is next to which device, and clouds ship such files to tell it. The
/// text form may be of machines elsewhere, so it does not count.
std::optional<topology::Graph> graph_by_file(const std::string& path,
                                             std::span<const std::string> buses) {
  if (path.empty() || path == "off") return std::nullopt;
  auto file = read_topology_file(path);  // An error is told by learn_graph.
  if (!file || !file->partial) return std::nullopt;
  if (!topology::shares_address(file->graph, topology::this_machine(), {})) return std::nullopt;
  topology::complete(file->graph, topology::this_machine());
  if (!topology::missing_gpus(file->graph, buses).empty()) return std::nullopt;
  return std::move(file->graph);
}

}  // namespace

NicPaths nic_paths_of(const Settings& settings, const std::vector<DeviceInfo>& all) {
  return [&settings, &all](std::span<const int> ranks, std::span<const std::string> cards) {
    std::vector<topology::Place> places;
    std::vector<std::string> buses;
    for (const int rank : ranks) {
      buses.push_back(topology::parse_bus(all[static_cast<std::size_t>(rank)].bus));
      places.push_back({buses.back()});
    }
    const auto by_file = graph_by_file(settings.topology, buses);
    return topology::nic_paths(by_file ? *by_file : topology::this_machine(), places, cards);
  };
}

Status choose_gpudirect(DeviceRank& self, const Transport& transport, Opening& opening) {
  if (self.settings.gpudirect == "off") {
    self.between_hosts.slots_words = "in pinned memory: TUTTI_GPUDIRECT=off";
    return ok();
  }
  if (transport.cards == nullptr) {
    const std::string why = fmt::format("{} gives no card access to devices", transport.name);
    self.between_hosts.slots_words = "in pinned memory: " + why;
    if (self.settings.gpudirect == "auto") return ok();
    return Error{Code::kUnsupported, "TUTTI_GPUDIRECT=on: " + why + ", verbs does", self.me};
  }
  auto cards = choose_cards(self, transport, opening);
  TUTTI_TRY(bool all, all_can(self, cards ? ok() : Status(cards.error())));
  if (!all) return ok();
  TUTTI_TRY(all, all_can(self, make(self, transport, *cards, opening)));
  self.machine.gpudirect = all;
  // What was made is kept: to free it would wait for all that the device does.
  if (all) return ok();
  opening.gpudirect = {};
  opening.only_cards.clear();
  return ok();
}

}  // namespace tutti
