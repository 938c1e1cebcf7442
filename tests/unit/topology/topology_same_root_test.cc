// Which cards are below a GPU's root complex, of made-up machines.
#include "support/catch.h"
#include "support/topology/topology_tree.h"
#include "topology/probe/same_root.h"

using namespace tutti;
using namespace tutti::topology;

TEST_CASE("cards below a GPU's root complex are found, or the answer says where they are") {
  MemoryTree files;
  const auto add = [&](const std::string& link, const std::string& place) {
    files.add_directory(place);
    files.add_link(link, place);
  };
  const std::string root = "/sys/devices/pci0000:16/";
  // Below one switch, right below the root, and below a bridge that makes a domain of its own.
  add("/sys/bus/pci/devices/0000:19:00.0", root + "0000:16:00.0/0000:17:00.0/0000:19:00.0");
  add("/sys/class/infiniband/mlx5_0/device", root + "0000:16:00.0/0000:17:01.0/0000:1a:00.0");
  add("/sys/class/infiniband/mlx5_1/device", root + "0000:16:04.0/0000:1c:00.0");
  add("/sys/class/infiniband/mlx5_2/device", root + "0000:16:05.5/pci10000:e0/10000:e1:00.0");
  add("/sys/class/infiniband/mlx5_3/device", "/sys/devices/pci0000:97/0000:97:00.0/0000:98:00.0");
  add("/sys/class/infiniband/efa_0/device", "/sys/devices/platform/efa");
  files.add_directory("/sys/class/infiniband/rxe0");
  using Cards = std::vector<std::string>;
  const auto near = [&](std::string_view gpu, const Cards& cards) {
    const auto found = cards_below_root_of(files, gpu, cards);
    return found ? *found : Cards{};
  };
  const auto why = [&](std::string_view gpu, const Cards& cards) {
    const auto found = cards_below_root_of(files, gpu, cards);
    return found ? "" : found.error().what;
  };
  CHECK(near("0000:19:00.0", {"mlx5_3", "mlx5_0"}) == Cards{"mlx5_0"});
  const Cards three{"mlx5_0:1", "mlx5_1:2", "mlx5_2"};
  CHECK(near("00000000:19:00.0", three) == three);  // As NVML writes it.
  CHECK(why("0000:19:00.0", {"mlx5_3"}) ==
        "GPU 0000:19:00.0 is below pci0000:16, mlx5_3 below pci0000:97");
  for (const char* card : {"rxe0", "efa_0", "mlx5_9", "../../../bus/pci"}) {
    CHECK(near("0000:19:00.0", {"mlx5_0", card}) == Cards{"mlx5_0"});
    CHECK(why("0000:19:00.0", {card}) ==
          "GPU 0000:19:00.0 is below pci0000:16, " + std::string(card) + " is no PCI device");
  }
  CHECK(why("0000:20:00.0", {"mlx5_0"}) ==
        "sysfs does not say where GPU 0000:20:00.0 is connected");
  CHECK(why("", {"mlx5_0"}) == "sysfs does not say where GPU  is connected");
  CHECK(why("0000:19:00.0", {}) == "GPU 0000:19:00.0 is below pci0000:16");
}
