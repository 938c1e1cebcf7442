#include "cuda/comm/multicast.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "cuda/comm/exchange_status.h"
#include "cuda/comm/graph_costs.h"
#include "cuda/comm/registered.h"
#include "planner/kernel_shape.h"
#include "planner/override.h"
#include "planner/tuning_table.h"

namespace tutti {
namespace {

struct Named {
  ExchangedStatus status;
  exec::CudaMulticastName name;
};

/// Whether the user lets any collective go there. Lists that are not valid are refused by calls.
bool is_allowed(const std::string& overrides) {
  constexpr Collective kMulticasts[] = {Collective::kAllReduce, Collective::kReduceScatter,
                                        Collective::kAllGather, Collective::kBroadcast};
  return std::ranges::any_of(kMulticasts, [&](Collective collective) {
    const auto wanted = planner::override_for(collective, overrides, "TUTTI_ALGORITHM");
    return !wanted || wanted->allows(planner::kMulticastName);
  });
}

/// By what all ranks know alike; empty: it is worth a try.
std::string why_not_here(const DeviceRank& self) {
  const planner::DeviceMachine& machine = self.machine;
  const std::set<int> devices(machine.device_of.begin(), machine.device_of.end());
  if (self.rank_count < 2) return "there is one rank";
  if (!is_allowed(machine.overrides)) return "TUTTI_ALGORITHM takes other ways";
  if (devices.size() != machine.device_of.size()) return "ranks share a device";
  if (!machine.hosts.of.empty()) return "ranks are on several hosts";
  if (self.staged) return "devices do not reach each other's memory";
  if (machine.graph == nullptr) return "the host's topology is not known";
  if (machine.graph->multicast.empty())
    return "by the topology not all devices are Hopper or later and behind NVSwitches";
  return {};
}

/// Whether the memories lie alike in what was allocated.
Status check_names(const std::vector<exec::CudaName>& names) {
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    const exec::CudaName& name = names[rank];
    if (name.kind != exec::CudaHandleKind::kDescriptors || name.parts != 1)
      return Error{Code::kUnsupported,
                   fmt::format("rank {}'s is not one part that the driver maps and exports as a "
                               "descriptor",
                               rank)};
    if (name.offset != names[0].offset || name.whole_bytes != names[0].whole_bytes)
      return Error{
          Code::kUnsupported,
          fmt::format("rank {}'s lies elsewhere in what was allocated than rank 0's", rank)};
  }
  return ok();
}

}  // namespace

Result<exec::CudaMulticast> join_multicast(DeviceRank& self,
                                           const std::vector<exec::CudaName>& names) {
  TUTTI_RETURN_IF_ERROR(check_names(names));
  const exec::CudaName& own = names[self.index()];
  exec::CudaMulticast object;
  Named mine;
  Status status;
  const auto take = [&](Result<exec::CudaMulticast> made) {
    status = made ? ok() : Status(made.error());
    if (made) object = *std::move(made);
  };
  const bool makes = self.index() == 0;
  if (makes)
    take(
        exec::CudaMulticast::make(static_cast<unsigned>(names.size()), own.whole_bytes, mine.name));
  TUTTI_TRY(const auto all, exchange_status(self.control, mine, status));
  if (!makes)
    take(exec::CudaMulticast::open(all[0].name, own.whole_bytes,
                                   Deadline::after(self.settings.timeout)));
  if (status) status = object.add(self.device);
  TUTTI_RETURN_IF_ERROR(exchange_status(self.control, status));
  TUTTI_RETURN_IF_ERROR(exchange_status(self.control, object.bind(own.data - own.offset)));
  TUTTI_RETURN_IF_ERROR(exchange_status(self.control, object.map()));
  return object;
}

void make_multicast(DeviceRank& self, RegisteredMemory& registered) {
  MulticastMemory& made = registered.multicast();
  made.why_not = why_not_here(self);
  if (!made.why_not.empty()) return;
  const std::uint32_t lanes = self.mesh->rings().options().lanes;
  Status status = exec::CudaMulticast::supported(self.device);
  if (status) {
    made.staging.area_bytes = planner::kKernelShape.multicast_tile_bytes;
    auto memory = exec::CudaMemory::allocate_for_peers(self.device, made.staging.bytes(lanes));
    status = memory ? ok() : Status(memory.error());
    if (memory) made.memory = *std::move(memory);
  }
  status = exchange_status(self.control, status);
  if (status) status = registered.add_staging(made.memory, made.staging);
  if (status) return;
  made.why_not = status.error().what;
  made.memory = {};
}

}  // namespace tutti
