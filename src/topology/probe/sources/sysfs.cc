#include "topology/probe/sources/sysfs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "topology/graph/words.h"

namespace tutti::topology {
namespace {

constexpr int kMostCpus = 65536;

std::uint32_t little_endian(std::string_view bytes, std::size_t at, std::size_t size) {
  std::uint32_t value = 0;
  for (std::size_t i = size; i-- > 0;) {
    value = value << 8 | static_cast<std::uint8_t>(bytes[at + i]);
  }
  return value;
}

// Link capabilities and link status both have the speed in bits 3 to 0, the width in 9 to 4.
PcieRate rate_of(std::uint32_t bits) {
  constexpr std::array kSpeeds{0.0, 2.5, 5.0, 8.0, 16.0, 32.0, 64.0};
  const std::size_t speed = bits & 0xf;
  if (speed >= kSpeeds.size()) return {};
  return {kSpeeds[speed], parse_link_width(std::to_string(bits >> 4 & 0x3f))};
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) {
  text = trim(text);
  const bool hex = text.starts_with("0x");
  return parse_number<std::int64_t>(hex ? text.substr(2) : text, hex ? 16 : 10);
}

std::string parse_bus(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon < 4 || colon > 8) return {};
  const std::string_view rest = text.substr(colon + 1);
  if (rest.size() != 7 || rest[2] != ':' || rest[5] != '.') return {};
  const auto hex = [](std::string_view digits) { return parse_number<std::uint32_t>(digits, 16); };
  const auto domain = hex(text.substr(0, colon)), bus = hex(rest.substr(0, 2)),
             device = hex(rest.substr(3, 2)), function = hex(rest.substr(6));
  if (!domain || !bus || !device || !function || *device > 31 || *function > 7) return {};
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", *domain, *bus, *device, *function);
}

std::vector<std::string> buses_on(std::string_view path) {
  std::vector<std::string> found;
  for (const std::string_view part : split(path, '/')) {
    std::string bus = parse_bus(part);
    if (!bus.empty()) found.push_back(std::move(bus));
  }
  return found;
}

double parse_link_speed(std::string_view text) {
  text = trim(text);
  double speed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), speed);
  if (error != std::errc{} || std::string_view(end).find("GT/s") == std::string_view::npos) {
    return 0;
  }
  constexpr std::array kSpeeds{2.5, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0};
  return std::find(kSpeeds.begin(), kSpeeds.end(), speed) == kSpeeds.end() ? 0 : speed;
}

int parse_link_width(std::string_view text) {
  const auto width = parse_integer(text);
  constexpr std::array kWidths{1, 2, 4, 8, 12, 16, 32};
  if (!width || std::find(kWidths.begin(), kWidths.end(), *width) == kWidths.end()) return 0;
  return static_cast<int>(*width);
}

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  for (const std::string_view part : split(trim(text), ',')) {
    const std::size_t dash = part.find('-');
    const auto first = parse_number<int>(part.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : parse_number<int>(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMostCpus) break;
    for (int cpu = *first; cpu <= *last && cpus.size() < kMostCpus; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

int parse_infiniband_rate(std::string_view text) {
  text = trim(text);
  double rate = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rate);
  if (error != std::errc{} || rate <= 0 || rate > 1e5) return 0;
  const std::string_view unit = trim(text.substr(static_cast<std::size_t>(end - text.data())));
  return unit.substr(0, 6) == "Gb/sec" ? static_cast<int>(std::lround(rate * 1000)) : 0;
}

std::string line_value(std::string_view text, std::string_view key) {
  for (std::string_view line : split(text, '\n')) {
    if (line.substr(0, key.size()) != key) continue;
    line.remove_prefix(key.size());
    // "model name : x" is no line of the key "model": where there are colons, one has to follow.
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == 0 && line[0] != ':') continue;
    if (begin == std::string_view::npos) return {};
    if (line[begin] == ':') return std::string(trim(line.substr(begin + 1)));
    if (line.find(':') == std::string_view::npos) return std::string(trim(line.substr(begin)));
  }
  return {};
}

ConfigSpace parse_config_space(std::string_view bytes) {
  // PCI Express Base Specification: capability 0x10 in the list from byte 0x34, whose flags have
  // the port's kind in bits 7 to 4; extended capability 0x000d from byte 0x100 is ACS, whose
  // control register stands at 6. P2P request redirect is bit 2, completion redirect bit 3,
  // upstream forwarding bit 4.
  ConfigSpace found;
  if (bytes.size() < 256) return found;
  std::size_t at = static_cast<std::uint8_t>(bytes[0x34]) & 0xfcU;
  for (int i = 0; i < 48 && at >= 0x40 && at + 4 <= 256; ++i) {
    if (static_cast<std::uint8_t>(bytes[at]) == 0x10) {
      using Port = ConfigSpace::Port;
      const std::uint32_t kind = little_endian(bytes, at + 2, 2) >> 4 & 0xf;
      found.port = kind < 2    ? Port::kEndpoint
                   : kind == 4 ? Port::kRoot
                   : kind == 5 ? Port::kUpstream
                   : kind == 6 ? Port::kDownstream
                               : Port::kOther;
      if (at + 0x14 <= 256) {
        found.maximum = rate_of(little_endian(bytes, at + 0x0c, 4));
        found.current = rate_of(little_endian(bytes, at + 0x12, 2));
      }
    }
    at = static_cast<std::uint8_t>(bytes[at + 1]) & 0xfcU;
  }
  if (bytes.size() < 4096) return found;
  found.acs = false;
  at = 0x100;
  for (int i = 0; i < 960 && at >= 0x100 && at + 8 <= bytes.size(); ++i) {
    const std::uint32_t header = little_endian(bytes, at, 4);
    if (header == 0 || header == 0xffffffff) break;
    if ((header & 0xffff) == 0x000d) found.acs = (little_endian(bytes, at + 6, 2) & 0x1c) != 0;
    at = header >> 20;
  }
  return found;
}

}  // namespace tutti::topology
