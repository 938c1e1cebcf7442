#include "plan/estimate/instances.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include "base/hash.h"
#include "plan/phases.h"

namespace tutti::plan {
namespace {

constexpr std::uint32_t kOwn = std::uint32_t{1} << 31;  // A leg over a server, not over a bundle.

// Picoseconds that a byte takes at so many GB/s.
double per_byte(double gigabytes_per_second) {
  return gigabytes_per_second > 0 ? 1e3 / gigabytes_per_second : 0;
}

}  // namespace

Instances::Instances(const Plan& of, const CostModel& model)
    : plan(of),
      traffic(plan::traffic(of)),
      orders(static_cast<std::uint32_t>(std::max<std::size_t>(1, model.orders.size()))),
      images(traffic.ranks / traffic.listed),
      sees_slots(model.sees_slots),
      model_(model) {
  for (std::uint32_t rank = 0; rank < plan.ranks.size(); ++rank) {
    first.push_back(listed_count());
    for (std::uint32_t lane = 0; lane < plan.ranks[rank].lanes.size(); ++lane)
      listed.push_back({rank, lane});
  }
  for (const Listed& at : listed) {
    for (const Location& location : plan.ranks[at.rank].lanes[at.lane].locations) {
      maps = maps || is_of_peer(location);
      shares_memory = shares_memory || maps || location.place == Place::kMulticast;
    }
    if (model.lane_us <= 0) continue;
    const Lane& lane = plan.ranks[at.rank].lanes[at.lane];
    auto& lengths = phases.emplace_back();
    for (std::size_t step = 0; step < lane.steps.size(); ++step)
      lengths.push_back(
          static_cast<std::uint8_t>(phase_length(lane, step, lane.steps.size(), plan.apart)));
  }
}

std::uint32_t Instances::writer(std::uint32_t channel) const {
  const TrafficChannel& at = traffic.channels[channel % channels_each()];
  return channel / channels_each() * listed_count() + first[at.from] + at.lane;
}

std::uint32_t Instances::reader(std::uint32_t channel) const {
  const TrafficChannel& at = traffic.channels[channel % channels_each()];
  const std::uint32_t to = (at.from + at.distance) % traffic.ranks;
  const std::uint32_t instance = channel / channels_each();
  const std::uint32_t order = instance / images, image = instance % images;
  return (order * images + (image + to / traffic.listed) % images) * listed_count() +
         first[to % traffic.listed] + at.lane;
}

std::uint32_t Instances::read_from(std::uint32_t instance, std::uint32_t channel) const {
  const TrafficChannel& at = traffic.channels[channel];
  const std::uint32_t away = (at.from + at.distance) % traffic.ranks / traffic.listed;
  const std::uint32_t order = instance / images, image = instance % images;
  return (order * images + (image + images - away) % images) * channels_each() + channel;
}

std::uint32_t Instances::rank_of(std::uint32_t actor) const {
  return listed[actor % listed_count()].rank + actor / listed_count() % images * traffic.listed;
}

Rank Instances::place(std::uint32_t order, std::uint32_t rank) const {
  if (model_.orders.empty()) return Rank{static_cast<std::int32_t>(rank)};
  return model_.orders[order][rank];
}

Ways::Ways(const Instances& instances, const CostModel& model)
    : instances_(instances), model_(model) {
  open_channels();
  open_mapped();
  open_latencies();  // Last: these ways have no legs where there were none before.
  open_processors();
  give_servers();
  const auto joins = [](const Resource& at) { return at.joins != Resource::Joins::kNothing; };
  if (std::ranges::any_of(model.resources, joins)) find_joins();
}

std::pair<Rank, Rank> Ways::ends(std::uint32_t channel) const {
  const TrafficChannel& at = instances_.traffic.channels[channel % instances_.channels_each()];
  const std::uint32_t instance = channel / instances_.channels_each();
  const std::uint32_t from = at.from + instance % instances_.images * instances_.traffic.listed;
  const std::uint32_t order = instance / instances_.images;
  return {instances_.place(order, from),
          instances_.place(order, (from + at.distance) % instances_.traffic.ranks)};
}

void Ways::open_channels() {
  of_channel_.resize(instances_.channel_count());
  for (std::uint32_t channel = 0; channel < instances_.channel_count(); ++channel) {
    const auto [from, to] = ends(channel);
    if (from != to) of_channel_[channel] = open(from, to, false);
  }
}

void Ways::open_mapped() {
  if (!instances_.maps) return;
  for (std::uint32_t actor = 0; actor < instances_.actor_count(); ++actor) {
    const std::uint32_t order = actor / instances_.listed_count() / instances_.images;
    const std::uint32_t rank = instances_.rank_of(actor);
    for (const Location& at : instances_.lane_of(actor).locations) {
      if (!is_of_peer(at)) continue;
      of_mapped(order, at.peer, rank);
      of_mapped(order, rank, at.peer);
    }
  }
}

void Ways::open_latencies() {
  back_.resize(instances_.channel_count());
  for (std::uint32_t channel = 0; channel < instances_.channel_count(); ++channel) {
    const auto [from, to] = ends(channel);
    if (from != to) back_[channel] = latency(open(to, from, true));
  }
  if (!instances_.plan.entry_barrier) return;
  for (std::uint32_t order = 0; order < instances_.orders; ++order) {
    for (std::uint32_t from = 0; from < instances_.traffic.ranks; ++from) {
      for (std::uint32_t to = 0; to < instances_.traffic.ranks; ++to) {
        if (from != to) open(instances_.place(order, from), instances_.place(order, to), true);
      }
    }
  }
}

std::uint32_t Ways::open(Rank from, Rank to, bool latency_only) {
  const auto fresh = static_cast<std::uint32_t>(ways_.size());
  const std::uint64_t key =
      (static_cast<std::uint64_t>(from.value) << 32) | static_cast<std::uint64_t>(to.value);
  const std::uint32_t found = index_.find_or_insert(key, fresh);
  if (found == fresh) ways_.push_back(make(from, to, latency_only));
  return found;
}

Ways::Way Ways::make(Rank from, Rank to, bool latency_only) {
  const Path path = model_.link(from, to);
  Way way{to_picoseconds(path.own.latency_us), static_cast<std::uint32_t>(legs_.size()), 0};
  if (latency_only) return way;
  const auto leg_of = [&](const Use& use) {
    const Resource& at = model_.resources[use.resource];
    return Leg{0, 0, per_byte(at.gigabytes_per_second) * use.share,
               at.message_us * 1e6 * use.share};
  };
  for (std::size_t i = 0; i < path.uses.size();) {
    Leg leg = leg_of(path.uses[i]);
    std::size_t end = i + 1;
    for (; end < path.uses.size(); ++end) {
      const Leg next = leg_of(path.uses[end]);
      if (next.per_byte != leg.per_byte || next.per_message != leg.per_message) break;
    }
    if (leg.per_byte + leg.per_message > 0) {
      leg.server = bundle_of(std::span(path.uses).subspan(i, end - i));
      legs_.push_back(leg);
    }
    i = end;
  }
  if (path.own.gigabytes_per_second > 0)
    legs_.push_back({kOwn | own_server(), 0, per_byte(path.own.gigabytes_per_second), 0});
  way.count = static_cast<std::uint32_t>(legs_.size()) - way.first;
  return way;
}

std::uint32_t Ways::bundle_of(std::span<const Use> uses) {
  std::uint64_t key = 0;
  for (const Use& use : uses) key = mix(key + use.resource + 1);
  const auto fresh = static_cast<std::uint32_t>(bundles_.size());
  const std::uint32_t found = bundle_index_.find_or_insert(key >> 1, fresh);
  if (found == fresh) {
    auto& resources = bundles_.emplace_back();
    for (const Use& use : uses) resources.push_back(use.resource);
  }
  return found;
}

std::uint32_t Ways::own_server() {
  resources_.push_back(kNoServer);
  return server_count() - 1;
}

Picoseconds Ways::phase() const { return to_picoseconds(model_.lane_us); }

Picoseconds Ways::alone(double bytes) const {
  return static_cast<Picoseconds>(std::llround(bytes * per_byte(model_.lane_gigabytes_per_second)));
}

// Those with a resource get its number for now.
void Ways::open_processors() {
  FlatMap own;
  of_resource_.assign(model_.resources.size(), kNoServer);
  for (std::uint32_t actor = 0; actor < instances_.actor_count(); ++actor) {
    const std::uint32_t order = actor / instances_.listed_count() / instances_.images;
    const Rank at = instances_.place(order, instances_.rank_of(actor));
    if (model_.compute) {
      const Use use = model_.compute(at);
      const double rate = model_.resources[use.resource].gigabytes_per_second;
      std::uint32_t& server = of_resource_[use.resource];
      if (server == kNoServer) {
        server = own_server();
        resources_[server] = use.resource;
      }
      processors_.push_back({server, model_.step_us * 1e6 * use.share, per_byte(rate) * use.share});
      continue;
    }
    const std::uint32_t fresh = server_count();
    const std::uint32_t server = own.find_or_insert(static_cast<std::uint64_t>(at.value), fresh);
    if (server == fresh) own_server();
    processors_.push_back(
        {server, model_.step_us * 1e6, per_byte(model_.reduce_gigabytes_per_second)});
  }
}

// Resources that are in the same bundles are one server. Those that join have a server each, as
// what they do is not told by their ways alone; so have those that some rank computes with.
void Ways::give_servers() {
  std::vector<std::uint64_t> within(model_.resources.size());
  for (std::size_t i = 0; i < bundles_.size(); ++i) {
    for (const std::uint32_t resource : bundles_[i]) within[resource] += mix(i + 1);
  }
  FlatMap alike;
  const auto give = [&](std::uint32_t resource) {
    if (of_resource_[resource] != kNoServer) return;
    std::uint32_t server = server_count();
    if (model_.resources[resource].joins == Resource::Joins::kNothing)
      server = alike.find_or_insert(within[resource] >> 1, server);
    if (server == server_count()) {
      own_server();
      resources_[server] = resource;
    }
    of_resource_[resource] = server;
  };
  for (std::uint32_t resource = 0; resource < model_.resources.size(); ++resource) {
    if (within[resource] == 0) continue;
    give(resource);
    const Resource& at = model_.resources[resource];
    if (at.joins != Resource::Joins::kNothing) give(at.mirror);
  }
  lead_to_servers();
}

// Legs over bundles become legs over servers.
void Ways::lead_to_servers() {
  FlatMap kinds;
  std::uint32_t kind_count = 0;
  const std::vector<Leg> old = std::exchange(legs_, {});
  for (Way& way : ways_) {
    const std::span<const Leg> over = std::span(old).subspan(way.first, way.count);
    way.first = static_cast<std::uint32_t>(legs_.size());
    for (Leg leg : over) {
      const std::uint64_t costs = mix(std::bit_cast<std::uint64_t>(leg.per_byte)) +
                                  std::bit_cast<std::uint64_t>(leg.per_message);
      leg.kind = kinds.find_or_insert(mix(costs) >> 1, kind_count);
      kind_count += leg.kind == kind_count ? 1 : 0;
      const std::uint32_t bundle = leg.server;
      if ((bundle & kOwn) != 0) {
        leg.server = bundle ^ kOwn;
        legs_.push_back(leg);
        continue;
      }
      for (const std::uint32_t resource : bundles_[bundle]) {
        leg.server = of_resource_[resource];
        // Once for all that it stands for.
        if (resources_[leg.server] == resource) legs_.push_back(leg);
      }
    }
    way.count = static_cast<std::uint32_t>(legs_.size()) - way.first;
  }
  bundles_ = {};
  bundle_index_ = {};
}

// One server stands for all over which a way is split: the first in number, not on the way, for
// each way may list them in an order of its own.
std::uint32_t Ways::joining_server(std::uint32_t channel, Resource::Joins kind) const {
  std::uint32_t first = kNoServer;
  for (const Leg& leg : legs(of_channel_[channel])) {
    if (joins(leg.server) && resource(leg.server)->joins == kind)
      first = std::min(first, leg.server);
  }
  return first;
}

// What a step sends over one server counts as joined there; what a step adds up likewise, unless it
// was joined where it was sent. Which of its slots a channel brings to a step is fixed by order.
void Ways::find_joins() {
  using Joins = Resource::Joins;
  std::vector<std::vector<std::int32_t>> added(instances_.channel_count());  // In order of reading.
  joined_.resize(instances_.actor_count());
  const auto for_each_step = [&](auto visit) {
    for (std::uint32_t actor = 0; actor < instances_.actor_count(); ++actor) {
      const Lane& lane = instances_.lane_of(actor);
      joined_[actor].resize(lane.locations.size());
      for (const Step& step : lane.steps) visit(actor, lane, instances_.traffic_of(actor), step);
    }
  };
  std::map<std::uint32_t, int> together;
  for_each_step(
      [&](std::uint32_t actor, const Lane&, const LaneTraffic& channels, const Step& step) {
        together.clear();
        std::vector<std::uint32_t> sources;
        for (std::uint32_t i = 0; i < step.source_count; ++i) {
          const std::uint32_t channel = channels.of_location[step.first + i];
          if (channel != kNoChannel)
            sources.push_back(instances_.read_from(actor / instances_.listed_count(), channel));
        }
        for (const std::uint32_t source : sources)
          ++together[joining_server(source, Joins::kReduce)];
        for (const std::uint32_t source : sources) {
          const std::uint32_t server = joining_server(source, Joins::kReduce);
          added[source].push_back(server == kNoServer ? 1 : together[server]);
        }
      });
  std::vector<std::size_t> sent(instances_.channel_count());
  for_each_step(
      [&](std::uint32_t actor, const Lane& lane, const LaneTraffic& channels, const Step& step) {
        together.clear();
        const std::size_t first = std::size_t{step.first} + step.source_count, end = step.end();
        const auto for_each_channel = [&](std::size_t at, auto visit) {
          if (channels.of_location[at] == kNoChannel) return;
          for (std::uint32_t k = 0; k < instances_.traffic.width(lane.locations[at]); ++k) {
            const std::uint32_t channel =
                instances_.sent_on(actor / instances_.listed_count(), channels.of_location[at] + k);
            if (!instances_.is_own(channel)) visit(channel);
          }
        };
        for (std::size_t at = first; at < end; ++at) {
          for_each_channel(at, [&](std::uint32_t channel) {
            ++together[joining_server(channel, Joins::kMulticast)];
          });
        }
        for (std::size_t at = first; at < end; ++at) {
          for_each_channel(at, [&](std::uint32_t channel) {
            const std::uint32_t server = joining_server(channel, Joins::kMulticast);
            const int copies = server == kNoServer ? 1 : together[server];
            const std::size_t number = sent[channel]++;
            const int terms = number < added[channel].size() ? added[channel][number] : 1;
            joined_[actor][at] = copies > 1 ? copies : terms > 1 ? -terms : 0;
          });
        }
      });
}

}  // namespace tutti::plan
