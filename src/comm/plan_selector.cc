#include "comm/plan_selector.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "plan/structure.h"
#include "planner/override.h"
#include "planner/select.h"
#include "planner/weights.h"
#include "tutti/detail/wire_codec.h"

namespace tutti {
namespace {

/// Ranks of a host as groups, if all hosts have as many in a row; the last one may have fewer.
/// Empty: there is nothing to gain by it.
std::vector<int> groups_of(const std::vector<int>& hosts) {
  const auto ranks = static_cast<int>(hosts.size());
  const auto size = static_cast<int>(std::count(hosts.begin(), hosts.end(), 0));
  for (int rank = 0; rank < ranks; ++rank) {
    if (hosts[static_cast<std::size_t>(rank)] != rank / size) return {};
  }
  return size > 1 && size < ranks ? std::vector<int>{size} : std::vector<int>{};
}

Settings with_groups(Settings settings, const std::vector<int>& hosts) {
  if (settings.groups.empty()) settings.groups = groups_of(hosts);
  return settings;
}

}  // namespace

PlanSelector::PlanSelector(Settings settings, Plans plans, int rank_count, int cpus,
                           std::shared_ptr<const Tuning> tuning, const std::string& transport,
                           planner::Hosts hosts, const TunedHosts& tuned)
    : settings_(with_groups(std::move(settings), hosts.of)),
      plans_(std::move(plans)),
      rank_count_(rank_count),
      tuning_(std::move(tuning)) {
  key_.version = TUTTI_VERSION;
  key_.transport = transport;
  key_.rank_count = rank_count;
  key_.usable_cpus = cpus;
  key_.machine = hosts.of.empty() ? tuning_->machine : tuned.machine;
  key_.hosts = hosts.of;
  inputs_.table = planner::find_table(tuning_->tables, key_);
  inputs_.usable_cpus = cpus;
  inputs_.hosts = std::move(hosts);
  use_measured_network(tuned);
  inputs_.overrides = settings_.algorithm;
  inputs_.lanes = static_cast<std::uint32_t>(std::max(settings_.lanes, 0));
}

void PlanSelector::use_measured_network(const TunedHosts& tuned) {
  planner::Hosts& hosts = inputs_.hosts;
  if (inputs_.table == nullptr || hosts.of.empty()) return;
  hosts.cost = inputs_.table->network;
  // Machines may be alike where one link is not as it should be: that is of the hosts themselves.
  const auto& rates = inputs_.table->rates;
  const bool these = std::equal(
      rates.begin(), rates.end(), tuned.names.begin(), tuned.names.end(),
      [](const planner::HostRate& rate, const std::string& name) { return rate.name == name; });
  if (!these) return;
  hosts.rates = rates;
  if (settings_.weights.empty()) settings_.weights = planner::weights_for(hosts);
}

void PlanSelector::set(HostTopology topology, std::span<const Peer> peers) {
  topology_ = std::move(topology);
  if (topology_.graph == nullptr) return;
  const auto find = [&]() -> Result<planner::PlaceCosts> {
    TUTTI_TRY(const auto places, find_places(*topology_.graph, peers));
    return planner::place_costs(topology_.graph, topology_.source, places, inputs_.hosts);
  };
  auto costs = find();
  if (!costs) {
    topology_.why_not = costs.error().what;
    return;
  }
  topology_.why_not.clear();  // It may have been about other ranks.
  places_ = *std::move(costs);
  inputs_.places = &*places_;
  inputs_.costs = planner::measured_costs(*places_, inputs_.costs);
  if (inputs_.table == nullptr && places_->network.gigabytes_per_second > 0)
    inputs_.hosts.cost.link = places_->network;
  // Finer groups than those of hosts, unless the user named others, or hosts are no groups.
  const std::vector<int> of_hosts = groups_of(inputs_.hosts.of);
  if (settings_.groups == of_hosts && (inputs_.hosts.of.empty() || !of_hosts.empty()))
    settings_.groups = planner::groups_on(inputs_, rank_count_).sizes;
  // What the user or a table says of weights goes before.
  if (settings_.weights.empty()) settings_.weights = planner::weights_on(inputs_, rank_count_);
}

plan::Shape PlanSelector::shape_of(Collective collective, int root, Contract contract) const {
  return planner::with_trees(planner::shape_of(collective, rank_count_, root, settings_), contract,
                             inputs_);
}

void PlanSelector::set(const RegionConfig& config) {
  inputs_.most_lanes = config.lanes;
  inputs_.packet_bytes = std::max(config.packet_bytes, config.long_packet_bytes);
  inputs_.slot_bytes = config.slot_bytes;
  inputs_.slots = static_cast<int>(config.slot_count);
}

bool PlanSelector::network_is_measured() const {
  return inputs_.table != nullptr || (places_ && places_->network.gigabytes_per_second > 0);
}

void PlanSelector::set(const NetworkCost& cost) {
  if (!(cost == NetworkCost{}) && !network_is_measured()) inputs_.hosts.cost = cost;
}

Status PlanSelector::set_limits(exec::HostExecutor::Options& options) const {
  if (!settings_.wire.is_plain()) {  // Calls that go as TUTTI_WIRE says have to have a plan.
    exec::Call call;
    call.type = DataType::kFloat32;
    call.wire = settings_.wire;
    call.count = 1;
    if (auto found = choose(call, exec::Access::kSlots, 0); !found) return std::move(found.error());
  }
  for (int i = 0; i < kCollectiveCount; ++i) {
    planner::Request request;
    request.contract = settings_.contract;
    request.shape = shape_of(static_cast<Collective>(i), 0, request.contract);
    options.read_from_bytes[static_cast<std::size_t>(i)] =
        settings_.read_from_bytes != 0
            ? settings_.read_from_bytes
            : planner::built_in_read_from_bytes(request.shape.collective);
    for (const bool mapped : {false, true}) {
      request.mapped = mapped;
      auto& most = (mapped ? options.mapped_eager_limit_bytes
                           : options.eager_limit_bytes)[static_cast<std::size_t>(i)];
      most = 0;  // What is written is for every size.
      if (plans_->has(request.shape.collective, rank_count_)) continue;
      auto limit = planner::eager_limit_bytes(request, inputs_);
      if (!limit) return std::move(limit.error());
      most = *limit;
    }
  }
  return ok();
}

planner::Request PlanSelector::request_for(const exec::Call& call, exec::Access access) const {
  planner::Request request;
  request.shape = shape_of(call.collective, call.root, settings_.contract);
  request.bytes =
      std::max(exec::input_bytes(call, rank_count_), exec::output_bytes(call, rank_count_));
  request.wire = call.wire;
  if (!call.wire.is_plain())
    request.bytes = kernels::encoded_bytes(call.wire.format, request.bytes / sizeof(float));
  request.mapped = access == exec::Access::kMapped;
  request.shared = access == exec::Access::kShared;
  request.read = access == exec::Access::kRead || request.shared;
  request.vector_variant = call.vector_variant;
  request.contract = settings_.contract;
  return request;
}

const plan::Plan* PlanSelector::written_for(const exec::Call& call,
                                            const planner::Request& request) const {
  // One that touches peers' buffers itself says nothing of hosts.
  const bool all_reach = request.mapped && inputs_.hosts.of.empty();
  return plans_->find(call.collective, rank_count_, call.root, all_reach);
}

Result<exec::PlanChoice> PlanSelector::choose(const exec::Call& call, exec::Access access,
                                              std::size_t which) const {
  planner::Request request = request_for(call, access);
  if (const auto* written = written_for(call, request)) {
    if (!call.wire.is_plain() && plan::sends_partials(*written))
      return Error{Code::kInvalidArgument,
                   fmt::format("TUTTI_PLAN: the plan {} sends partial sums, which {} would round "
                               "at every hop",
                               written->name, to_string(call.wire))};
    TUTTI_TRY(const auto* verified,
              planner::prepare({.written = written,
                                .shape = written->shape,
                                .direct = request.mapped,
                                .read = request.read,
                                .multicast = true,
                                .hosts = request.mapped ? inputs_.hosts.of : std::vector<int>{},
                                .lanes = static_cast<std::uint32_t>(std::max(settings_.lanes, 1)),
                                .vector_variant = call.vector_variant}));
    return exec::PlanChoice{&verified->plan, 1, 0};
  }
  const std::string algorithm_override = planner::override_text(call.algorithm_override);
  request.algorithm_override = algorithm_override;
  TUTTI_TRY(const auto plans, planner::contenders(request, inputs_));
  // The last to be tried instead of reading are slots, unless the user has said what to read.
  const bool compared = request.read && settings_.read_from_bytes == 0;
  const std::size_t offered = plans.size() + (compared ? 1 : 0);
  TUTTI_CHECK(which < offered && "a plan is tried that was not offered");
  if (which == plans.size()) request.read = request.shared = false;
  const planner::Candidate& taken = plans[which % plans.size()];
  TUTTI_TRY(const auto* verified,
            planner::prepare(planner::recipe_of(*taken.algorithm, request, inputs_, taken.lanes)));
  return exec::PlanChoice{&verified->plan, offered, compared ? 0 : plans.front().microseconds};
}

Status PlanSelector::take_override(exec::Call& call, std::string_view algorithm_override) const {
  TUTTI_TRY(call.algorithm_override, planner::override_number(call.collective, algorithm_override));
  const bool of_eager = algorithm_override.ends_with(planner::kEagerName);
  const bool forbids = algorithm_override.starts_with('^');
  const bool never = of_eager == forbids && !algorithm_override.empty();
  call.eager_use = never || !call.wire.is_plain() ? exec::EagerUse::kNever
                   : of_eager                     ? exec::EagerUse::kAlways
                                                  : exec::EagerUse::kBySize;
  // A bad override is an error now, for the caller, and not amid the call, for all ranks.
  if (call.root < 0 || call.root >= rank_count_) return ok();  // Its check has a better word.
  planner::Request request = request_for(call, exec::Access::kSlots);
  request.bytes = std::size_t{1} << 30;  // Too large for packets to stand in.
  request.algorithm_override = algorithm_override;
  auto recipe = planner::choose(request, inputs_);
  return recipe ? ok() : Status(std::move(recipe.error()));
}

std::string PlanSelector::describe_hosts() const {
  const planner::Hosts& hosts = inputs_.hosts;
  std::string text = fmt::format("hosts: {}; between them {:.3g} us and {:.3g} GB/s {}",
                                 *std::max_element(hosts.of.begin(), hosts.of.end()) + 1,
                                 hosts.cost.link.latency_us, hosts.cost.link.gigabytes_per_second,
                                 network_is_measured() ? "were measured" : "are assumed");
  for (const planner::HostRate& rate : hosts.rates) {
    if (rate.gigabytes_per_second < hosts.cost.link.gigabytes_per_second)
      text += fmt::format(", {:.3g} at {}", rate.gigabytes_per_second, rate.name);
  }
  if (!settings_.groups.empty())
    text += fmt::format("; groups of {}", fmt::join(settings_.groups, ","));
  if (!settings_.weights.empty())
    text += fmt::format("; weights {}", fmt::join(settings_.weights, ","));
  return text + "\n";
}

std::string PlanSelector::describe_topology() const {
  if (!places_) {
    if (topology_.why_not.empty()) return {};
    if (topology_.source.empty()) return fmt::format("topology: none: {}\n", topology_.why_not);
    return fmt::format("topology: {} is not used: {}\n", topology_.source, topology_.why_not);
  }
  std::string text = fmt::format("topology: {}: {} NUMA node{}", topology_.source,
                                 places_->places.size(), places_->places.size() == 1 ? "" : "s");
  if (places_->differ) text += ", not all joined alike";
  if (inputs_.hosts.of.empty() && !settings_.groups.empty())  // Else said of the hosts.
    text += fmt::format("; groups of {}", fmt::join(settings_.groups, ","));
  return text + "\n";
}

std::string PlanSelector::describe() const {
  const auto& tables = tuning_->tables;
  std::string text = inputs_.hosts.of.empty() ? "" : describe_hosts();
  text += describe_topology();
  text += "tuning: ";
  if (inputs_.table != nullptr) {
    text += fmt::format("{} (machine {:016x}, {}, {} ranks on {} CPUs)", tuning_->source,
                        key_.machine, key_.transport, key_.rank_count, key_.usable_cpus);
  } else if (!tuning_->source.empty()) {
    text += fmt::format("{} is not used: {}", tuning_->source,
                        tables.empty() ? tuning_->reason : planner::why_no_table(tables, key_));
  } else {
    text += tuning_->reason;
  }
  return text + "\n" + plans_->describe(rank_count_);
}

}  // namespace tutti
