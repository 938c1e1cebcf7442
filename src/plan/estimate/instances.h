// File: plan/estimate/instances.h: all that takes part in a simulation, before classes.h finds
// which are alike: actors, channels, the ways they take, the servers on these.
//
// An actor is a lane of a rank on one rank order. A plan that lists s ranks of n has n / s images
// of each, shifted by multiples of s (estimate.h). An instance is an image on an order; all actors
// and channels of the plan are there once in each, numbered instance by instance.
//
// Servers are resources, or what two ranks or a rank have alone. Resources that every way uses
// together, such as the links of a leaf switch to all spines, always do the same: they are one
// server.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "plan/estimate/parts.h"

namespace tutti::plan {

inline constexpr std::uint32_t kNoServer = ~std::uint32_t{0};

class Instances {
 public:
  Instances(const Plan& plan, const CostModel& model);

  const Plan& plan;
  const Traffic traffic;
  const std::uint32_t orders, images;
  const bool sees_slots;
  /// The plan's actors, one after the other: rank and lane; and the first of each rank.
  struct Listed {
    std::uint32_t rank = 0, lane = 0;
  };
  std::vector<Listed> listed;
  std::vector<std::uint32_t> first;
  /// By listed actor and step: how many steps from it on may be one phase. Empty: steps take a lane
  /// no time, so it does not matter.
  std::vector<std::vector<std::uint8_t>> phases;
  bool maps = false;           // Some rank reads or writes a peer's memory,
  bool shares_memory = false;  // or that of a multicast ring.

  std::uint32_t instance_count() const { return orders * images; }
  std::uint32_t actor_count() const { return instance_count() * listed_count(); }
  std::uint32_t channel_count() const { return instance_count() * channels_each(); }
  std::uint32_t listed_count() const { return static_cast<std::uint32_t>(listed.size()); }
  std::uint32_t channels_each() const {
    return static_cast<std::uint32_t>(traffic.channels.size());
  }

  /// The actor that sends on a channel, and the one that reads from it.
  std::uint32_t writer(std::uint32_t channel) const;
  std::uint32_t reader(std::uint32_t channel) const;
  /// The channel of an actor's instance that is the plan's `channel`, sent on or read from.
  std::uint32_t sent_on(std::uint32_t instance, std::uint32_t channel) const {
    return instance * channels_each() + channel;
  }
  std::uint32_t read_from(std::uint32_t instance, std::uint32_t channel) const;
  /// A multicast ring's channel to its own writer: no rank reads it.
  bool is_own(std::uint32_t channel) const {
    return traffic.channels[channel % channels_each()].distance == 0;
  }
  /// An actor's rank: among all, not among those listed.
  std::uint32_t rank_of(std::uint32_t actor) const;
  Rank place(std::uint32_t order, std::uint32_t rank) const;
  const LaneTraffic& traffic_of(std::uint32_t actor) const {
    const Listed& at = listed[actor % listed_count()];
    return traffic.lanes[at.rank][at.lane];
  }
  const Lane& lane_of(std::uint32_t actor) const {
    const Listed& at = listed[actor % listed_count()];
    return plan.ranks[at.rank].lanes[at.lane];
  }

 private:
  const CostModel& model_;
};

/// The cost of a message to a server on its path, in picoseconds.
struct Leg {
  std::uint32_t server = 0;
  std::uint32_t kind = 0;  // The same for legs that cost as much.
  double per_byte = 0, per_message = 0;
};
/// The cost of a step to the server that it computes with, in picoseconds.
struct Processor {
  std::uint32_t server = 0;
  double step = 0, per_byte = 0;
};

/// The ways of all channels, and of what is done in peers' memory.
/// It has more than 20 functions: most are one-line views of one table.
class Ways {
 public:
  Ways(const Instances& instances, const CostModel& model);

  std::size_t count() const { return ways_.size(); }
  std::uint32_t of_channel(std::uint32_t channel) const { return of_channel_[channel]; }
  /// The way from a rank to another on an order; one of them has mapped the other's memory.
  std::uint32_t of_mapped(std::uint32_t order, std::uint32_t from, std::uint32_t to) {
    return open(instances_.place(order, from), instances_.place(order, to), false);
  }
  Picoseconds latency(std::uint32_t way) const { return ways_[way].latency; }
  std::span<const Leg> legs(std::uint32_t way) const {
    return std::span(legs_).subspan(ways_[way].first, ways_[way].count);
  }
  /// Until the news of room is there.
  Picoseconds way_back(std::uint32_t channel) const { return back_[channel]; }
  const Processor& processor(std::uint32_t actor) const { return processors_[actor]; }
  /// What a phase of a lane takes it by itself, and so many bytes of it.
  Picoseconds phase() const;
  Picoseconds alone(double bytes) const;

  std::uint32_t server_count() const { return static_cast<std::uint32_t>(resources_.size()); }
  /// By resource; kNoServer: no actor uses it.
  const std::vector<std::uint32_t>& servers() const { return of_resource_; }
  /// The resource that a server stands for; null: one that two ranks or a rank have alone.
  const Resource* resource(std::uint32_t server) const {
    const std::uint32_t at = resources_[server];
    return at == kNoServer ? nullptr : &model_.resources[at];
  }
  bool joins(std::uint32_t server) const {
    return resource(server) != nullptr && resource(server)->joins != Resource::Joins::kNothing;
  }
  /// The other direction of a server that joins.
  std::uint32_t mirror(std::uint32_t server) const {
    return of_resource_[resource(server)->mirror];
  }

  /// By location of an actor: what is sent from there is joined by switches: with k - 1 others that
  /// are sent by the same step (k), or that the receiving step adds up (-k); 0: not. Empty: nothing
  /// joins.
  std::span<const std::int32_t> joined(std::uint32_t actor) const {
    return joined_.empty() ? std::span<const std::int32_t>() : joined_[actor];
  }

 private:
  struct Way {
    Picoseconds latency = 0;
    std::uint32_t first = 0, count = 0;  // Legs.
  };
  std::uint32_t open(Rank from, Rank to, bool latency_only);
  Way make(Rank from, Rank to, bool latency_only);
  std::uint32_t bundle_of(std::span<const Use> uses);
  void open_channels();
  void open_mapped();
  void open_latencies();
  std::pair<Rank, Rank> ends(std::uint32_t channel) const;
  void open_processors();
  std::uint32_t own_server();
  void give_servers();
  void lead_to_servers();
  void find_joins();
  std::uint32_t joining_server(std::uint32_t channel, Resource::Joins kind) const;

  const Instances& instances_;
  const CostModel& model_;
  std::vector<Way> ways_;
  std::vector<Leg> legs_;
  FlatMap index_;  // Ways by places.
  std::vector<std::uint32_t> of_channel_;
  std::vector<Picoseconds> back_;
  std::vector<Processor> processors_;       // By actor.
  std::vector<std::uint32_t> of_resource_;  // Servers.
  std::vector<std::uint32_t> resources_;    // By server: the first that it stands for.
  std::vector<std::vector<std::int32_t>> joined_;
  // While ways are made, legs are over bundles: resources that stand side by side on a way.
  FlatMap bundle_index_;
  std::vector<std::vector<std::uint32_t>> bundles_;
};

}  // namespace tutti::plan
