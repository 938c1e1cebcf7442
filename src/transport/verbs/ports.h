// File: transport/verbs/ports.h: which ports of which RDMA devices a rank uses.
//
// Two halves: `probe_ports` reads facts from sysfs, `choose_ports` is a pure function from facts to
// ports, the addresses (GIDs) that they are used by, and a sentence that says why. No device is
// opened.
//
// A choice is an active port of a device that this process may open. RoCE needs a GID of version 2,
// which routers and ordinary Ethernet switches carry; IPv4 before IPv6, link-local last, unless a
// user names its index. Ports that are as fast as the best one are rails. A rank takes the nearest
// first; ranks that have the same nearest ones share them out. Each gets a second one, if there is
// one, to go on by.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/nic_path.h"
#include "tutti/result.h"

namespace tutti::verbs {

/// The layer below, as bits: ports of different layers can't be joined.
enum LinkLayer : std::uint32_t { kInfiniBand = 1, kRoce = 2 };

using Gid = std::array<std::uint8_t, 16>;

struct GidEntry {
  int index = 0;  // In the port's table.
  Gid gid{};
  bool version_2 = false;  // RoCE version 2.
  std::string interface;   // The Ethernet interface; empty for InfiniBand.
};

struct Port {
  std::string device;  // "mlx5_0".
  int number = 1;
  LinkLayer layer = kRoce;
  bool active = false;
  bool allowed = true;  // This process may open the device.
  int speed_mbps = 0;   // 0: not known.
  std::vector<GidEntry> gids;
};

/// All ports of this machine's devices, by name. `root` stands before /sys and /dev, for tests.
std::vector<Port> probe_ports(const std::string& root = "");
/// For tests: what is found without a root from now on. Before the first look of a process.
void use_ports(std::vector<Port> ports);

/// The layers of usable ports: LinkLayer bits.
std::uint32_t usable_layers(std::span<const Port> ports);

inline constexpr std::size_t kMostRails = 8;  // For one rank.

struct PortPreference {
  std::uint32_t layers = kInfiniBand | kRoce;  // That all ranks have; InfiniBand is taken first.
  /// Which devices to take, best first, by commas: names, prefixes with a star, ports
  /// ("mlx5_0,mlx5_1:2,rxe*,bnxt*:1"). From a ^ on they are excluded ("^mlx5_3"). Empty: any.
  std::string_view rule{};
  int gid_index = -1;  // The index of the only GID of a RoCE port to use; -1: the best one.
  int turn = 0;        // This rank's turn among those of its host,
  int sharers = 1;     // which are so many.
  std::size_t most = kMostRails;
  /// By rank of this host, in turn, and by port: how near it is. Empty: not known. Does not count
  /// where a rule names several: then their order does.
  std::vector<std::vector<NicPath>> paths = {};
  /// The only ones that this rank may use ("mlx5_0:1"); empty: any. All of them count for turns.
  std::span<const std::string> only = {};
};

struct ChosenPort {
  Port port;
  GidEntry gid;
  std::string near;    // How near it is, in words; empty: not known.
  int gid_index = -1;  // PortPreference::gid_index.
  /// How switches treat its packets. Only packets with a global header carry a traffic class.
  std::uint8_t traffic_class = 0, service_level = 0;
};
struct ChosenPorts {
  std::vector<ChosenPort> rails;  // In an order that is the same for all ranks of a host.
  std::size_t first = 0;          // The index of this rank's own port.
  std::string why;                // One line, for people.
};
/// kUnsupported: there is nothing to choose; kInvalidArgument: nothing fits the rule, or a port
/// that does has no GID of RoCE v2 at `gid_index`. Each says what there is. Pure.
Result<ChosenPorts> choose_ports(std::span<const Port> ports, const PortPreference& preference);

/// The address by which a port that was chosen can be used now: the same one if it still has it,
/// which may be at another index; else the one at the index that was asked for, or the best one.
/// Empty: the port can't be used.
std::optional<GidEntry> gid_again(const ChosenPort& chosen, const std::string& root = "");

/// "mlx5_0:1".
std::string name_of(const Port& port);
/// "10.0.0.1" or "fe80::1".
std::string ip_text(const Gid& gid);

}  // namespace tutti::verbs
