// The frames that a rank gets from another one, in the middle of its calls and messages: any kinds,
// channels, positions and payloads, in any order. Rank 0 of two executes calls; rank 1 is the input
// (fuzz/frames.h).
//
// Checked: nothing outside of the region and of the call's buffers is written (the address
// sanitizer sees it), no assertion of ours fails, and a call that fails has an error of one line.
#include "fuzz/replicator_calls.h"

#include "fuzz/frames.h"

namespace {

using namespace tutti;
using namespace tutti::fuzz;

/// The connection with rank 1: delivers one frame of the input at each look.
class Attacker final : public Deaf {
 public:
  explicit Attacker(Frames& frames) : frames_(frames) {}
  Result<bool> progress(net::FrameSink& sink) override {
    const Frame* const frame = frames_.front();
    if (frame == nullptr) return false;
    TUTTI_TRY(const bool taken, deliver(*frame, sink));
    if (!taken && ++refused_ < kMostRefusals) return false;
    refused_ = 0;
    frames_.next();
    return true;
  }

 private:
  // A frame that finds no place so often is dropped, as the rank may wait for what follows.
  static constexpr int kMostRefusals = 4;
  Frames& frames_;
  int refused_ = 0;
};

void check(const Status& status) {
  if (status) return;
  const Error& error = status.error();
  require(!error.what.empty() && error.what.find('\n') == std::string::npos, error.what.c_str());
  require(error.rank.value == 0 || error.rank.value == -1, "another rank reports it");
}

/// Looks at a call until it is done, or all frames have come and it still waits.
Status finish(exec::HostExecutor& executor, const Frames& frames) {
  for (Patience patience(frames); executor.poll() != exec::Poll::kDone;) {
    if (patience.left()) continue;
    // The deadline has passed; the first look only notes the time.
    while (executor.check_health()) {
    }
    for (int looks = 0; executor.poll() != exec::Poll::kDone; ++looks)
      if (looks == 8) executor.abort({Code::kAborted, "enough", Rank{0}, Rank{}});
    break;
  }
  return executor.take_status();
}

void receive_messages(exec::HostExecutor& executor, const Frames& frames) {
  test::Buffer memory;
  for (std::size_t i = 0; i < kMessages.size() && !executor.broken(); ++i) {
    exec::Message message = message_of(i, 0, memory);
    exec::MessageBatch batch{.messages = std::span(&message, 1), .open = 0, .start = {}};
    executor.messages().post(batch);
    for (Patience patience(frames); batch.open != 0 && !executor.broken();) {
      executor.messages().poll();
      if (patience.left()) continue;
      executor.abort({Code::kAborted, "enough", Rank{0}, Rank{}});
      (void)executor.messages().check_health(true);
    }
    executor.messages().retire(batch);
    check(executor.messages().outcome(batch));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const auto plans = std::make_shared<test::OneAlgorithm>("", kRanks);
  const std::size_t script = data[0] % kScripts;
  Frames frames(std::as_bytes(std::span(data + 1, size - 1)));
  exec::HostExecutor::Options options;
  options.wait = {.spins = 0, .yields = 0};
  options.timeout = std::chrono::milliseconds(0);
  options.plans = plans;
  options.eager_limit_bytes = eager_limits();
  Attacker attacker(frames);
  exec::HostExecutor executor(
      std::make_unique<test::SlowEndpoint>(small_region(), 0,
                                           std::make_unique<test::OnePeerNetwork>(attacker)),
      0, std::move(options));
  for (const auto& own : calls_of(script, 0)) {
    executor.begin(own->call);
    const Status status = finish(executor, frames);
    check(status);
    if (!status) break;
  }
  if (script == kScripts - 1) receive_messages(executor, frames);
  executor.abort({Code::kAborted, "the end", Rank{0}, Rank{}});  // It leaves without a goodbye.
  return 0;
}
