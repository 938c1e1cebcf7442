#include "transport/placement.h"

#include <algorithm>
#include <filesystem>
#include <string>

#ifdef TUTTI_HAVE_HWLOC
#include <hwloc.h>
#endif

namespace tutti {
namespace {

#ifdef TUTTI_HAVE_HWLOC
/// The machine as hwloc sees it, loaded once; null if it can't be. Without I/O devices: this is
/// about memory, and looking for devices is what takes time.
hwloc_topology_t machine() {
  static const hwloc_topology_t topology = [] {
    hwloc_topology_t made = nullptr;
    if (hwloc_topology_init(&made) != 0) return hwloc_topology_t{};
    hwloc_topology_set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_NONE);
    if (hwloc_topology_load(made) == 0) return made;
    hwloc_topology_destroy(made);
    return hwloc_topology_t{};
  }();
  return topology;
}

/// Calls `use` with the NUMA nodes near the CPU that this thread last ran on.
template <class Use>
void with_local_nodes(Use use) {
  const hwloc_cpuset_t cpus = hwloc_bitmap_alloc();
  const hwloc_nodeset_t nodes = hwloc_bitmap_alloc();
  if (hwloc_get_last_cpu_location(machine(), cpus, HWLOC_CPUBIND_THREAD) == 0 &&
      hwloc_cpuset_to_nodeset(machine(), cpus, nodes) == 0 && !hwloc_bitmap_iszero(nodes)) {
    use(nodes);
  }
  hwloc_bitmap_free(cpus);
  hwloc_bitmap_free(nodes);
}
#endif

/// Counted from sysfs: cheap, so that machines with one node never load hwloc.
int count_nodes() {
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("node") && name.find_first_not_of("0123456789", 4) == std::string::npos)
      ++count;
  }
  return std::max(count, 1);
}

}  // namespace

int numa_nodes() {
  static const int count = count_nodes();
  return count;
}

void place_near_this_thread([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#ifdef TUTTI_HAVE_HWLOC
  if (numa_nodes() <= 1 || machine() == nullptr) return;
  with_local_nodes([&](hwloc_const_nodeset_t nodes) {
    hwloc_set_area_membind(machine(), data, bytes, nodes, HWLOC_MEMBIND_BIND,
                           HWLOC_MEMBIND_BYNODESET);
  });
#endif
}

}  // namespace tutti
