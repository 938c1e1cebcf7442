// File: plan/estimate/classes.h: which parts of a simulation are alike, so that one of them can be
// simulated for all. Exact: no time differs.
//
// Actors, channels and servers are in classes such that those of one class can't be told apart by
// what is around them: actors do the same steps, on channels of the same classes in the same steps;
// a channel's writer, reader and way are of the same classes; the channels and actors that give
// work to a server are as many of each class. Parts alike at the start stay alike: at every
// moment all of a class do the same, and a server is given a multiple of what one of them gives
// (the coarsest equitable partition, by refinement of colours: P. Berkholz, P. Bonsma, M. Grohe:
// Tight lower and upper bounds for the complexity of canonical colour refinement, 2017).
//
// Neighbourhoods are compared by 64-bit hashes. That channels and actors of a class divide evenly
// among its servers, as then they must, is checked.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "plan/estimate/instances.h"

namespace tutti::plan {

/// By piece, in all lanes of a message: a number that stands for its size, 0 if there is nothing in
/// it. Empty: all pieces are alike.
using PieceKinds = std::vector<std::uint32_t>;

/// The simulated parts: one of each class.
struct Representatives {
  struct Actor {
    std::uint32_t actor = 0;  // That of the instances that are simulated.
    std::uint32_t rank = 0, lane = 0, order = 0;
    std::span<const Step> steps;
    const Location* locations = nullptr;
    // As LaneTraffic's, but kNoChannel also where a location's channel is like another of its step.
    std::vector<std::uint32_t> of_location, of_step;
    const std::int32_t* joined = nullptr;  // By location; null: nothing is.
    Processor processor;
    std::uint32_t weight = 1;  // So many of the class are on one server.
  };
  struct Load {
    std::uint32_t server = 0, weight = 1;
    double per_byte = 0, per_message = 0;
  };
  struct Channel {
    std::uint32_t writer = 0, reader = 0;
    Picoseconds latency = 0, back = 0;
    std::uint32_t first = 0, count = 0;  // Loads.
    bool is_signal = false, is_own = false;
  };
  std::vector<Actor> actors;
  std::vector<Channel> channels;
  std::vector<Load> loads;
  struct Server {
    Resource::Joins joins = Resource::Joins::kNothing;
    double join_efficiency = 1;
    std::uint32_t mirror = 0;
  };
  std::vector<Server> servers;
  // Classes of the instances.
  std::vector<std::uint32_t> of_channel, of_server;

  std::span<const Load> loads_of(std::uint32_t channel) const {
    return std::span(loads).subspan(channels[channel].first, channels[channel].count);
  }
};

/// Every one by itself.
Representatives all_of(const Instances& instances, const Ways& ways);
/// One of each class; `lanes`: on each order. Plans in which no rank uses a peer's memory or a
/// multicast ring.
Representatives one_of_each(const Instances& instances, const Ways& ways, std::uint32_t lanes,
                            const PieceKinds& kinds);

}  // namespace tutti::plan
