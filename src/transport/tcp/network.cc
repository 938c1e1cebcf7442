#include "transport/tcp/network.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <ctime>

namespace tutti::tcp {
namespace {

// Among so many ranks a look at each costs less than to ask which are worth one.
constexpr std::size_t kFewRanks = 3;

}  // namespace

TcpNetwork::TcpNetwork(std::vector<std::vector<Connection>> connections, const NetworkCost& cost)
    : forgotten_(connections.size()),
      cost_(cost),
      ready_set_(epoll_create1(EPOLL_CLOEXEC)),
      alarm_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  for (std::size_t rank = 0; rank < connections.size(); ++rank) {
    bundles_.push_back(connections[rank].empty()
                           ? nullptr
                           : std::make_unique<Bundle>(std::move(connections[rank])));
    if (bundles_.back() == nullptr) continue;
    for (const Stream& stream : bundles_.back()->streams()) {
      epoll_event event{.events = EPOLLIN, .data = {.u64 = rank}};
      epoll_ctl(ready_set_.get(), EPOLL_CTL_ADD, stream.descriptor(), &event);
    }
  }
}

net::Carrier* TcpNetwork::carrier(int rank) {
  return bundles_[static_cast<std::size_t>(rank)].get();
}

void TcpNetwork::look(std::vector<bool>& ready) {
  if (bundles_.size() <= kFewRanks) {
    std::fill(ready.begin(), ready.end(), true);
    return;
  }
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(ready_set_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) ready[events[static_cast<std::size_t>(i)].data.u64] = true;
}

void TcpNetwork::sleep(std::chrono::nanoseconds longest) {
  std::vector<pollfd> sources{{alarm_.get(), POLLIN, 0}};
  for (const auto& bundle : bundles_) {
    if (bundle == nullptr) continue;
    for (const Stream& stream : bundle->streams()) {
      const int events = POLLIN | (stream.blocked() ? POLLOUT : 0);
      sources.push_back({stream.descriptor(), static_cast<short>(events), 0});
    }
  }
  const timespec span{static_cast<time_t>(longest.count() / 1'000'000'000),
                      static_cast<long>(longest.count() % 1'000'000'000)};
  ::ppoll(sources.data(), sources.size(), &span, nullptr);
  if (std::uint64_t count = 0; (sources[0].revents & POLLIN) != 0)
    (void)!::read(alarm_.get(), &count, sizeof(count));
}

void TcpNetwork::wake() {
  const std::uint64_t one = 1;
  (void)!::write(alarm_.get(), &one, sizeof(one));
}

void TcpNetwork::forget(int rank) {
  auto& bundle = bundles_[static_cast<std::size_t>(rank)];
  for (const Stream& stream : bundle->streams())
    epoll_ctl(ready_set_.get(), EPOLL_CTL_DEL, stream.descriptor(), nullptr);
  forgotten_[static_cast<std::size_t>(rank)] = std::move(bundle);
}

}  // namespace tutti::tcp
