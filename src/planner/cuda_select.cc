#include "planner/cuda_select.h"

#include <algorithm>
#include <bit>
#include <optional>

#include <fmt/format.h>

#include "plan/chunks.h"
#include "plan/estimate.h"
#include "planner/wish.h"

namespace tutti::planner {
namespace {

/// What one way of reaching memory does. A hop: what NCCL 2.30 reckons with for its protocol
/// "simple" (src/graph/tuning.cc), and what two kernels on one device need for a flag. Bandwidth,
/// of a device's port in one direction: NVLink 3, PCI Express 4.0 with 16 lanes, and that twice for
/// memory of the host. Between hosts that way is taken, and then the network (Hosts::cost).
struct LinkFigures {
  std::string_view name;
  LinkCost cost;
};
constexpr LinkFigures kLinks[] = {{"same device", {1.5, 0}},
                                  {"NVLink", {3.4, 250}},
                                  {"PCIe", {5.7, 22}},
                                  {"host", {7, 11}},
                                  {"network", {7, 11}}};
constexpr double kMemoryRate = 1555;  // GB/s: an A100's.
constexpr double kStepUs = 0.3;       // Two barriers of a block and a look-up.

/// A lane's share is worth a block of its own from so many bytes on. Not measured.
constexpr std::size_t kLaneBytes = std::size_t{32} << 10;
// As between hosts (host_estimate.cc): every plan is estimated at a size's first call.
constexpr std::size_t kMostEvents = std::size_t{1} << 15;

plan::CostModel cost_model(const DeviceMachine& machine) {
  const auto ranks = static_cast<std::uint32_t>(machine.device_of.size());
  constexpr auto kKinds = static_cast<std::uint32_t>(std::size(kLinks));
  plan::CostModel model;
  model.step_us = kStepUs;
  model.resources.resize(std::size_t{2} * kKinds * ranks + ranks);
  // Ports: of each rank and kind, out and in. Ranks of one device share its memory, and so do their
  // ports, but that is left out: they are few.
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    for (std::uint32_t kind = 0; kind < kKinds; ++kind) {
      for (const std::uint32_t in : {0U, 1U}) {
        model.resources[(rank * kKinds + kind) * 2 + in].gigabytes_per_second =
            kLinks[kind].cost.gigabytes_per_second;
      }
    }
    model.resources[2 * kKinds * ranks + rank].gigabytes_per_second = kMemoryRate;
  }
  const auto first_host = static_cast<std::uint32_t>(model.resources.size());
  const std::vector<int>& hosts = machine.hosts.of;
  const NetworkCost& network = machine.hosts.cost;
  for (std::size_t host = 0; host < ranks_on(hosts).size(); ++host) {
    plan::Resource out, in;
    out.gigabytes_per_second = in.gigabytes_per_second = network.link.gigabytes_per_second;
    out.message_us = network.message_us;
    model.resources.push_back(out);
    model.resources.push_back(in);
  }
  model.link = [&machine, first_host](Rank from, Rank to) {
    const DeviceLink link =
        machine.link(static_cast<std::size_t>(from.value), static_cast<std::size_t>(to.value));
    const auto kind = static_cast<std::uint32_t>(link);
    LinkCost hop{kLinks[kind].cost.latency_us, 0};
    if (link == DeviceLink::kNetwork) {
      const auto host = [&](Rank rank) {
        return static_cast<std::uint32_t>(machine.hosts.of[static_cast<std::size_t>(rank.value)]);
      };
      hop.latency_us += machine.hosts.cost.link.latency_us;
      return plan::Path(hop,
                        {{first_host + 2 * host(from), 1}, {first_host + 2 * host(to) + 1, 1}});
    }
    if (link == DeviceLink::kSame) return plan::Path(hop);
    const auto out = static_cast<std::uint32_t>(from.value),
               in = static_cast<std::uint32_t>(to.value);
    return plan::Path(hop, {{(out * kKinds + kind) * 2, 1}, {(in * kKinds + kind) * 2 + 1, 1}});
  };
  model.compute = [&machine, first = 2 * kKinds * ranks](Rank rank) {
    const int device = machine.device_of[static_cast<std::size_t>(rank.value)];
    return plan::Use{first + static_cast<std::uint32_t>(device), 1};
  };
  return model;
}

/// Empty: it is too large, or can't be prepared.
std::optional<double> estimate_us(const Algorithm& algorithm, const Request& request,
                                  const DeviceMachine& machine, const plan::CostModel& model) {
  const auto made = prepare({.algorithm = &algorithm, .shape = request.shape});
  if (!made) return std::nullopt;
  const plan::Plan& plan = (*made)->plan;
  std::size_t events = 1;
  for (const plan::RankPlan& rank : plan.ranks) {
    for (const plan::Lane& lane : rank.lanes) events += lane.steps.size() + lane.locations.size();
  }
  if (events > kMostEvents * 4) return std::nullopt;
  const std::size_t blocks =
      std::max(plan::input_blocks(request.shape), plan::output_blocks(request.shape));
  const std::size_t block_bytes = request.bytes / blocks;
  const std::size_t tiles = std::max<std::size_t>(1, kMostEvents / events);
  const std::size_t slot_bytes = std::max(machine.slot_bytes, block_bytes / plan.pieces / tiles);
  plan::Estimator estimator(plan, model, DataType::kFloat32, slot_bytes, machine.slots);
  return estimator.run(std::max<std::size_t>(1, block_bytes / 4)).microseconds;
}

/// How often the lanes of a plan are repeated, if `wished` does not say; 0: it has more than there
/// are.
std::uint32_t repeated(const Algorithm& algorithm, const Request& request,
                       const DeviceMachine& machine, std::uint32_t wished) {
  const auto own =
      static_cast<std::uint32_t>(build(algorithm, request.shape, Rank{0}).lanes.size());
  if (own > machine.lanes) return 0;
  const std::size_t blocks =
      std::max(plan::input_blocks(request.shape), plan::output_blocks(request.shape));
  const std::size_t shares = request.bytes / blocks / algorithm.pieces(request.shape) / kLaneBytes;
  const std::size_t most = std::max(1U, machine.lanes / std::max(1U, own));
  return static_cast<std::uint32_t>(wished != 0
                                        ? std::min<std::size_t>(wished, most)
                                        : std::bit_floor(std::clamp<std::size_t>(shares, 1, most)));
}

}  // namespace

std::string_view to_string(DeviceLink link) { return kLinks[static_cast<std::size_t>(link)].name; }

std::size_t device_size_class(std::size_t bytes) {
  return std::bit_ceil(std::clamp<std::size_t>(bytes, 1024, std::size_t{1} << 40));
}

Result<bool> packets_allowed(Collective collective, const DeviceMachine& machine) {
  TUTTI_TRY(const Wish wish, wish_for(collective, machine.wishes, "TUTTI_ALGORITHM"));
  return wish.forced.empty() ? !wish.forbids(kPacketWay) : wish.forced == kPacketWay;
}

Result<std::vector<DeviceWay>> device_ways(Request request, const DeviceMachine& machine) {
  const Collective collective = request.shape.collective;
  TUTTI_TRY(const Wish wish, wish_for(collective, machine.wishes, "TUTTI_ALGORITHM"));
  request.bytes = device_size_class(request.bytes);
  const plan::CostModel model = cost_model(machine);
  const bool forced = !wish.forced.empty() && wish.forced != kPacketWay;
  std::vector<DeviceWay> ways;
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->collective != collective || !algorithm->applies(request.shape)) continue;
    if (forced ? algorithm->name != wish.forced : wish.forbids(algorithm->name)) continue;
    if (request.contract == Contract::kDeterministic &&
        algorithm->contract(request.shape) == Contract::kRelaxed) {
      continue;
    }
    DeviceWay way{algorithm, repeated(*algorithm, request, machine, wish.lanes), 0};
    if (way.lanes == 0) continue;
    if (!forced) {
      const auto estimated = estimate_us(*algorithm, request, machine, model);
      if (!estimated) continue;
      way.microseconds = *estimated;
    }
    ways.push_back(way);
  }
  std::stable_sort(ways.begin(), ways.end(), [](const DeviceWay& a, const DeviceWay& b) {
    return a.microseconds < b.microseconds;
  });
  if (ways.empty()) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: no plan is left for {} ranks on devices by TUTTI_ALGORITHM='{}' "
                             "and TUTTI_CONTRACT={}",
                             to_string(collective), request.shape.rank_count, machine.wishes,
                             request.contract == Contract::kRelaxed ? "relaxed" : "deterministic")};
  }
  return ways;
}

}  // namespace tutti::planner
