#include "transport/verbs/network.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <ctime>

namespace tutti::verbs {
namespace {

// How often signs of life are looked for; the clock is read once in so many looks.
constexpr std::chrono::milliseconds kTick{100};
constexpr std::uint32_t kLooksPerClock = 1024;

}  // namespace

VerbsNetwork::VerbsNetwork(std::unique_ptr<Resources> resources,
                           std::vector<std::unique_ptr<Link>> links)
    : resources_(std::move(resources)),
      links_(std::move(links)),
      forgotten_(links_.size()),
      alarm_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      next_tick_(Clock::now() + kTick) {}

void VerbsNetwork::tick(Clock::time_point now) {
  if (now < next_tick_) return;
  next_tick_ = now + kTick;
  resources_->device->take_events();
  for (const auto& link : links_) {
    if (link != nullptr) link->tick(now);
  }
}

void VerbsNetwork::look(std::vector<bool>& ready) {
  resources_->device->poll();
  if (++looks_ % kLooksPerClock == 0) tick(Clock::now());
  for (std::size_t rank = 0; rank < links_.size(); ++rank) {
    const auto& link = links_[rank];
    if (link != nullptr && !forgotten_[rank] && link->ready()) ready[rank] = true;
  }
}

void VerbsNetwork::sleep(std::chrono::nanoseconds longest) {
  Device& device = *resources_->device;
  device.arm();
  const bool ready = std::any_of(links_.begin(), links_.end(), [](const auto& link) {
    return link != nullptr && !link->failure() && link->ready();
  });
  // What completed before the queue was armed would not be told.
  if (device.poll() || ready) return;
  std::array<pollfd, 3> sources{{{alarm_.get(), POLLIN, 0},
                                 {device.descriptor(), POLLIN, 0},
                                 {device.event_descriptor(), POLLIN, 0}}};
  const auto span_ns = std::min<std::chrono::nanoseconds>(longest, kTick);
  const timespec span{0, static_cast<long>(span_ns.count())};
  ::ppoll(sources.data(), sources.size(), &span, nullptr);
  if (std::uint64_t count = 0; (sources[0].revents & POLLIN) != 0)
    (void)!::read(alarm_.get(), &count, sizeof(count));
  if ((sources[1].revents & POLLIN) != 0) device.take_notice();
  if ((sources[2].revents & POLLIN) != 0) device.take_events();
  tick(Clock::now());
}

void VerbsNetwork::wake() {
  const std::uint64_t one = 1;
  (void)!::write(alarm_.get(), &one, sizeof(one));
}

void VerbsNetwork::forget(int rank) {
  forgotten_[static_cast<std::size_t>(rank)] = true;
  link(rank)->give_up();
}

Status VerbsNetwork::try_all(Clock::time_point end) {
  for (const auto& link : links_) {
    if (link != nullptr) link->probe(Clock::now());
  }
  for (;;) {
    resources_->device->poll();
    resources_->device->take_events();
    bool all = true;
    for (const auto& link : links_) {
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
    sleep(kTick);
  }
}

}  // namespace tutti::verbs
