// File: topology/probe/sources/sysfs.h: the notations of sysfs and procfs, as values. Pure
// functions: what can't be understood is "not known", never a guess.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/graph/graph.h"

namespace tutti::topology {

/// A whole number, decimal or with 0x; none if there is anything else in the text.
std::optional<std::int64_t> parse_integer(std::string_view text);

/// "0000:07:00.0": a PCI address in lower case with a domain of at least four digits; "" if the
/// text is none. Takes NVML's eight-digit domains and upper case.
std::string parse_bus(std::string_view text);

/// The PCI addresses on a real path, outermost first:
/// "/sys/devices/pci0000:16/0000:16:00.0/0000:17:00.0/net/eth0" has two.
std::vector<std::string> buses_on(std::string_view path);

/// "16.0 GT/s PCIe" is 16. 0 for "Unknown", "Unknown speed", "" and what is no PCI Express speed.
double parse_link_speed(std::string_view text);
/// Lanes; 0 for none, for 255 (no answer) and for what is not a width.
int parse_link_width(std::string_view text);

/// "0-3,8" is 0 1 2 3 8. Stops at what is malformed; at most 64 Ki entries.
std::vector<int> parse_cpu_list(std::string_view text);

/// Megabits a second of InfiniBand's "400 Gb/sec (4X NDR)"; 0 if unknown.
int parse_infiniband_rate(std::string_view text);

/// The value of `key` in lines like "key value", "key: value" or "key\t: value"; "" if absent.
std::string line_value(std::string_view text, std::string_view key);

/// What PCI configuration space says. Without privileges the kernel shows its first 64 bytes only,
/// and then nothing of this is known.
struct ConfigSpace {
  enum class Port { kUnknown, kEndpoint, kRoot, kUpstream, kDownstream, kOther };
  Port port = Port::kUnknown;
  PcieRate current, maximum;  // Rates of the link at this port.
  std::optional<bool> acs;    // Whether access control redirects peer traffic; none: can't be seen.
};
ConfigSpace parse_config_space(std::string_view bytes);

}  // namespace tutti::topology
