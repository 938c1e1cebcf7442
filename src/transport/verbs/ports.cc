#include "transport/verbs/ports.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "base/folder.h"

namespace tutti::verbs {
namespace {

namespace fs = std::filesystem;

constexpr int kMostPorts = 16, kMostGids = 256;
constexpr std::size_t kMostDevices = 256;
constexpr int kActive = 4;  // From "4: ACTIVE".

/// The first line; empty if there is none.
std::string read_line(const fs::path& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

/// The number that a text begins with; 0 without one.
int leading_number(std::string_view text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// Empty where there is no such folder.
std::vector<std::string> names_in(const fs::path& folder) {
  auto read = tutti::names_in(folder.string());
  auto names = read ? *std::move(read) : std::vector<std::string>();
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return std::tuple(a.size(), a) < std::tuple(b.size(), b);  // mlx5_2 before mlx5_10.
  });
  names.resize(std::min(names.size(), kMostDevices));
  return names;
}

/// By device, the file by which it is opened.
std::map<std::string, fs::path> device_files(const std::string& root) {
  std::map<std::string, fs::path> files;
  const fs::path verbs = root + "/sys/class/infiniband_verbs";
  for (const std::string& name : names_in(verbs)) {
    const std::string device = read_line(verbs / name / "ibdev");
    if (!device.empty()) files[device] = root + "/dev/infiniband/" + name;
  }
  return files;
}

/// "0000:0000:0000:0000:0000:ffff:0a63:0001". Empty: none, or all zero: the place is free.
std::optional<Gid> parse_gid(const std::string& text) {
  Gid gid{};
  if (inet_pton(AF_INET6, text.c_str(), gid.data()) != 1) return std::nullopt;
  // A prefix alone is an entry of an interface that has gone.
  const bool empty = std::all_of(gid.begin() + 8, gid.end(), [](auto byte) { return byte == 0; });
  if (empty) return std::nullopt;
  return gid;
}

bool is_ipv4(const Gid& gid) {
  constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(kMapped.begin(), kMapped.end(), gid.begin());
}

bool is_link_local(const Gid& gid) {
  if (is_ipv4(gid)) return gid[12] == 169 && gid[13] == 254;
  return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

Port read_port(const fs::path& folder, const std::string& device, int number) {
  Port port;
  port.device = device;
  port.number = number;
  port.layer = read_line(folder / "link_layer") == "InfiniBand" ? kInfiniBand : kRoce;
  port.active = leading_number(read_line(folder / "state")) == kActive;
  port.speed_mbps = leading_number(read_line(folder / "rate")) * 1000;  // "100 Gb/sec (4X EDR)".
  for (int index = 0; index < kMostGids; ++index) {
    const std::string name = std::to_string(index);
    const std::string text = read_line(folder / "gids" / name);
    if (text.empty()) break;
    const auto gid = parse_gid(text);
    if (!gid) continue;
    port.gids.push_back({.index = index,
                         .gid = *gid,
                         .version_2 = read_line(folder / "gid_attrs/types" / name) == "RoCE v2",
                         .interface = read_line(folder / "gid_attrs/ndevs" / name)});
  }
  return port;
}

/// By which a port is used: the best one; null if it has none.
const GidEntry* best_gid(const Port& port) {
  if (port.layer == kInfiniBand) return port.gids.empty() ? nullptr : &port.gids.front();
  const auto order = [](const GidEntry& entry) {
    return std::tuple(!entry.version_2, is_link_local(entry.gid), !is_ipv4(entry.gid), entry.index);
  };
  const auto best = std::ranges::min_element(
      port.gids, [&](const GidEntry& a, const GidEntry& b) { return order(a) < order(b); });
  return best == port.gids.end() || !best->version_2 ? nullptr : &*best;
}

/// By which a port is used, where a user names the index of RoCE's; null if it has none there.
const GidEntry* gid_at(const Port& port, int index) {
  if (index < 0 || port.layer == kInfiniBand) return best_gid(port);
  const auto found = std::ranges::find_if(
      port.gids, [&](const GidEntry& entry) { return entry.index == index && entry.version_2; });
  return found == port.gids.end() ? nullptr : &*found;
}

/// What is said of a port that has no GID of RoCE v2 at an index.
std::string no_gid_at(const Port& port, int index) {
  std::string there;
  for (const GidEntry& entry : port.gids) {
    there += fmt::format("{}{} ({}, {})", there.empty() ? "" : ", ", entry.index,
                         ip_text(entry.gid), entry.version_2 ? "RoCE v2" : "RoCE v1");
  }
  return fmt::format(
      "verbs: TUTTI_RDMA_GID_INDEX={}: {} has no GID of RoCE v2 at that index; it has {}; name "
      "another index, or leave ports out by TUTTI_RDMA_DEVICES",
      index, name_of(port), there);
}

/// Why a port can't be used, or empty.
std::string refuse(const Port& port) {
  if (!port.active) return "not active";
  if (!port.allowed) return "no permission for its file in /dev/infiniband";
  if (best_gid(port) == nullptr)
    return port.layer == kRoce ? "no GID of RoCE v2: its interface has no address" : "no GID";
  return "";
}

struct Rule {
  std::vector<std::string> wanted, excluded;
};

Rule parse_rule(std::string_view text) {
  Rule rule;
  bool exclude = false;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view word = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (word.starts_with('^')) {
      exclude = true;
      word.remove_prefix(1);
    }
    if (!word.empty()) (exclude ? rule.excluded : rule.wanted).emplace_back(word);
  }
  return rule;
}

/// "mlx5_0", "mlx5_*", either with ":2" for one port.
bool fits(std::string_view word, const Port& port) {
  if (const auto colon = word.find(':'); colon != std::string_view::npos) {
    if (word.substr(colon + 1) != std::to_string(port.number)) return false;
    word = word.substr(0, colon);
  }
  if (!word.ends_with('*')) return word == port.device;
  word.remove_suffix(1);
  return port.device.starts_with(word);
}

/// Where in a list a port is named; the list's size: nowhere.
std::size_t find(const std::vector<std::string>& words, const Port& port) {
  return static_cast<std::size_t>(
      std::ranges::find_if(words, [&](const std::string& word) { return fits(word, port); }) -
      words.begin());
}

/// Ports that may be used, best first.
struct Candidates {
  std::vector<const Port*> good;
  std::size_t alike = 0;  // How many at the front are as good as the first one.
  std::string refused;    // Which others there are, and why not.
  std::string wrong;      // What is wrong with a setting for one of `good`; empty: nothing.
};

Candidates find_candidates(std::span<const Port> ports, const PortPreference& preference) {
  const Rule rule = parse_rule(preference.rule);
  const std::uint32_t common = preference.layers & usable_layers(ports);
  const LinkLayer layer = (common & kInfiniBand) != 0 ? kInfiniBand : kRoce;
  Candidates found;
  for (const Port& port : ports) {
    std::string reason = refuse(port);
    if (reason.empty() && (common & port.layer & layer) == 0)
      reason = "other ranks have none of its kind";
    if (reason.empty() && find(rule.excluded, port) < rule.excluded.size())
      reason = "excluded by TUTTI_RDMA_DEVICES";
    if (reason.empty() && !rule.wanted.empty() && find(rule.wanted, port) == rule.wanted.size())
      reason = "not in TUTTI_RDMA_DEVICES";
    if (reason.empty()) {
      found.good.push_back(&port);
    } else {
      found.refused +=
          fmt::format("{}{} ({})", found.refused.empty() ? "" : ", ", name_of(port), reason);
    }
  }
  for (const Port* port : found.good) {
    if (gid_at(*port, preference.gid_index) != nullptr) continue;
    found.wrong = no_gid_at(*port, preference.gid_index);
    return found;
  }
  const auto grade = [&](const Port* port) {
    return std::tuple(is_link_local(gid_at(*port, preference.gid_index)->gid), -port->speed_mbps);
  };
  const auto order = [&](const Port* port) {
    return std::tuple(find(rule.wanted, *port), grade(port));
  };
  std::stable_sort(found.good.begin(), found.good.end(),
                   [&](const Port* a, const Port* b) { return order(a) < order(b); });
  if (found.good.empty()) return found;
  const auto best = grade(found.good.front());
  const auto others = std::stable_partition(found.good.begin(), found.good.end(),
                                            [&](const Port* port) { return grade(port) == best; });
  found.alike = static_cast<std::size_t>(others - found.good.begin());
  return found;
}

/// The ports that are alike, as one rank takes them.
class Order {
 public:
  Order(std::span<const Port> ports, const Candidates& found, const PortPreference& preference)
      : found_(found),
        paths_(preference.paths),
        named_(named_apart(preference.rule)),
        me_(static_cast<std::size_t>(preference.turn)),
        sharers_(static_cast<std::size_t>(std::max(preference.sharers, 1))) {
    for (const Port* port : found.good)
      index_.push_back(static_cast<std::size_t>(port - ports.data()));
  }

  /// Places in found.good, nearest first; equally near ones from the rank's own on.
  std::vector<std::size_t> all() const {
    const std::size_t own = first(), alike = found_.alike;
    std::vector<std::size_t> order(alike);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::tuple(distance(me_, a), (a + alike - own) % alike) <
             std::tuple(distance(me_, b), (b + alike - own) % alike);
    });
    return order;
  }

  std::string words(std::size_t place) const {
    return me_ < paths_.size() ? paths_[me_][index_[place]].words : "";
  }

 private:
  /// Whether a user named the ports by different words, so in an order.
  bool named_apart(std::string_view text) const {
    const Rule rule = parse_rule(text);
    return std::any_of(found_.good.begin(), found_.good.begin() + static_cast<long>(found_.alike),
                       [&](const Port* port) {
                         return find(rule.wanted, *port) != find(rule.wanted, *found_.good[0]);
                       });
  }

  int distance(std::size_t rank, std::size_t place) const {
    return !named_ && rank < paths_.size() ? paths_[rank][index_[place]].distance : 0;
  }

  std::vector<std::size_t> nearest(std::size_t rank) const {
    std::vector<std::size_t> places;
    for (std::size_t place = 0; place < found_.alike; ++place) {
      const int least = places.empty() ? 0 : distance(rank, places[0]);
      const int own = distance(rank, place);
      if (!places.empty() && own > least) continue;
      if (!places.empty() && own < least) places.clear();
      places.push_back(place);
    }
    return places;
  }

  /// This rank's own: the ranks with the same nearest ports take them in turn.
  std::size_t first() const {
    const std::vector<std::size_t> mine = nearest(me_);
    std::size_t turn = 0, sharers = 1;
    for (std::size_t rank = 0; rank < sharers_; ++rank) {
      if (rank == me_ || nearest(rank) != mine) continue;
      ++sharers;
      if (rank < me_) ++turn;
    }
    return mine[(mine.size() > sharers ? turn * mine.size() / sharers : turn) % mine.size()];
  }

  const Candidates& found_;
  std::span<const std::vector<NicPath>> paths_;  // By rank.
  bool named_;                                   // So they don't count.
  std::size_t me_, sharers_;
  std::vector<std::size_t> index_;  // By candidate, its place among all ports.
};

std::optional<std::vector<Port>>& ports_used() {
  static std::optional<std::vector<Port>> ports;
  return ports;
}

}  // namespace

void use_ports(std::vector<Port> ports) { ports_used() = std::move(ports); }

std::string name_of(const Port& port) { return fmt::format("{}:{}", port.device, port.number); }

std::string ip_text(const Gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool ipv4 = is_ipv4(gid);
  inet_ntop(ipv4 ? AF_INET : AF_INET6, gid.data() + (ipv4 ? 12 : 0), text.data(), text.size());
  return text.data();
}

std::vector<Port> probe_ports(const std::string& root) {
  if (root.empty() && ports_used()) return *ports_used();
  const fs::path devices = root + "/sys/class/infiniband";
  std::vector<Port> ports;
  const auto names = names_in(devices);
  if (names.empty()) return ports;
  const auto files = device_files(root);
  for (const std::string& device : names) {
    const auto file = files.find(device);
    const bool allowed = file != files.end() && ::access(file->second.c_str(), R_OK | W_OK) == 0;
    for (int number = 1; number <= kMostPorts; ++number) {
      const fs::path folder = devices / device / "ports" / std::to_string(number);
      std::error_code ignored;
      if (!fs::exists(folder, ignored)) break;
      ports.push_back(read_port(folder, device, number));
      ports.back().allowed = allowed;
    }
  }
  return ports;
}

std::optional<GidEntry> gid_again(const ChosenPort& chosen, const std::string& root) {
  const std::string name = name_of(chosen.port);
  Port port;
  if (root.empty() && ports_used()) {
    const auto& all = *ports_used();
    const auto is_it = [&](const Port& one) { return name_of(one) == name; };
    const auto found = std::ranges::find_if(all, is_it);
    if (found != all.end()) port = *found;
  } else {
    port = read_port(fs::path(root + "/sys/class/infiniband") / chosen.port.device / "ports" /
                         std::to_string(chosen.port.number),
                     chosen.port.device, chosen.port.number);
  }
  if (port.layer != chosen.port.layer || !refuse(port).empty()) return std::nullopt;
  const auto is_same = [&](const GidEntry& one) {
    return one.gid == chosen.gid.gid && one.version_2 == chosen.gid.version_2;
  };
  const auto same = std::ranges::find_if(port.gids, is_same);
  if (same != port.gids.end()) return *same;
  const GidEntry* const other = gid_at(port, chosen.gid_index);
  return other != nullptr ? std::optional(*other) : std::nullopt;
}

std::uint32_t usable_layers(std::span<const Port> ports) {
  std::uint32_t layers = 0;
  for (const Port& port : ports) {
    if (refuse(port).empty()) layers |= port.layer;
  }
  return layers;
}

Result<ChosenPorts> choose_ports(std::span<const Port> ports, const PortPreference& preference) {
  const Candidates found = find_candidates(ports, preference);
  if (found.good.empty()) {
    const std::string there = found.refused.empty() ? "none at all" : found.refused;
    return Error{preference.rule.empty() ? Code::kUnsupported : Code::kInvalidArgument,
                 fmt::format("verbs: no port of an RDMA device can be used; there is {}; "
                             "TUTTI_TRANSPORT=tcp does without",
                             there)};
  }
  if (!found.wrong.empty()) return Error{Code::kInvalidArgument, found.wrong};
  const Order order(ports, found, preference);
  std::vector<std::size_t> places = order.all();
  std::erase_if(places, [&](std::size_t place) {
    const auto& only = preference.only;
    return !only.empty() &&
           std::find(only.begin(), only.end(), name_of(*found.good[place])) == only.end();
  });
  if (places.empty())
    return Error{Code::kUnsupported, "verbs: none of the ports near the device can be used"};
  constexpr std::size_t kLeastRails = 2;
  const auto sharers = static_cast<std::size_t>(std::max(preference.sharers, 1));
  const std::size_t alike = places.size(), share = (alike + sharers - 1) / sharers;
  const std::size_t own = places[0];
  places.resize(std::min({std::max(share, kLeastRails), alike, preference.most}));
  std::sort(places.begin(), places.end());
  ChosenPorts chosen;
  for (const std::size_t place : places) {
    const Port& port = *found.good[place];
    if (place == own) chosen.first = chosen.rails.size();
    const GidEntry& gid = *gid_at(port, preference.gid_index);
    chosen.rails.push_back({port, gid, order.words(place), preference.gid_index});
    chosen.why += fmt::format("{}{} ({}, {:g} Gbit/s), GID {}: {}", chosen.why.empty() ? "" : ", ",
                              name_of(port), port.layer == kInfiniBand ? "InfiniBand" : "RoCE v2",
                              port.speed_mbps / 1000.0, gid.index, ip_text(gid.gid));
  }
  if (alike > places.size()) chosen.why += fmt::format(", in turn of {} alike", alike);
  if (const std::string near = order.words(own); !near.empty())
    chosen.why += fmt::format(", first {}: {}", name_of(*found.good[own]), near);
  if (!preference.rule.empty())
    chosen.why += fmt::format(", by TUTTI_RDMA_DEVICES={}", preference.rule);
  if (preference.gid_index >= 0 && chosen.rails[0].port.layer == kRoce)
    chosen.why += fmt::format(", by TUTTI_RDMA_GID_INDEX={}", preference.gid_index);
  if (!found.refused.empty()) chosen.why += "; not " + found.refused;
  return chosen;
}

}  // namespace tutti::verbs
