#include "plan/estimate/classes.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <tuple>

#include "base/check.h"
#include "base/hash.h"
#include "plan/estimate/refine.h"

namespace tutti::plan {
namespace {

std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }

// What an actor does, and what is done on a channel at both its ends, as far as it is told without
// looking at others.
struct Labels {
  std::vector<std::uint64_t> actors, channels;
};

// Labels of the plan's actors and channels on one order.
class Labelling {
 public:
  Labelling(const Instances& instances, std::uint32_t lanes, const PieceKinds& kinds)
      : instances_(instances), lanes_(lanes), kinds_(kinds) {}

  Labels of_order(std::uint32_t order) const {
    Labels labels{{}, std::vector<std::uint64_t>(instances_.channels_each())};
    for (std::uint32_t i = 0; i < instances_.listed_count(); ++i) {
      const auto [rank, number] = instances_.listed[i];
      const LaneTraffic& traffic = instances_.traffic.lanes[rank][number];
      const Lane& lane = instances_.plan.ranks[rank].lanes[number];
      std::uint64_t label = mix(number);  // Lanes take turns.
      std::uint64_t ordinal = 0;          // Counts steps in which there is something to do.
      for (std::size_t at = 0; at < lane.steps.size(); ++at) {
        const Step& step = lane.steps[at];
        const std::uint64_t pieces = pieces_of(step, order);
        if (pieces == 0) continue;
        ++ordinal;
        std::uint64_t bytes = 0;
        if (step.kind == StepKind::kMove) {
          bytes = add_locations(lane, step, traffic, ordinal, labels);
        } else {
          const bool sends = step.kind == StepKind::kSignal;
          labels.channels[traffic.of_step[at]] += mix(4 * ordinal + (sends ? 2 : 3));
        }
        label = mix(label + pieces) ^ mix(8 * bytes + static_cast<std::uint64_t>(step.kind));
      }
      labels.actors.push_back(label);
    }
    return labels;
  }

 private:
  // The sizes of a step's chunk in all lanes on the order; 0: nothing.
  std::uint64_t pieces_of(const Step& step, std::uint32_t order) const {
    if (kinds_.empty() || step.kind != StepKind::kMove) return 1;
    const std::size_t copies = std::size_t{lanes_} * instances_.orders;
    const std::size_t first = step.chunk % instances_.plan.pieces * copies + order;
    std::uint64_t hash = 0;
    bool any = false;
    for (std::size_t at = first; at < first + copies; at += instances_.orders) {
      hash = mix(hash + kinds_[at]);
      any = any || kinds_[at] != 0;
    }
    return any ? hash | 1 : 0;
  }
  // Bytes of an element, of all locations together.
  std::uint64_t add_locations(const Lane& lane, const Step& step, const LaneTraffic& traffic,
                              std::uint64_t ordinal, Labels& labels) const {
    std::uint64_t all = 0;
    for (std::uint32_t at = step.first; at < step.end(); ++at) {
      // The same for any type: forms tell sizes apart.
      const std::uint64_t bytes = lane.locations[at].form == Form::kPartial ? 2 : 1;
      all += bytes;
      const std::uint32_t channel = traffic.of_location[at];
      if (channel == kNoChannel) continue;
      const bool sends = at >= step.first + step.source_count;
      labels.channels[channel] += mix(mix(4 * ordinal + (sends ? 0 : 1)) + (sends ? bytes : 0));
    }
    return all;
  }

  const Instances& instances_;
  const std::uint32_t lanes_;
  const PieceKinds& kinds_;
};

// The labels of all nodes (refine.h).
std::vector<std::uint64_t> labels_of(const Instances& instances, const Ways& ways,
                                     std::uint32_t lanes, const PieceKinds& kinds) {
  std::vector<std::uint64_t> all;
  all.reserve(std::size_t{instances.actor_count()} + instances.channel_count() +
              ways.server_count());
  std::vector<Labels> by_order;
  for (std::uint32_t order = 0; order < (kinds.empty() ? 1 : instances.orders); ++order)
    by_order.push_back(Labelling(instances, lanes, kinds).of_order(order));
  const auto of_instance = [&](std::uint32_t instance) -> const Labels& {
    return by_order[kinds.empty() ? 0 : instance / instances.images];
  };
  for (std::uint32_t actor = 0; actor < instances.actor_count(); ++actor) {
    const Processor& at = ways.processor(actor);
    std::uint64_t label =
        of_instance(actor / instances.listed_count()).actors[actor % instances.listed_count()];
    for (const std::int32_t joined : ways.joined(actor))
      label = mix(label + static_cast<std::uint32_t>(joined));
    // Which steps are one phase depends on chunks, of which the label says nothing.
    if (!instances.phases.empty()) {
      for (const std::uint8_t length : instances.phases[actor % instances.listed_count()])
        label = mix(label + length);
    }
    all.push_back(mix(label + bits(at.step)) + bits(at.per_byte));
  }
  for (std::uint32_t channel = 0; channel < instances.channel_count(); ++channel) {
    const std::uint32_t listed = channel % instances.channels_each();
    std::uint64_t label = of_instance(channel / instances.channels_each()).channels[listed];
    label = mix(label + (instances.traffic.channels[listed].is_signal ? 1 : 0));
    label = mix(label + static_cast<std::uint64_t>(ways.latency(ways.of_channel(channel))));
    all.push_back(mix(label + static_cast<std::uint64_t>(ways.way_back(channel))));
  }
  for (std::uint32_t actor = 0; actor < instances.actor_count(); ++actor) {
    const std::span<const std::int32_t> joined = ways.joined(actor);
    const LaneTraffic& traffic = instances.traffic_of(actor);
    for (std::size_t at = 0; at < joined.size(); ++at) {
      if (joined[at] == 0) continue;
      const std::uint32_t channel =
          instances.sent_on(actor / instances.listed_count(), traffic.of_location[at]);
      all[instances.actor_count() + channel] +=
          mix(mix(at) + static_cast<std::uint32_t>(joined[at]));
    }
  }
  for (std::uint32_t server = 0; server < ways.server_count(); ++server) {
    std::uint64_t label = 0;
    if (ways.joins(server)) {
      const Resource& at = *ways.resource(server);
      label = mix(static_cast<std::uint64_t>(at.joins) + bits(at.join_efficiency));
    }
    all.push_back(label);
  }
  return all;
}

// Makes a set of representatives of a partition.
class Casting {
 public:
  Casting(const Instances& instances, const Ways& ways, const Partition& alike)
      : instances_(instances), ways_(ways), alike_(alike) {}

  Representatives representatives() {
    representatives_.of_channel = alike_.channels.of;
    representatives_.of_server = alike_.servers.of;
    for (const std::uint32_t server : alike_.servers.first) {
      Representatives::Server& at = representatives_.servers.emplace_back();
      if (!ways_.joins(server)) continue;
      at = {ways_.resource(server)->joins, ways_.resource(server)->join_efficiency,
            alike_.servers.of[ways_.mirror(server)]};
    }
    for (std::uint32_t i = 0; i < alike_.channels.first.size(); ++i) add_channel(i);
    sent_.resize(representatives_.channels.size());
    taken_.resize(representatives_.channels.size());
    for (std::uint32_t i = 0; i < alike_.actors.first.size(); ++i) add_actor(i);
    return std::move(representatives_);
  }

 private:
  static std::uint32_t divided(std::uint64_t all, std::uint32_t among) {
    TUTTI_CHECK(all % among == 0 && "of a class, each server gets as much");
    return static_cast<std::uint32_t>(all / among);
  }

  void add_channel(std::uint32_t number) {
    const std::uint32_t channel = alike_.channels.first[number];
    Representatives::Channel at{
        .writer = alike_.actors.of[instances_.writer(channel)],
        .reader = alike_.actors.of[instances_.reader(channel)],
        .latency = ways_.latency(ways_.of_channel(channel)),
        .back = ways_.way_back(channel),
        .first = static_cast<std::uint32_t>(representatives_.loads.size()),
        .is_signal = instances_.traffic.channels[channel % instances_.channels_each()].is_signal,
        .is_own = instances_.is_own(channel)};
    legs_.clear();
    if (!at.is_own) {
      for (const Leg& leg : ways_.legs(ways_.of_channel(channel)))
        legs_.emplace_back(alike_.servers.of[leg.server], leg.per_byte, leg.per_message);
    }
    std::sort(legs_.begin(), legs_.end());
    for (std::size_t i = 0, end = 0; i < legs_.size(); i = end) {
      while (end < legs_.size() && legs_[end] == legs_[i]) ++end;
      const auto [server, per_byte, per_message] = legs_[i];
      const std::uint32_t weight = divided(std::uint64_t{alike_.channels.size[number]} * (end - i),
                                           alike_.servers.size[server]);
      representatives_.loads.push_back({server, weight, per_byte, per_message});
    }
    at.count = static_cast<std::uint32_t>(representatives_.loads.size()) - at.first;
    representatives_.channels.push_back(at);
  }

  void add_actor(std::uint32_t number) {
    const std::uint32_t actor = alike_.actors.first[number];
    const std::uint32_t instance = actor / instances_.listed_count();
    const Lane& lane = instances_.lane_of(actor);
    const LaneTraffic& traffic = instances_.traffic_of(actor);
    Processor processor = ways_.processor(actor);
    processor.server = alike_.servers.of[processor.server];
    Representatives::Actor at{
        .actor = actor,
        .rank = instances_.rank_of(actor),
        .lane = instances_.listed[actor % instances_.listed_count()].lane,
        .order = instance / instances_.images,
        .steps = lane.steps,
        .locations = lane.locations.data(),
        .of_location = traffic.of_location,
        .of_step = traffic.of_step,
        .joined = ways_.joined(actor).data(),
        .processor = processor,
        .weight = divided(alike_.actors.size[number], alike_.servers.size[processor.server])};
    const auto choose = [&](std::uint32_t& channel, bool sends) {
      if (channel == kNoChannel) return;
      const std::uint32_t own =
          sends ? instances_.sent_on(instance, channel) : instances_.read_from(instance, channel);
      channel = alike_.channels.of[own];
      Chosen& chosen = (sends ? sent_ : taken_)[channel];
      if (chosen.actor != number) chosen = {number, own};
      if (chosen.channel != own) channel = kNoChannel;
    };
    for (std::size_t i = 0; i < lane.steps.size(); ++i) {
      const Step& step = lane.steps[i];
      if (step.kind != StepKind::kMove) choose(at.of_step[i], step.kind == StepKind::kSignal);
      for (std::uint32_t k = step.first; k < step.end(); ++k)
        choose(at.of_location[k], k >= step.first + step.source_count);
    }
    representatives_.actors.push_back(std::move(at));
  }

  // The channel that stands for all of an actor's channels of one class.
  struct Chosen {
    std::uint32_t actor = kNoChannel, channel = 0;
  };
  const Instances& instances_;
  const Ways& ways_;
  const Partition& alike_;
  Representatives representatives_;
  std::vector<Chosen> sent_, taken_;  // By class of channels.
  std::vector<std::tuple<std::uint32_t, double, double>> legs_;
};

}  // namespace

Representatives all_of(const Instances& instances, const Ways& ways) {
  return Casting(instances, ways, nobody_alike(instances, ways)).representatives();
}

Representatives one_of_each(const Instances& instances, const Ways& ways, std::uint32_t lanes,
                            const PieceKinds& kinds) {
  return Casting(instances, ways, refine(instances, ways, labels_of(instances, ways, lanes, kinds)))
      .representatives();
}

}  // namespace tutti::plan
