// File: transport/verbs/network.h: the links of a rank, to each peer over one or several ports, as
// a network that carries frames.
#pragma once
#include <chrono>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "transport/net/network.h"
#include "transport/verbs/link.h"
#include "transport/verbs/renewal.h"

namespace tutti::verbs {

/// The common part of a rank's links over one port. Outlives them, and is removed in the opposite
/// order.
struct Resources {
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> record_memory;  // On pages of its own.
  std::size_t record_bytes = 0;
  std::unique_ptr<Device> device;
  Memory near, replica, records, gpudirect;
};

/// A port's links; by rank, null: it is not joined by this network.
struct Rail {
  std::unique_ptr<Resources> resources;
  std::vector<std::unique_ptr<Link>> links;
};

class VerbsNetwork final : public net::Network {
 public:
  /// At least one rail, all of the same ranks. Payloads from `spread_bytes` on are spread over
  /// them, the others go by nics.own. `nics`: of the rails. Lost ones are made anew at such times.
  static Result<std::unique_ptr<VerbsNetwork>> open(std::vector<Rail> rails,
                                                    std::size_t spread_bytes, NicsUsed nics,
                                                    const RenewalTimes& times = {});

  NicsUsed nics() const override { return nics_; }
  net::Carrier* carrier(int rank) override {
    return carriers_[static_cast<std::size_t>(rank)].get();
  }
  void look(std::vector<bool>& ready) override;
  void sleep(std::chrono::nanoseconds longest) override;
  void wake() override;
  void forget(int rank) override;

  std::size_t rail_count() const { return rails_.size(); }
  Link* link(int rank, std::size_t rail = 0) const {
    return rails_[rail].links[static_cast<std::size_t>(rank)];
  }

 private:
  VerbsNetwork(std::vector<Rail> rails, std::size_t spread_bytes, NicsUsed nics,
               const RenewalTimes& times);
  using Clock = std::chrono::steady_clock;

  struct Used {
    std::unique_ptr<Resources> resources;
    std::vector<Link*> links;  // By rank, of the carriers.
    bool lost = false;         // All of them are abandoned: nothing looks at it until one is not.
  };
  void tick(Clock::time_point now);
  std::unique_ptr<net::Renewal> renewal_of(std::size_t rank, const RenewalTimes& times);

  NicsUsed nics_;
  std::vector<Used> rails_;
  std::vector<std::unique_ptr<net::Carrier>> carriers_;  // By rank. They go before the rails.
  std::vector<bool> forgotten_;
  Fd alarm_;  // An eventfd: wakes a sleeping thread.
  std::uint32_t looks_ = 0;
  bool due_ = false;  // All carriers are to have a look.
  Clock::time_point next_tick_;
};

/// Each peer answers over each queue pair, or the error says which does not.
Status try_all(const Rail& rail, std::chrono::steady_clock::time_point end);

}  // namespace tutti::verbs
