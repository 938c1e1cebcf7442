// Health checks of a rank that waits for a message: a message may end in one, as its rank has sent
// it and ended between two looks; and they take place though the network always has something.
#include <future>
#include <memory>
#include <utility>

#include "exec/host_executor.h"
#include "support/catch.h"
#include "support/net/slow_network.h"
#include "unit/exec/two_ranks.h"

namespace tutti::exec {
namespace {

using namespace std::chrono_literals;

TEST_CASE("a message that ends in a health check ends its call") {
  test::TwoRanks ranks;
  Region& region = ranks.region();
  test::PlainEndpoint of_sender(region);
  flight::Recorder record({});
  Messages sender(of_sender, 0, SIZE_MAX, record);
  std::byte out[8] = {std::byte{7}}, in[8] = {};
  Message send{.sends = true, .peer = 1, .data = out, .count = sizeof(out)};
  Message receive{.sends = false, .peer = 0, .data = in, .count = sizeof(in)};
  MessageBatch sent{.messages = std::span(&send, 1), .start = {}};
  MessageBatch received{.messages = std::span(&receive, 1), .start = {}};
  // The health check asks, and only then does the peer send, and end.
  bool asked = false;
  auto of_receiver = std::make_unique<test::PlainEndpoint>(region, [&] {
    if (!std::exchange(asked, true)) sender.post(sent), (void)sender.poll();
    return false;
  });
  HostExecutor::Options options;
  options.timeout = 1s;
  options.wait = wait_policy(2, 2, -1);
  HostExecutor receiver(std::move(of_receiver), 1, std::move(options));

  auto outcome = std::async(std::launch::async, [&] { return receiver.run(received); });
  const bool ended = outcome.wait_for(10s) == std::future_status::ready;
  CHECK(ended);
  if (!ended) (void)region.abort({Code::kInternal, "it waits for ever"});
  CHECK(outcome.get());
  CHECK(asked);
  CHECK(in[0] == std::byte{7});
}

/// Something always comes, but no message.
class BusyCarrier final : public net::Carrier {
 public:
  void send(net::FrameHeader, std::span<const net::Piece>) override {}
  using Carrier::send;
  Result<bool> progress(net::FrameSink&) override { return true; }
  std::size_t pending() const override { return 0; }
  std::string where() const override { return "busy"; }
  void leave() override {}
  bool left() override { return true; }
};
class BusyNetwork final : public net::Network {
 public:
  net::Carrier* carrier(int rank) override { return rank == 0 ? nullptr : &carrier_; }
  void look(std::vector<bool>& ready) override { std::fill(ready.begin(), ready.end(), true); }
  void sleep(std::chrono::nanoseconds) override {}
  void wake() override {}
  void forget(int) override {}

 private:
  BusyCarrier carrier_;
};

TEST_CASE("a message has a deadline though other news come all the time") {
  HostExecutor::Options options;
  options.timeout = 100ms;
  options.wait = wait_policy(2, 2, -1);
  HostExecutor receiver(std::make_unique<test::SlowEndpoint>(test::slow_region(2), 0,
                                                             std::make_unique<BusyNetwork>()),
                        0, std::move(options));
  std::byte in[8] = {};
  Message receive{.sends = false, .peer = 1, .data = in, .count = sizeof(in)};
  MessageBatch received{.messages = std::span(&receive, 1), .start = {}};
  auto outcome = std::async(std::launch::async, [&] { return receiver.run(received); });
  const bool ended = outcome.wait_for(20s) == std::future_status::ready;
  CHECK(ended);
  if (!ended) (void)receiver.endpoint().region().abort({Code::kInternal, "it waits for ever"});
  const Status status = outcome.get();
  REQUIRE(!status);
  CHECK(status.error().code == Code::kTimeout);
  CHECK(status.error().peer == Rank{1});
}

}  // namespace
}  // namespace tutti::exec
