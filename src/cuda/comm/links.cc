#include "cuda/comm/links.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "cuda/comm/reach.h"
#include "topology/graph/nccl_figures.h"
#include "topology/probe/sources/nvml.h"
#include "topology/probe/sources/sysfs.h"

namespace tutti {
namespace {

bool same_process(const DeviceInfo& one, const DeviceInfo& other) {
  return std::equal(std::begin(one.peer.process), std::end(one.peer.process), other.peer.process);
}

/// How well two devices are joined, as CUDA ranks it; the same where it does not say.
int performance_rank(int device, int peer) {
  int rank = 0;
  const auto asked = cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, device, peer);
  return exec::succeeds(asked) ? rank : 0;
}

/// How this process's `device`, which is `mine`, reaches another one.
planner::DeviceLink link_to(int device, const DeviceInfo& mine, const DeviceInfo& other,
                            int& performance) {
  using planner::DeviceLink;
  if (same_device(mine, other)) return DeviceLink::kSame;
  // Some MIG instances of one GPU share memory; the other process's sample shows which.
  if (std::strncmp(mine.bus, other.bus, sizeof mine.bus) == 0)
    return same_process(mine, other) ? DeviceLink::kHost : DeviceLink::kPcie;
  int peer = 0, can = 0, atomics = 0;
  if (!exec::succeeds(cudaDeviceGetByPCIBusId(&peer, other.bus)))
    return DeviceLink::kPcie;  // This process may not see it; its memory can be opened even so.
  if (!exec::succeeds(cudaDeviceCanAccessPeer(&can, device, peer)) || can == 0)
    return DeviceLink::kHost;
  // NVLink carries atomics, PCI Express between GPUs does not.
  static_cast<void>(exec::succeeds(
      cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device, peer)));
  performance = performance_rank(device, peer);
  return atomics != 0 ? DeviceLink::kNvlink : DeviceLink::kPcie;
}

/// What TUTTI_PEERS leaves of links that work.
planner::DeviceLink allowed(planner::DeviceLink link, std::string_view peers) {
  using planner::DeviceLink;
  const bool excluded =
      link == DeviceLink::kPcie ? peers != "auto" : link == DeviceLink::kNvlink && peers == "off";
  return excluded ? DeviceLink::kHost : link;
}

/// How it reaches the others' devices.
struct Reach {
  ExchangedStatus status;
  std::uint8_t links[cuda::kMostDeviceRanks] = {};
  std::int32_t performance[cuda::kMostDeviceRanks] = {};
};

/// By rank: the peers whose writes did not reach its memory. Call it after all ranks have written.
/// Collective.
Result<std::vector<LostWrites>> exchange_lost(DeviceRank& self, const std::vector<Reach>& reaches) {
  std::vector<bool> expected;
  for (std::size_t rank = 0; rank < reaches.size(); ++rank) {
    const auto link = static_cast<planner::DeviceLink>(reaches[rank].links[self.index()]);
    expected.push_back(rank != self.index() && link < planner::DeviceLink::kHost);
  }
  auto lost = look_at_sample(self, expected);
  const Status looked = lost ? ok() : Status(lost.error());
  return exchange_status(self.control, lost ? *lost : LostWrites(), looked);
}

/// GB/s of NVLinks that join just it and another.
struct Direct {
  ExchangedStatus status;
  float rates[cuda::kMostDeviceRanks] = {};
};

/// GB/s of an NVLink of this process's device.
double nvlink_rate(int device) {
  return topology::nvlink_bandwidth(exec::capability_of(device)).value;
}

/// Which NVLinks lead from the device to just one other; none where there is no NVML.
Direct ask_nvml(DeviceRank& self, const std::vector<DeviceInfo>& all) {
  Direct mine;
  const auto me = self.index();
  // A program that has NVML in it, as one on simulated GPUs does, is asked itself.
  const bool within = dlsym(RTLD_DEFAULT, "nvmlInit_v2") != nullptr;
  const auto links =
      within ? topology::read_nvlinks(all[me].bus, nullptr) : topology::read_nvlinks(all[me].bus);
  if (!links) return mine;
  const double each = nvlink_rate(self.device);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::string bus = topology::parse_bus(all[rank].bus);
    const auto count = std::count_if(links->begin(), links->end(), [&](const auto& link) {
      return link.active && link.remote == topology::NvmlLink::Remote::kGpu && link.bus == bus;
    });
    mine.rates[rank] = static_cast<float>(each * static_cast<double>(count));
  }
  return mine;
}

/// Asks where that can make a difference: NVML takes some ms. Collective.
Status learn_direct(DeviceRank& self, const std::vector<DeviceInfo>& all,
                    const std::vector<Reach>& reaches) {
  using planner::DeviceLink;
  planner::DeviceMachine& machine = self.machine;
  std::set<std::pair<DeviceLink, std::int32_t>> kinds;  // Within hosts, by what CUDA says.
  bool any = false;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (std::size_t peer = 0; peer < all.size(); ++peer) {
      const DeviceLink link = machine.link(rank, peer);
      if (link == DeviceLink::kSame || link == DeviceLink::kNetwork) continue;
      kinds.emplace(link, reaches[rank].performance[peer]);
      any = any || link == DeviceLink::kNvlink;
    }
  }
  if (!any || kinds.size() < 2) return ok();
  TUTTI_TRY(const auto told, exchange_status(self.control, ask_nvml(self, all), ok()));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (std::size_t peer = 0; peer < all.size(); ++peer) {
      constexpr float kMost = 1e4F;
      const float rate = std::max(told[rank].rates[peer], told[peer].rates[rank]);
      const bool known = machine.link(rank, peer) == DeviceLink::kNvlink && rate > 0;
      machine.direct.push_back(known ? std::min(rate, kMost) : 0);
    }
  }
  return ok();
}

}  // namespace

bool same_device(const DeviceInfo& one, const DeviceInfo& other) {
  return std::strncmp(one.bus, other.bus, sizeof one.bus) == 0 &&
         std::equal(std::begin(one.uuid.bytes), std::end(one.uuid.bytes), other.uuid.bytes);
}

Status learn_links(DeviceRank& self, const std::vector<DeviceInfo>& all) {
  Reach mine;
  const std::vector<int>& hosts = self.machine.hosts.of;
  const auto me = self.index();
  const exec::OnDevice on(self.device);
  self.refusals.resize(all.size());
  std::vector<planner::DeviceLink> links;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const bool remote = !hosts.empty() && hosts[rank] != hosts[me];
    if (remote) {
      links.push_back(planner::DeviceLink::kNetwork);
      continue;
    }
    const auto link = link_to(self.device, all[me], all[rank], mine.performance[rank]);
    links.push_back(allowed(link, self.settings.peers));
    if (links.back() != link) self.refusals[rank] = "TUTTI_PEERS=" + self.settings.peers;
  }
  const Status written = write_to_samples(self, all, links);
  std::ranges::transform(links, mine.links,
                         [](auto link) { return static_cast<std::uint8_t>(link); });
  TUTTI_TRY(const auto reaches, exchange_status(self.control, mine, written));
  TUTTI_TRY(const auto lost, exchange_lost(self, reaches));
  for (std::size_t rank = 0; rank < reaches.size(); ++rank) {
    for (std::size_t peer = 0; peer < reaches.size(); ++peer) {
      auto worse = static_cast<planner::DeviceLink>(
          std::min(std::max(reaches[rank].links[peer], reaches[peer].links[rank]),
                   static_cast<std::uint8_t>(planner::DeviceLink::kNetwork)));
      if (lost[rank].from[peer] || lost[peer].from[rank])
        worse = std::max(worse, planner::DeviceLink::kHost);
      self.machine.links.push_back(worse);
      self.staged |= worse >= planner::DeviceLink::kHost;
    }
    if (lost[me].from[rank]) self.refusals[rank] = "what its device writes here is lost";
    if (lost[rank].from[me]) self.refusals[rank] = "what this device writes there is lost";
  }
  return learn_direct(self, all, reaches);
}

}  // namespace tutti
