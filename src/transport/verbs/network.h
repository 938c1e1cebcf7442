// File: transport/verbs/network.h: the links of a rank as a network that carries frames.
#pragma once
#include <chrono>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "transport/net/network.h"
#include "transport/verbs/link.h"

namespace tutti::verbs {

/// What a rank's links have in common. Outlives them, and is removed in the opposite order.
struct Resources {
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> record_memory;  // On pages of its own.
  std::size_t record_bytes = 0;
  std::unique_ptr<Device> device;
  Memory near, image, records;
};

class VerbsNetwork final : public net::Network {
 public:
  /// By rank those with it; null: it is not joined by this network.
  VerbsNetwork(std::unique_ptr<Resources> resources, std::vector<std::unique_ptr<Link>> links);

  net::Carrier* carrier(int rank) override { return link(rank); }
  void look(std::vector<bool>& ready) override;
  void sleep(std::chrono::nanoseconds longest) override;
  void wake() override;
  void forget(int rank) override;

  Link* link(int rank) const { return links_[static_cast<std::size_t>(rank)].get(); }
  /// Each peer answers over each queue pair, or the error says which does not.
  Status try_all(std::chrono::steady_clock::time_point end);

 private:
  using Clock = std::chrono::steady_clock;

  void tick(Clock::time_point now);

  std::unique_ptr<Resources> resources_;
  std::vector<std::unique_ptr<Link>> links_;  // By rank.
  std::vector<bool> forgotten_;
  Fd alarm_;  // An eventfd: wakes whoever sleeps.
  std::uint32_t looks_ = 0;
  Clock::time_point next_tick_;
};

}  // namespace tutti::verbs
