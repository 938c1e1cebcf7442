#include <algorithm>
#include <cmath>
#include <map>

#include "plan/draft.h"
#include "plan/estimate_parts.h"

namespace tutti::plan {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};

// Picoseconds that a byte takes at so many GB/s.
double per_byte(double gigabytes_per_second) {
  return gigabytes_per_second > 0 ? 1e3 / gigabytes_per_second : 0;
}
Picoseconds rounded(double time) { return static_cast<Picoseconds>(std::llround(time)); }

using Joins = Resource::Joins;

}  // namespace

Servers::Servers(const Plan& plan, const CostModel& model, const Traffic& traffic)
    : model_(model), traffic_(traffic), servers_(model.resources.size()) {
  open_processors(plan);
  for (const TrafficChannel& channel : traffic.channels) {
    const std::uint32_t to = (channel.from + channel.distance) % traffic.ranks;
    if (channel.distance == 0) {  // Of a multicast ring: nobody's.
      of_channel_.push_back(0);
      back_.push_back(0);
      continue;
    }
    of_channel_.push_back(route_index(channel.lane, channel.from, to));
    back_.push_back(routes_[route_index(channel.lane, to, channel.from)].latency);
  }
  const bool any_joins =
      std::any_of(model.resources.begin(), model.resources.end(),
                  [](const Resource& at) { return at.joins != Joins::kNothing; });
  if (any_joins) find_joins(plan);
}

Rank Servers::place(std::uint32_t lane, std::uint32_t rank) const {
  if (model_.orders.empty()) return Rank{static_cast<std::int32_t>(rank)};
  return model_.orders[lane % model_.orders.size()][rank];
}

std::uint32_t Servers::route_index(std::uint32_t lane, std::uint32_t from, std::uint32_t to) {
  const Rank a = place(lane, from), b = place(lane, to);
  const auto fresh = static_cast<std::uint32_t>(routes_.size());
  const std::uint64_t key =
      (static_cast<std::uint64_t>(a.value) << 32) | static_cast<std::uint64_t>(b.value);
  const std::uint32_t found = route_index_.find_or_insert(key, fresh);
  if (found == fresh) routes_.push_back(make_route(a, b));
  return found;
}

Route Servers::make_route(Rank from, Rank to) {
  const Path path = model_.link(from, to);
  Route route;
  route.latency = to_picoseconds(path.own.latency_us);
  for (const Use& use : path.uses) {
    const Resource& at = model_.resources[use.resource];
    const Route::Leg leg{use.resource, per_byte(at.gigabytes_per_second) * use.share,
                         at.message_us * 1e6 * use.share};
    if (leg.per_byte + leg.per_message > 0) route.legs.push_back(leg);
  }
  if (path.own.gigabytes_per_second > 0) {
    route.legs.push_back(
        {static_cast<std::uint32_t>(servers_.size()), per_byte(path.own.gigabytes_per_second), 0});
    servers_.emplace_back();
  }
  return route;
}

void Servers::open_processors(const Plan& plan) {
  FlatMap own;
  for (std::uint32_t rank = 0; rank < plan.ranks.size(); ++rank) {
    auto& lanes = processors_.emplace_back();
    for (std::uint32_t lane = 0; lane < plan.ranks[rank].lanes.size(); ++lane) {
      const Rank at = place(lane, rank);
      if (model_.compute) {
        const Use use = model_.compute(at);
        const double rate = model_.resources[use.resource].gigabytes_per_second;
        lanes.push_back(
            {use.resource, model_.step_us * 1e6 * use.share, per_byte(rate) * use.share});
        continue;
      }
      const auto fresh = static_cast<std::uint32_t>(servers_.size());
      const std::uint32_t server = own.find_or_insert(static_cast<std::uint64_t>(at.value), fresh);
      if (server == fresh) servers_.emplace_back();
      lanes.push_back({server, model_.step_us * 1e6, per_byte(model_.reduce_gigabytes_per_second)});
    }
  }
}

std::uint32_t Servers::joining_server(std::uint32_t channel, Joins kind) const {
  for (const Route::Leg& leg : routes_[of_channel_[channel]].legs) {
    if (leg.server < model_.resources.size() && model_.resources[leg.server].joins == kind)
      return leg.server;
  }
  return kNone;
}

// What a step sends over one server counts as joined there; what a step adds up likewise, unless it
// was joined where it was sent. Which of its slots a channel brings to a step is fixed by order.
void Servers::find_joins(const Plan& plan) {
  std::vector<std::vector<std::int32_t>> added(traffic_.channels.size());  // In order of reading.
  joined_.resize(plan.ranks.size());
  const auto for_each_step = [&](auto visit) {
    for (std::uint32_t rank = 0; rank < plan.ranks.size(); ++rank) {
      joined_[rank].resize(plan.ranks[rank].lanes.size());
      for (std::uint32_t lane = 0; lane < plan.ranks[rank].lanes.size(); ++lane) {
        joined_[rank][lane].resize(plan.ranks[rank].lanes[lane].locations.size());
        for (const Step& step : plan.ranks[rank].lanes[lane].steps)
          visit(plan.ranks[rank].lanes[lane], traffic_.lanes[rank][lane], joined_[rank][lane],
                step);
      }
    }
  };
  std::map<std::uint32_t, int> together;
  for_each_step([&](const Lane&, const LaneTraffic& channels, auto&, const Step& step) {
    together.clear();
    const std::uint32_t* sources = channels.of_location.data() + step.first;
    for (std::uint32_t i = 0; i < step.source_count; ++i) {
      if (sources[i] != kNoChannel) ++together[joining_server(sources[i], Joins::kReduce)];
    }
    for (std::uint32_t i = 0; i < step.source_count; ++i) {
      if (sources[i] == kNoChannel) continue;
      const std::uint32_t server = joining_server(sources[i], Joins::kReduce);
      added[sources[i]].push_back(server == kNone ? 1 : together[server]);
    }
  });
  std::vector<std::size_t> sent(traffic_.channels.size());
  for_each_step([&](const Lane& lane, const LaneTraffic& channels, auto& joined, const Step& step) {
    together.clear();
    const std::size_t first = std::size_t{step.first} + step.source_count;
    const auto for_each_channel = [&](std::size_t at, auto visit) {
      if (channels.of_location[at] == kNoChannel) return;
      for (std::uint32_t k = 0; k < traffic_.width(lane.locations[at]); ++k) {
        const std::uint32_t channel = channels.of_location[at] + k;
        if (traffic_.channels[channel].distance != 0) visit(channel);
      }
    };
    for (std::size_t at = first; at < first + step.target_count; ++at) {
      for_each_channel(at, [&](std::uint32_t channel) {
        ++together[joining_server(channel, Joins::kMulticast)];
      });
    }
    for (std::size_t at = first; at < first + step.target_count; ++at) {
      for_each_channel(at, [&](std::uint32_t channel) {
        const std::uint32_t server = joining_server(channel, Joins::kMulticast);
        const int copies = server == kNone ? 1 : together[server];
        const std::size_t number = sent[channel]++;
        const int terms = number < added[channel].size() ? added[channel][number] : 1;
        joined[at] = copies > 1 ? copies : terms > 1 ? -terms : 0;
      });
    }
  });
}

void Servers::carry(Route& route, Picoseconds now, double bytes, int joined) {
  route.bytes += bytes;
  for (const Route::Leg& leg : route.legs) {
    if (joined == 0 || leg.server >= model_.resources.size()) {
      servers_[leg.server].work(now, rounded(bytes * leg.per_byte + leg.per_message));
      continue;
    }
    const Resource& at = model_.resources[leg.server];
    const double time =
        leg.per_message +
        bytes * leg.per_byte / (at.joins == Joins::kNothing ? 1 : at.join_efficiency);
    const bool here = at.joins == (joined > 0 ? Joins::kMulticast : Joins::kReduce);
    servers_[leg.server].work(now, rounded(here ? time / std::abs(joined) : time));
    if (here) servers_[at.mirror].work(now, rounded(time / std::abs(joined)));
  }
}

Picoseconds Servers::done(const Route& route, Picoseconds now, int joined) const {
  Picoseconds end = now;
  for (const Route::Leg& leg : route.legs) {
    end = std::max(end, servers_[leg.server].until);
    if (joined == 0 || leg.server >= model_.resources.size()) continue;
    const Resource& at = model_.resources[leg.server];
    if (at.joins == (joined > 0 ? Joins::kMulticast : Joins::kReduce))
      end = std::max(end, servers_[at.mirror].until);
  }
  return end;
}

void Servers::compute(std::uint32_t rank, std::uint32_t lane, Picoseconds now, double bytes) {
  const Processor& at = processors_[rank][lane];
  servers_[at.server].work(now, rounded(at.step + bytes * at.per_byte));
}

Picoseconds Servers::computed(std::uint32_t rank, std::uint32_t lane) const {
  return servers_[processors_[rank][lane].server].until;
}

double Servers::bytes_on_busiest_link() const {
  double most = 0;
  for (const Route& route : routes_) most = std::max(most, route.bytes);
  return most;
}

std::vector<double> Servers::busy_us() const {
  std::vector<double> busy;
  for (std::size_t i = 0; i < model_.resources.size(); ++i)
    busy.push_back(to_us(servers_[i].worked));
  return busy;
}

}  // namespace tutti::plan
