#include "transport/tcp/network.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <string>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "transport/net/rails.h"
#include "transport/tcp/mesh_builder.h"

namespace tutti::tcp {
namespace {

// Among so many ranks a look at each costs less than to ask which are worth one.
constexpr std::size_t kFewRanks = 3;
constexpr std::int64_t kLookAtAllMs = 100;

Error error(const char* call, int number) {
  return {Code::kSystem, std::string("tcp: ") + call + ": " +
                             std::generic_category().message(number) +
                             "; raise the limit of open files (ulimit -n) if that is it"};
}

}  // namespace

/// Renews lost connections with one rank.
class TcpNetwork::Again final : public net::Renewal {
 public:
  Again(TcpNetwork& network, std::size_t rank) : network_(network), rank_(rank) {}
  std::unique_ptr<net::Carrier> renew(std::size_t rail) override {
    auto connection = network_.builder_->again(static_cast<int>(rank_), static_cast<int>(rail));
    if (!connection) return nullptr;
    auto stream = network_.stream_of(*std::move(connection));
    if (!stream) return nullptr;  // Tried again later.
    network_.streams_[rank_][rail] = stream->get();
    return *std::move(stream);
  }
  void drop(std::size_t rail) override {
    network_.builder_->drop(static_cast<int>(rank_), static_cast<int>(rail));
  }

 private:
  TcpNetwork& network_;
  std::size_t rank_;
};

Result<Wakers> Wakers::make(std::size_t rank_count) {
  Wakers made;
  made.alarm.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!made.alarm) return error("eventfd", errno);
  if (rank_count <= kFewRanks) return made;
  made.ready_set.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!made.ready_set) return error("epoll_create1", errno);
  return made;
}

TcpNetwork::TcpNetwork(Wakers wakers, std::size_t rank_count, const NetworkCost& cost)
    : streams_(rank_count), cost_(cost), wakers_(std::move(wakers)) {}

Result<std::unique_ptr<TcpNetwork>> TcpNetwork::open(Mesh mesh, Wakers wakers,
                                                     std::size_t rank_count,
                                                     const NetworkCost& cost) {
  std::unique_ptr<TcpNetwork> network(new TcpNetwork(std::move(wakers), rank_count, cost));
  TUTTI_RETURN_IF_ERROR(network->take(std::move(mesh)));
  return network;
}

Status TcpNetwork::take(Mesh mesh) {
  const std::size_t rank_count = streams_.size();
  builder_ = std::move(mesh.builder);
  std::vector<std::vector<std::unique_ptr<net::Carrier>>> rails(rank_count);
  for (Connection& one : mesh.connections) {
    const auto rank = static_cast<std::size_t>(one.peer);
    TUTTI_TRY(auto stream, stream_of(std::move(one)));
    streams_[rank].push_back(stream.get());
    rails[rank].push_back(std::move(stream));
  }
  for (std::size_t rank = 0; rank < rank_count; ++rank) {
    auto& those = rails[rank];
    rails_ = rails_ || those.size() > 1;
    if (those.size() > 1) {
      auto again = builder_ == nullptr ? nullptr : std::make_unique<Again>(*this, rank);
      carriers_.push_back(std::make_unique<net::Rails>(std::move(those), net::Rails::kSpreadBytes,
                                                       0, std::move(again)));
    } else {
      carriers_.push_back(those.empty() ? nullptr : std::move(those.front()));
    }
  }
  sources_.reserve(1 + mesh.connections.size());  // With the alarm.
  return ok();
}

Result<std::unique_ptr<Stream>> TcpNetwork::stream_of(Connection connection) {
  const auto rank = static_cast<std::uint64_t>(connection.peer);
  auto stream = std::make_unique<Stream>(std::move(connection));
  // Nobody asks for few: then no segment has to put its stream on a list.
  epoll_event event{.events = EPOLLIN, .data = {.u64 = rank}};
  if (!few() &&
      epoll_ctl(wakers_.ready_set.get(), EPOLL_CTL_ADD, stream->descriptor(), &event) != 0)
    return error("epoll_ctl", errno);
  return stream;
}

bool TcpNetwork::few() const { return streams_.size() <= kFewRanks; }

void TcpNetwork::look(std::vector<bool>& ready) {
  if (few()) {
    std::fill(ready.begin(), ready.end(), true);
    return;
  }
  std::array<epoll_event, 64> events;
  const int count =
      epoll_wait(wakers_.ready_set.get(), events.data(), static_cast<int>(events.size()), 0);
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
  sources_.assign(1, {wakers_.alarm.get(), POLLIN, 0});
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
    (void)!::read(wakers_.alarm.get(), &count, sizeof(count));
}

void TcpNetwork::wake() {
  const std::uint64_t one = 1;
  (void)!::write(wakers_.alarm.get(), &one, sizeof(one));
}

void TcpNetwork::forget(int rank) {
  auto& streams = streams_[static_cast<std::size_t>(rank)];
  for (const Stream* const stream : streams)
    if (!few()) epoll_ctl(wakers_.ready_set.get(), EPOLL_CTL_DEL, stream->descriptor(), nullptr);
  streams.clear();
}

}  // namespace tutti::tcp
