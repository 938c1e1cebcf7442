#include "transport/verbs/network.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <system_error>
#include <thread>
#include <utility>

#include "transport/net/rails.h"

namespace tutti::verbs {
namespace {

// How often signs of life are looked for; the clock is read once in so many looks.
constexpr std::chrono::milliseconds kTick{100};
constexpr std::uint32_t kLooksPerClock = 1024;
constexpr std::chrono::microseconds kBetweenLooks{200};  // While joining.

}  // namespace

VerbsNetwork::VerbsNetwork(std::vector<Rail> rails, std::size_t spread_bytes, NicsUsed nics,
                           const RenewalTimes& times)
    : nics_(std::move(nics)),
      carriers_(rails.front().links.size()),
      forgotten_(carriers_.size()),
      next_tick_(Clock::now() + kTick) {
  for (Rail& rail : rails) {
    Used& used = rails_.emplace_back();
    used.resources = std::move(rail.resources);
    for (const auto& link : rail.links) used.links.push_back(link.get());
  }
  for (std::size_t rank = 0; rank < carriers_.size(); ++rank) {
    std::vector<std::unique_ptr<net::Carrier>> links;
    for (Rail& rail : rails) {
      if (rail.links[rank] != nullptr) links.push_back(std::move(rail.links[rank]));
    }
    if (links.size() > 1)
      carriers_[rank] = std::make_unique<net::Rails>(std::move(links), spread_bytes, nics_.own,
                                                     renewal_of(rank, times));
    else if (!links.empty())
      carriers_[rank] = std::move(links.front());
  }
}

Result<std::unique_ptr<VerbsNetwork>> VerbsNetwork::open(std::vector<Rail> rails,
                                                         std::size_t spread_bytes, NicsUsed nics,
                                                         const RenewalTimes& times) {
  std::unique_ptr<VerbsNetwork> network(
      new VerbsNetwork(std::move(rails), spread_bytes, std::move(nics), times));
  network->alarm_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (network->alarm_) return network;
  return Error{Code::kSystem, "verbs: eventfd: " + std::generic_category().message(errno) +
                                  "; raise the limit of open files (ulimit -n) if that is it"};
}

std::unique_ptr<net::Renewal> VerbsNetwork::renewal_of(std::size_t rank,
                                                       const RenewalTimes& times) {
  std::vector<Renewal::Rail> rails;
  for (const Used& rail : rails_) rails.push_back({rail.resources->device.get(), rail.links[rank]});
  const auto taken = [this, rank](std::size_t rail, Link& link) {
    rails_[rail].links[rank] = &link;
    rails_[rail].lost = false;
  };
  return std::make_unique<Renewal>(rails, taken, times);
}

void VerbsNetwork::tick(Clock::time_point now) {
  if (now < next_tick_) return;
  next_tick_ = now + kTick;
  due_ = rails_.size() > 1;
  for (Used& rail : rails_) {
    if (rail.lost) continue;
    rail.resources->device->take_events();
    bool lost = true;
    for (Link* const link : rail.links) {
      if (link == nullptr) continue;
      link->tick(now);
      lost = lost && link->abandoned();
    }
    rail.lost = lost && rails_.size() > 1;
  }
}

void VerbsNetwork::look(std::vector<bool>& ready) {
  if (++looks_ % kLooksPerClock == 0) tick(Clock::now());
  for (const Used& rail : rails_) {
    if (rail.lost) continue;
    rail.resources->device->poll();
    for (std::size_t rank = 0; rank < rail.links.size(); ++rank) {
      const Link* const link = rail.links[rank];
      if (link != nullptr && !forgotten_[rank] && link->ready()) ready[rank] = true;
    }
  }
  // Rails have to look for what does not come.
  if (!std::exchange(due_, false)) return;
  for (std::size_t rank = 0; rank < carriers_.size(); ++rank) {
    if (carriers_[rank] != nullptr && !forgotten_[rank]) ready[rank] = true;
  }
}

void VerbsNetwork::sleep(std::chrono::nanoseconds longest) {
  bool ready = false;
  std::vector<pollfd> sources{{alarm_.get(), POLLIN, 0}};
  for (const Used& rail : rails_) {
    if (rail.lost) continue;
    Device& device = *rail.resources->device;
    device.arm();
    ready = ready || std::any_of(rail.links.begin(), rail.links.end(), [](const Link* link) {
              return link != nullptr && !link->failure() && link->ready();
            });
    // Completions from before the queue was armed would not be reported.
    ready = device.poll() || ready;
    sources.push_back({device.descriptor(), POLLIN, 0});
    sources.push_back({device.event_descriptor(), POLLIN, 0});
  }
  if (ready) return;
  const auto span_ns = std::min<std::chrono::nanoseconds>(longest, kTick);
  const timespec span{0, static_cast<long>(span_ns.count())};
  ::ppoll(sources.data(), sources.size(), &span, nullptr);
  if (std::uint64_t count = 0; (sources[0].revents & POLLIN) != 0)
    (void)!::read(alarm_.get(), &count, sizeof(count));
  auto at = sources.begin() + 1;
  for (const Used& rail : rails_) {
    if (rail.lost) continue;
    if (((at++)->revents & POLLIN) != 0) rail.resources->device->take_notice();
    if (((at++)->revents & POLLIN) != 0) rail.resources->device->take_events();
  }
  tick(Clock::now());
}

void VerbsNetwork::wake() {
  const std::uint64_t one = 1;
  (void)!::write(alarm_.get(), &one, sizeof(one));
}

void VerbsNetwork::forget(int rank) {
  forgotten_[static_cast<std::size_t>(rank)] = true;
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) link(rank, rail)->give_up();
}

Status try_all(const Rail& rail, std::chrono::steady_clock::time_point end) {
  using Clock = std::chrono::steady_clock;
  for (const auto& link : rail.links) {
    if (link != nullptr) link->probe(Clock::now());
  }
  for (;;) {
    rail.resources->device->poll();
    rail.resources->device->take_events();
    bool all = true;
    for (const auto& link : rail.links) {
      if (link == nullptr) continue;
      if (link->failure()) return *link->failure();
      all = all && !link->probing();
      if (link->probing() && Clock::now() >= end) {
        return Error{Code::kTimeout, link->where() +
                                         ": no answer while joining; do packets of "
                                         "RDMA get there? TUTTI_TRANSPORT=tcp does "
                                         "without"};
      }
    }
    if (all) return ok();
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace tutti::verbs
