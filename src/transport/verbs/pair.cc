#include "transport/verbs/pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <system_error>

namespace tutti::verbs {
namespace {

// A write that is not acknowledged is repeated after 67 ms (4.096 us x 2^14; less makes repetitions
// of what is only slow), 6 times: 7 would mean for ever on some devices. The peer has always room,
// so being refused for want of it is an error soon.
constexpr std::uint8_t kTimeout = 14, kRetries = 6, kRefusals = 3, kRefusalTimer = 12;
constexpr std::uint8_t kHops = 64;

}  // namespace

PortAddress address_of(const Device& device) {
  return {.gid = device.chosen().gid.gid,
          .lid = device.port().lid,
          .mtu = static_cast<std::uint8_t>(device.port().active_mtu)};
}

std::string text_of(const PortAddress& address, LinkLayer layer) {
  return layer == kRoce ? ip_text(address.gid) : fmt::format("LID {}", address.lid);
}

std::string link_name(int peer, const std::string& peer_host, const Device& device,
                      const std::string& peer_device, const PortAddress& peer_address) {
  const LinkLayer layer = device.chosen().port.layer;
  return fmt::format("verbs: rank {} ({}) over {}, {} to {} {}", peer, peer_host, device.name(),
                     text_of(address_of(device), layer), peer_device, text_of(peer_address, layer));
}

Status connect_pair(const Device& device, ibv_qp& pair, const PairEnds& ends,
                    const std::string& to) {
  const auto modify = [&](ibv_qp_attr& attributes, int which) -> Status {
    const int error = library().modify_qp(&pair, &attributes, which);
    if (error == 0) return ok();
    return Error{Code::kSystem,
                 fmt::format("verbs: {}: connecting to {}: {}; is there a route, "
                             "and are both ports up?",
                             device.name(), to, std::generic_category().message(error))};
  };
  const ChosenPort& own = device.chosen();
  const auto port = static_cast<std::uint8_t>(own.port.number);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = port;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  TUTTI_RETURN_IF_ERROR(
      modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = std::min(device.port().active_mtu, static_cast<ibv_mtu>(ends.peer.mtu));
  attributes.dest_qp_num = ends.peer_number;
  attributes.rq_psn = ends.peer_psn;
  attributes.min_rnr_timer = kRefusalTimer;
  attributes.ah_attr.port_num = port;
  attributes.ah_attr.dlid = ends.peer.lid;
  attributes.ah_attr.sl = own.service_level;
  // InfiniBand needs an address only beyond its own subnet, whose prefix is the GID's first half.
  const Gid& gid = ends.peer.gid;
  const bool same_subnet = std::equal(gid.begin(), gid.begin() + 8, own.gid.gid.begin());
  if (own.port.layer == kRoce || !same_subnet) {
    attributes.ah_attr.is_global = 1;
    std::memcpy(attributes.ah_attr.grh.dgid.raw, gid.data(), gid.size());
    attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(own.gid.index);
    attributes.ah_attr.grh.hop_limit = kHops;
    attributes.ah_attr.grh.traffic_class = own.traffic_class;
  }
  TUTTI_RETURN_IF_ERROR(modify(attributes, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                               IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = kTimeout;
  attributes.retry_cnt = kRetries;
  attributes.rnr_retry = kRefusals;
  attributes.sq_psn = ends.own_psn;
  return modify(attributes, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

}  // namespace tutti::verbs
