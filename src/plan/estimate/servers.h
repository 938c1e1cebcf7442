// File: plan/estimate/servers.h: the servers of a simulation at work.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/estimate/classes.h"

namespace tutti::plan {

class Servers {
 public:
  Servers(const Instances& instances, const Ways& ways, const Representatives& representatives);

  /// Gives a message to all servers on a channel's way, from `now` on.
  void carry(std::uint32_t channel, Picoseconds now, double bytes, int joined);
  /// When they have worked off all they were given.
  Picoseconds done(std::uint32_t channel, Picoseconds now, int joined) const;
  /// The same for what is read from a peer's memory or written there.
  void carry_mapped(std::uint32_t way, Picoseconds now, double bytes);
  Picoseconds done_mapped(std::uint32_t way, Picoseconds now) const;
  /// The same for a step that moves so many bytes.
  void compute(const Representatives::Actor& actor, Picoseconds now, double bytes);
  Picoseconds computed(const Representatives::Actor& actor) const {
    return servers_[actor.processor.server].until;
  }

  double bytes_on_busiest_link() const;
  /// By resource, how long it worked.
  std::vector<double> busy_us() const;

 private:
  struct Server {
    Picoseconds until = 0;  // Everything is worked off.
    Picoseconds worked = 0;
    void work(Picoseconds now, Picoseconds time) {
      until = std::max(until, now) + time;
      worked += time;
    }
  };

  const Instances& instances_;
  const Ways& ways_;
  const Representatives& representatives_;
  std::vector<Server> servers_;
  std::vector<double> sent_;    // Bytes, by channel: on that which is simulated.
  std::vector<double> mapped_;  // By way.
};

}  // namespace tutti::plan
