// File: topology/graph/nccl_figures.cc: the tables, and the texts that stand for their keys.
#include "topology/graph/nccl_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace tutti::topology {

Quantity nvlink_bandwidth(int sm) {
  if (sm >= 100 && sm < 120) return {40.1, Origin::kTable};
  if (sm >= 90 && sm < 100) return {20.6, Origin::kTable};
  switch (sm) {
    case 60: return {18, Origin::kTable};
    case 70:
    case 72:
    case 80: return {20, Origin::kTable};
    case 86: return {12, Origin::kTable};
    default: return {20, Origin::kAssumed};
  }
}

int most_nvlinks(int sm) {
  if (sm >= 60 && sm < 70) return 4;
  if (sm >= 70 && sm < 80) return 6;
  if (sm >= 80 && sm < 90) return 12;
  return 18;
}

// A link is 16 lanes; what AMD publishes is what is signalled, of which RCCL counts on three
// quarters, and on half with the oldest:
//   MI50, MI100 (gfx906, 908): 23 GT/s, 46 GB/s; rocm.docs.amd.com, reference/gpu-arch/mi100.
//   MI200 (gfx90a): 25 GT/s, 50 GB/s; the same, mi250. Programs were seen to get up to 81% of an
//     Infinity Fabric link (Schieffer et al. 2024, "Understanding Data Movement in AMD Multi-GPU
//     Systems with Infinity Fabric").
//   MI300 (gfx94x): 32 GT/s, 64 GB/s; AMD's CDNA 3 white paper.
// MI350's (gfx95x) signal faster than MI300's, whose figure stands in for them as a guess.
Quantity xgmi_bandwidth(std::string_view gcn) {
  if (gcn.starts_with("gfx")) gcn.remove_prefix(3);
  if (gcn == "900" || gcn == "906" || gcn == "908") return {24, Origin::kTable};
  if (gcn == "910" || gcn == "90a") return {36, Origin::kTable};
  if (gcn.starts_with("94")) return {48, Origin::kTable};
  if (gcn.starts_with("95")) return {48, Origin::kAssumed};
  return {24, Origin::kAssumed};
}

Quantity socket_bandwidth(std::string_view arch, std::string_view vendor, int model) {
  if (arch == "ppc64" || arch == "ppc64le" || vendor == "IBM") return {32, Origin::kTable};
  if (arch == "arm64" || arch == "aarch64") return {6, Origin::kTable};
  if (vendor == "AuthenticAMD" || vendor == "HygonGenuine") return {16, Origin::kTable};
  if (vendor == "GenuineIntel") {
    const double value = model >= 0xcf ? 40 : model >= 0x8f ? 22 : model >= 0x55 ? 10 : 6;
    return {value, Origin::kTable};
  }
  if (vendor == "CentaurHauls" || vendor == "  Shanghai  ") return {6, Origin::kTable};
  return {};
}

std::optional<double> link_speed(std::string_view text) {
  double value = 0;
  const char* last = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), last, value);
  if (code != std::errc() || !(value > 0 && value <= 1024)) return std::nullopt;
  std::string_view unit(stop, static_cast<std::size_t>(last - stop));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  if (!unit.starts_with("GT/s")) return std::nullopt;
  return value;
}

bool nccl_knows_speed(std::string_view text) {
  constexpr std::array<std::string_view, 12> kKnown{
      "2.5 GT/s",      "5 GT/s",         "8 GT/s",         "16 GT/s",
      "32 GT/s",       "64 GT/s",        "2.5 GT/s PCIe",  "5.0 GT/s PCIe",
      "8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe", "64.0 GT/s PCIe"};
  return std::find(kKnown.begin(), kKnown.end(), text) != kKnown.end();
}

bool nccl_knows_attribute(std::string_view element, std::string_view name) {
  struct Element {
    std::string_view name, attributes;  // Attributes with a blank before and after each.
  };
  constexpr std::array<Element, 5> kElements{{
      {"system", " version name "},
      {"cpu", " numaid affinity arch vendor familyid modelid host_hash "},
      {"pci",
       " busid class vendor device subsystem_vendor subsystem_device link_speed link_width "},
      {"gpu", " dev sm rank gdr gcn arch mlopart keep "},
      {"net", " name dev speed port guid latency maxconn gdr coll net gin rma rail plane keep "},
  }};
  for (const Element& known : kElements) {
    if (known.name == element && name.find(' ') == std::string_view::npos) {
      return known.attributes.find(fmt::format(" {} ", name)) != std::string_view::npos;
    }
  }
  return false;
}

std::string pci_address(std::string_view text) {
  std::array<unsigned, 4> part{};
  const std::string_view separators = "::. ";
  const char* at = text.data();
  const char* last = at + text.size();
  for (std::size_t i = 0; i < part.size(); ++i) {
    const auto [stop, code] = std::from_chars(at, last, part[i], 16);
    if (code != std::errc() || stop == at) return {};
    at = stop;
    if (i + 1 == part.size()) break;
    if (at == last || *at != separators[i]) return {};
    ++at;
  }
  if (at != last || part[1] > 0xff || part[2] > 0xff || part[3] > 0xf) return {};
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", part[0], part[1], part[2], part[3]);
}

}  // namespace tutti::topology
