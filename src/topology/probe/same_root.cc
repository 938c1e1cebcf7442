#include "topology/probe/same_root.h"

#include <fmt/format.h>

#include "topology/probe/sources/sysfs.h"

namespace tutti::topology {
namespace {

/// "pci0000:16" of "/sys/devices/pci0000:16/0000:16:00.0/...": the root complex. Empty: nothing of
/// the kind is there.
std::string root_of(const FileTree& files, const std::string& path) {
  constexpr std::string_view kDevices = "/sys/devices/";
  const auto real = files.real_path(path);
  if (!real || !real->starts_with(kDevices)) return "";
  const std::string rest = real->substr(kDevices.size());
  return rest.starts_with("pci") ? rest.substr(0, rest.find('/')) : "";
}

}  // namespace

Result<std::vector<std::string>> cards_below_root_of(const FileTree& files, std::string_view gpu,
                                                     std::span<const std::string> cards) {
  const std::string bus = parse_bus(gpu);
  const std::string root = bus.empty() ? "" : root_of(files, "/sys/bus/pci/devices/" + bus);
  if (root.empty()) {
    return Error{Code::kUnsupported,
                 fmt::format("sysfs does not say where GPU {} is connected", gpu)};
  }
  std::vector<std::string> near;
  std::string others;
  for (const std::string& card : cards) {
    const std::string own =
        root_of(files, "/sys/class/infiniband/" + card.substr(0, card.find(':')) + "/device");
    if (own == root) near.push_back(card);
    others += own.empty() ? fmt::format(", {} is no PCI device", card)
                          : fmt::format(", {} below {}", card, own);
  }
  if (!near.empty()) return near;
  return Error{Code::kUnsupported, fmt::format("GPU {} is below {}{}", bus, root, others)};
}

}  // namespace tutti::topology
