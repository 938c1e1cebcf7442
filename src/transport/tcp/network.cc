#include "transport/tcp/network.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <ctime>
#include <utility>

#include "base/clock.h"
#include "transport/net/rails.h"

namespace tutti::tcp {
namespace {

// Among so many ranks a look at each costs less than to ask which are worth one.
constexpr std::size_t kFewRanks = 3;
constexpr std::int64_t kLookAtAllMs = 100;

}  // namespace

TcpNetwork::TcpNetwork(std::vector<std::vector<Connection>> connections, const NetworkCost& cost)
    : streams_(connections.size()),
      cost_(cost),
      ready_set_(epoll_create1(EPOLL_CLOEXEC)),
      alarm_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  std::size_t sources = 1;  // The alarm.
  for (std::size_t rank = 0; rank < connections.size(); ++rank) {
    sources += connections[rank].size();
    std::vector<std::unique_ptr<net::Carrier>> rails;
    for (Connection& one : connections[rank]) {
      auto stream = std::make_unique<Stream>(std::move(one));
      // Nobody asks for few: then no segment has to put its stream on a list.
      epoll_event event{.events = EPOLLIN, .data = {.u64 = rank}};
      if (!few()) epoll_ctl(ready_set_.get(), EPOLL_CTL_ADD, stream->descriptor(), &event);
      streams_[rank].push_back(stream.get());
      rails.push_back(std::move(stream));
    }
    rails_ = rails_ || rails.size() > 1;
    if (rails.size() > 1)
      carriers_.push_back(std::make_unique<net::Rails>(std::move(rails)));
    else
      carriers_.push_back(rails.empty() ? nullptr : std::move(rails.front()));
  }
  sources_.reserve(sources);
}

bool TcpNetwork::few() const { return streams_.size() <= kFewRanks; }

net::Carrier* TcpNetwork::carrier(int rank) {
  return carriers_[static_cast<std::size_t>(rank)].get();
}

void TcpNetwork::look(std::vector<bool>& ready) {
  if (few()) {
    std::fill(ready.begin(), ready.end(), true);
    return;
  }
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(ready_set_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) ready[events[static_cast<std::size_t>(i)].data.u64] = true;
  if (!rails_) return;
  // One that leads nowhere is never ready, but has to be found.
  const std::int64_t now = coarse_ms();
  if (now < next_look_at_all_) return;
  next_look_at_all_ = now + kLookAtAllMs;
  for (std::size_t rank = 0; rank < streams_.size(); ++rank)
    ready[rank] = ready[rank] || !streams_[rank].empty();
}

void TcpNetwork::sleep(std::chrono::nanoseconds longest) {
  sources_.assign(1, {alarm_.get(), POLLIN, 0});
  for (const auto& streams : streams_) {
    for (const Stream* const stream : streams) {
      const int events = POLLIN | (stream->blocked() ? POLLOUT : 0);
      sources_.push_back({stream->descriptor(), static_cast<short>(events), 0});
    }
  }
  const timespec span{static_cast<time_t>(longest.count() / 1'000'000'000),
                      static_cast<long>(longest.count() % 1'000'000'000)};
  ::ppoll(sources_.data(), sources_.size(), &span, nullptr);
  if (std::uint64_t count = 0; (sources_[0].revents & POLLIN) != 0)
    (void)!::read(alarm_.get(), &count, sizeof(count));
}

void TcpNetwork::wake() {
  const std::uint64_t one = 1;
  (void)!::write(alarm_.get(), &one, sizeof(one));
}

void TcpNetwork::forget(int rank) {
  auto& streams = streams_[static_cast<std::size_t>(rank)];
  for (const Stream* const stream : streams)
    if (!few()) epoll_ctl(ready_set_.get(), EPOLL_CTL_DEL, stream->descriptor(), nullptr);
  streams.clear();
}

}  // namespace tutti::tcp
