// Memory runs out on the progress thread: that ends the call, on all ranks.
#include <thread>
#include <vector>

#include "support/catch.h"
#include "support/shortage.h"
#include "support/transports.h"
#include "tutti/communicator.h"

namespace tutti::test {
namespace {

constexpr auto kF32 = DataType::kFloat32;

/// Waits for the first call, starts others and messages, and waits for them.
Status asynchronous(Communicator& comm, Work first) {
  std::vector<float> in(90'000, 1), out(90'000), more(90'000);
  const Rank other{1 - comm.rank().value};
  Status status = first.wait();
  std::vector<Work> works;
  const auto add = [&](Result<Work> work) {
    if (work) works.push_back(*std::move(work));
    if (!work && status) status = std::move(work.error());
  };
  add(comm.start_all_reduce(in.data(), out.data(), in.size(), kF32, ReduceOp::kSum));
  add(comm.start_send(in.data(), in.size(), kF32, other));
  add(comm.start_recv(more.data(), in.size(), kF32, other));
  for (Work& work : works) {
    Status outcome = work.wait();
    if (!outcome && status) status = std::move(outcome);
  }
  return status;
}

/// One call after another, of which a rank starts the first before it comes here.
void wait_without_memory(std::vector<Communicator>& comms, long n, Failing which, bool& failed) {
  Status other;
  const auto begin = std::chrono::steady_clock::now();
  float one = 1, two = 2;
  auto zeroth = comms[0].start_all_reduce(&one, &one, 1, kF32, ReduceOp::kSum);
  REQUIRE(zeroth);
  // It can't be over yet: it is the progress thread that lacks memory from then on.
  zeroth->then([=](const Status&) { begin_shortage(n, which); });
  auto first = comms[1].start_all_reduce(&two, &two, 1, kF32, ReduceOp::kSum);
  REQUIRE(first);
  std::thread second([&] { other = asynchronous(comms[1], *first); });
  const Status own = asynchronous(comms[0], *zeroth);
  second.join();
  INFO("allocation " << n << "; rank 0: " << text(own) << "; rank 1: " << text(other));
  // The thread carries both ranks on: either may be the one that lacked memory.
  CHECK(bool(own) == bool(other));
  failed = !own;
  if (failed) {
    CHECK((own.error().code == Code::kSystem || other.error().code == Code::kSystem));
    CHECK(own.error().code != Code::kTimeout);
    CHECK(other.error().code != Code::kTimeout);
  }
  REQUIRE(std::chrono::steady_clock::now() - begin < kToldWithin);
}

/// The end of a shortage on the progress thread.
void progress_thread_has_memory() {
  auto comms = Communicator::in_process(1);
  REQUIRE(comms);
  float one = 1;
  auto work = comms->front().start_all_reduce(&one, &one, 1, kF32, ReduceOp::kSum);
  REQUIRE(work);
  work->then([](const Status&) { end_shortage(); });
  (void)work->wait();
}

void without_memory_on_the_progress_thread(Failing which) {
  for (const Transport* transport : transports_here()) {
    // Not covered yet: it may take until the deadline.
    if (transport->name == "ucx" && which == Failing::kAllFromThenOn) continue;
    Settings settings;
    settings.transport = transport->name;
    settings.timeout = kLimit;
    INFO(transport->name);
    long failures = 0;
    for (long n = 1; n < 400; n = transport->name == "ucx" || n >= 60 ? n + 17 : next(n, which)) {
      auto comms = Communicator::in_process(2, settings);
      if (!comms) FAIL(comms.error().to_string());
      bool failed = false;
      wait_without_memory(*comms, n, which, failed);
      failures += failed;
      progress_thread_has_memory();
      for (Communicator& comm : *comms) {
        if (!failed) continue;
        const Status later = comm.barrier();
        REQUIRE_FALSE(later);
        CHECK(later.error().code != Code::kTimeout);
      }
    }
    CHECK(failures > 0);
  }
}

TEST_CASE("memory that runs out on the progress thread ends the call on all ranks") {
  without_memory_on_the_progress_thread(Failing::kOne);
}

TEST_CASE("memory that stays out on the progress thread ends the call on all ranks") {
  without_memory_on_the_progress_thread(Failing::kAllFromThenOn);
}

}  // namespace
}  // namespace tutti::test
