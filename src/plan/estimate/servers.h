// File: plan/estimate/servers.h: the servers of a simulation at work.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "plan/estimate/classes.h"

namespace tutti::plan {

class Servers {
 public:
  Servers(const Instances& instances, const Ways& ways, const Representatives& representatives)
      : instances_(instances),
        ways_(ways),
        representatives_(representatives),
        servers_(representatives.servers.size()),
        sent_(representatives.channels.size()),
        mapped_(instances.maps ? ways.count() : 0) {}

  /// Gives a message to all servers on a channel's way, from `now` on.
  void carry(std::uint32_t channel, Picoseconds now, double bytes, int joined) {
    sent_[channel] += bytes;
    for (const Representatives::Load& load : representatives_.loads_of(channel)) {
      const Representatives::Server& at = representatives_.servers[load.server];
      if (joined == 0 || at.joins == Joins::kNothing) {
        work(load.server, now, load.weight * rounded(bytes * load.per_byte + load.per_message));
        continue;
      }
      const double time = load.per_message + bytes * load.per_byte / at.join_efficiency;
      const bool here = at.joins == (joined > 0 ? Joins::kMulticast : Joins::kReduce);
      const Picoseconds amount = load.weight * rounded(here ? time / std::abs(joined) : time);
      work(load.server, now, amount);
      if (here) work(at.mirror, now, amount);
    }
  }

  /// When they have worked off all they were given.
  Picoseconds done(std::uint32_t channel, Picoseconds now, int joined) const {
    Picoseconds end = now;
    for (const Representatives::Load& load : representatives_.loads_of(channel)) {
      end = std::max(end, servers_[load.server].until);
      const Representatives::Server& at = representatives_.servers[load.server];
      if (joined != 0 && at.joins == (joined > 0 ? Joins::kMulticast : Joins::kReduce))
        end = std::max(end, servers_[at.mirror].until);
    }
    return end;
  }

  /// The same for what is read from a peer's memory or written there. All are simulated, where
  /// there are such.
  void carry_mapped(std::uint32_t way, Picoseconds now, double bytes) {
    mapped_[way] += bytes;
    for (const Leg& leg : ways_.legs(way))
      work(leg.server, now, rounded(bytes * leg.per_byte + leg.per_message));
  }
  Picoseconds done_mapped(std::uint32_t way, Picoseconds now) const {
    Picoseconds end = now;
    for (const Leg& leg : ways_.legs(way)) end = std::max(end, servers_[leg.server].until);
    return end;
  }

  /// The same for a step that moves so many bytes.
  void compute(const Representatives::Actor& actor, Picoseconds now, double bytes) {
    const Processor& at = actor.processor;
    work(at.server, now, actor.weight * rounded(at.step + bytes * at.per_byte));
  }
  Picoseconds computed(const Representatives::Actor& actor) const {
    return servers_[actor.processor.server].until;
  }

  /// When all will have worked off what was given to them so far: nothing ends before.
  Picoseconds latest() const { return latest_; }

  double bytes_on_busiest_link() const {
    std::vector<double> carried = mapped_;
    carried.resize(ways_.count());
    double most = 0;
    for (std::uint32_t channel = 0; channel < instances_.channel_count(); ++channel) {
      if (!instances_.is_own(channel))
        carried[ways_.of_channel(channel)] += sent_[representatives_.of_channel[channel]];
    }
    for (const double bytes : carried) most = std::max(most, bytes);
    return most;
  }

  /// By resource, how long it worked.
  std::vector<double> busy_us() const {
    std::vector<double> busy;
    for (const std::uint32_t server : ways_.servers())
      busy.push_back(
          server == kNoServer ? 0 : to_us(servers_[representatives_.of_server[server]].worked));
    return busy;
  }

 private:
  using Joins = Resource::Joins;

  static Picoseconds rounded(double time) { return static_cast<Picoseconds>(std::llround(time)); }

  struct Server {
    Picoseconds until = 0;  // Everything is worked off.
    Picoseconds worked = 0;
  };
  void work(std::uint32_t server, Picoseconds now, Picoseconds time) {
    Server& at = servers_[server];
    at.until = std::max(at.until, now) + time;
    at.worked += time;
    latest_ = std::max(latest_, at.until);
  }

  const Instances& instances_;
  const Ways& ways_;
  const Representatives& representatives_;
  std::vector<Server> servers_;
  Picoseconds latest_ = 0;
  std::vector<double> sent_;    // Bytes, by channel: on that which is simulated.
  std::vector<double> mapped_;  // By way.
};

}  // namespace tutti::plan
