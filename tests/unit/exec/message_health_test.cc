// A message that ends in a health check: its rank has sent it and ended between two looks.
#include <future>
#include <memory>
#include <utility>

#include "exec/host_executor.h"
#include "support/catch.h"
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

}  // namespace
}  // namespace tutti::exec
