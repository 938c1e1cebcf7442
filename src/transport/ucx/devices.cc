#include "transport/ucx/devices.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "base/folder.h"
#include "base/net/interfaces.h"

namespace tutti::ucx {
namespace {

namespace fs = std::filesystem;

/// Empty where there is no such directory.
std::vector<std::string> names_in(const fs::path& directory) {
  auto names = tutti::names_in(directory.string());
  return names ? *std::move(names) : std::vector<std::string>();
}

/// "mlx5_0:1": the ports that are up.
std::vector<std::string> ports_of(const fs::path& device) {
  std::vector<std::string> ports;
  for (const auto& port : names_in(device / "ports")) {
    std::string state;
    std::getline(std::ifstream(device / "ports" / port / "state"), state);
    if (state.ends_with("ACTIVE")) ports.push_back(device.filename().string() + ":" + port);
  }
  return ports;
}

}  // namespace

Result<std::string> choose_devices(std::string_view rule, bool one_host, const std::string& root) {
  TUTTI_TRY(const auto facts, tcp::probe_interfaces(root));
  TUTTI_TRY(const auto chosen, tcp::choose_addresses(facts, {.rule = rule, .one_host = one_host}));
  std::vector<std::string> devices;
  const auto has = [&](const std::string& name) {
    return std::find(devices.begin(), devices.end(), name) != devices.end();
  };
  for (const auto& one : chosen.addresses) {
    if (!has(one.interface)) devices.push_back(one.interface);
  }
  const fs::path rdma = root + "/sys/class/infiniband";
  for (const auto& device : names_in(rdma)) {
    const auto interfaces = names_in(rdma / device / "device" / "net");
    if (!rule.empty() && std::none_of(interfaces.begin(), interfaces.end(), has)) continue;
    for (auto& port : ports_of(rdma / device)) devices.push_back(std::move(port));
  }
  std::string list;
  for (const auto& device : devices) list += (list.empty() ? "" : ",") + device;
  return list;
}

}  // namespace tutti::ucx
