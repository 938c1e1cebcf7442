// File: cuda/comm/select.h: which plans a call between devices can take: planner/select.h over what
// links and memories of devices do.
//
// Pure: the same request and machine give the same list on every rank. There are neither tables nor
// rules, as nothing has been measured on devices yet, so estimates decide. They are right about
// what matters for the order: how many hops, how many bytes over which port or link, what a step
// takes its block (planner/kernel_phases.h), that ranks of one device share its memory, and those
// of one host its network. Where the graph of the hosts is
// known, its links and memories are what counts (cuda/comm/graph_costs.h); else PCI Express links
// that devices share are left out, and all devices have the same figures.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/interpreter.h"
#include "planner/select.h"

namespace tutti::planner {

/// How one rank's device reaches another's memory; the better ones first.
enum class DeviceLink : std::uint8_t { kSame, kNvlink, kPcie, kHost, kNetwork };
std::string_view to_string(DeviceLink link);

struct GraphCosts;
/// The protocol of machine_cost.h by which calls over multicast memory are estimated.
inline constexpr std::string_view kMulticastProtocol = "multimem";

/// Alike on all ranks. It has more than 15 fields: all that choices depend on.
struct DeviceMachine {
  std::vector<int> device_of;     // By rank, from 0 on.
  std::vector<DeviceLink> links;  // By rank * ranks + peer; the same both ways.
  /// As links: GB/s in each direction of NVLinks that join just the two; 0: there are none. Empty:
  /// none are known, so a device's NVLinks are one port.
  std::vector<double> direct = {};
  /// For ranks on several hosts: the host of each rank; the network between hosts; and the ranks of
  /// each host as groups, if they are such.
  Hosts hosts;
  plan::GroupSizes groups;
  std::vector<int> weights = {};  // Settings::weights.
  std::string overrides;          // Settings::algorithm.
  std::uint32_t lanes = 1;        // That a plan may have.
  std::size_t slot_bytes = std::size_t{64} << 10;
  int slots = 4;
  int capability = 0;  // All devices', as 90; 0: they differ, or it is not known.
  /// Rings whose slots have flags, beside those of simple slots (flagged_rings).
  std::vector<cuda::RingSet> flagged = {};
  std::size_t eager_bytes = std::size_t{64} << 10;  // That the one-shot kernel can take.
  bool by_nics = false;    // Ranks go to other hosts by RDMA, so by NICs near them;
  bool gpudirect = false;  // and slots between hosts are in the devices' memories.
  std::string no_multicast = "there is no multicast memory";  // Why not; empty: there is some.
  std::shared_ptr<const GraphCosts> graph = nullptr;          // Null: not known.
  DeviceLink link(std::size_t rank, std::size_t peer) const {
    return links[rank * device_of.size() + peer];
  }
  double direct_rate(std::size_t rank, std::size_t peer) const {
    return direct.empty() ? 0 : direct[rank * device_of.size() + peer];
  }
};

/// What plans on the machine are for. Where the links between devices of a host are not alike, also
/// what they say of it: ranks near each other as groups, weights (but not instead of the user's),
/// and trees, if plans along them keep the contract. The last takes some ms for 8 ranks and about a
/// second for 32 (machine_trees.h), so the caller keeps it; where links are alike, nothing but
/// trees of rooted collectives on one host.
plan::Shape device_shape(Collective collective, int root, Contract contract,
                         const DeviceMachine& machine);

/// A call whose bytes are not said yet: that shape, and where plans may add up in any order, the
/// rank orders of rings over links that are not alike. The caller keeps it.
Request device_request(Collective collective, int root, Contract contract,
                       const DeviceMachine& machine);

/// What of a collective's buffers peers can map, if all are registered: those that every rank has,
/// in one place. The root of a gather or a scatter may have its own block in its other buffer. None
/// where devices of a host don't reach each other's memory.
plan::Mapped device_maps(Collective collective, const DeviceMachine& machine);

/// All plans of the request's collective, as candidates() (planner/select.h) lists them, by
/// estimate. Requests of one device_size_class have one answer.
Result<std::vector<Candidate>> device_candidates(Request request, const DeviceMachine& machine);

/// Those that can be taken, and never no plan; kernels may not take all of them. Errors as
/// usable_plans().
Result<std::vector<Candidate>> device_plans(Request request, const DeviceMachine& machine);

/// How a candidate's plan is made, and over slots of which format it runs. Buffers are mapped
/// within each host.
struct DeviceRecipe {
  Recipe recipe;
  cuda::SlotFormat format = cuda::SlotFormat::kSimple;
};
DeviceRecipe device_recipe(const Candidate& candidate, const Request& request,
                           const DeviceMachine& machine);

/// What no plan can beat, and why. 0: nothing is known.
struct DeviceBound {
  double us = 0;
  std::string words = {};
};
/// That of the graph, if it is known; else what the bytes need to get into and out of each device
/// over all links that it has.
DeviceBound device_bound(const Request& request, const DeviceMachine& machine);

/// How long the one-shot kernel takes for the request, and a message from one rank to another.
double eager_us(const Request& request, const DeviceMachine& machine);
double message_us(const DeviceMachine& machine, Rank from, Rank to, std::size_t bytes);

/// Whether overrides let a call of that collective be eager (the one-shot kernel).
Result<bool> eager_allowed(Collective collective, const DeviceMachine& machine);

/// Up to how many bytes an all-reduce of the request's shape takes the one-shot kernel: as far as
/// no plan is estimated to be faster, and at most DeviceMachine::eager_bytes. Takes as long as some
/// calls of device_plans(), so the caller keeps it. Errors as usable_plans().
Result<std::size_t> eager_limit_bytes(Request request, const DeviceMachine& machine);

/// The rings with flags of a communicator on one host, where all devices reach each other's memory:
/// packed slots; and lines, if all links are NVLinks and the devices keep lines whole. Sets of 8
/// ranks have 8 MiB each; with more ranks, slots are shorter.
std::vector<cuda::RingSet> flagged_rings(const DeviceMachine& machine);
/// "packed slots", "lines of 128 bytes"; "" for simple slots.
std::string_view in_words(cuda::SlotFormat format);

/// What stands for all sizes near this one.
std::size_t device_size_class(std::size_t bytes);

}  // namespace tutti::planner
