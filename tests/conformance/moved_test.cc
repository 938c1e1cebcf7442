// A communicator that was moved from: every function says so, and none crashes.
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.h"
#include "support/cluster.h"
#include "tutti/communicator.h"
#include "tutti/typed.h"

namespace tutti::test {
namespace {

using Calls = std::vector<std::pair<const char*, std::function<Status(Communicator&)>>>;

/// The outcome without the value.
template <class T>
Status status_of(Result<T> result) {
  return result ? ok() : Status(std::move(result.error()));
}

Calls all_calls() {
  static float a[2], b[2];
  static const std::size_t counts[] = {1};
  constexpr auto kType = DataType::kFloat32;
  const Blocks blocks{.counts = counts, .offsets = {}};
  Calls calls = {
      {"barrier", [](auto& c) { return c.barrier(); }},
      {"all_gather_v", [=](auto& c) { return c.all_gather_v(a, b, blocks, kType); }},
      {"reduce_scatter_v",
       [=](auto& c) { return c.reduce_scatter_v(a, blocks, b, kType, ReduceOp::kSum); }},
      {"all_to_all", [=](auto& c) { return c.all_to_all_v(a, blocks, b, blocks, kType); }},
      {"gather", [=](auto& c) { return c.gather_v(a, 1, b, blocks, kType, Rank{0}); }},
      {"scatter", [=](auto& c) { return c.scatter_v(a, blocks, b, 1, kType, Rank{0}); }},
      {"send", [](auto& c) { return c.send(a, 1, kType, Rank{0}); }},
      {"recv", [](auto& c) { return c.recv(a, 1, kType, Rank{0}); }},
      {"send", [](auto& c) { return status_of(c.start_send(a, 1, kType, Rank{0})); }},
      {"recv", [](auto& c) { return status_of(c.start_recv(a, 1, kType, Rank{0})); }},
      {"recv",
       [](auto& c) {
         Rank from;
         return status_of(c.start_recv_any(a, 1, kType, from));
       }},
      {"split", [](auto& c) { return status_of(c.split(0, 0)); }},
      {"duplicate", [](auto& c) { return status_of(c.duplicate()); }},
      {"ranks_in", [](auto& c) { return status_of(c.ranks_in(c)); }},
      {"prepare", [](auto& c) { return status_of(c.prepare({})); }},
      {"health", [](auto& c) { return c.health(); }},
      {"shrink", [](auto& c) { return status_of(c.shrink()); }},
      {"agree", [](auto& c) { return status_of(c.agree(1)); }},
      {"grow", [](auto& c) { return status_of(c.grow(*memory_rendezvous(), 2)); }},
      {"grow", [](auto& c) { return status_of(c.grow(UniqueId{}, 2)); }},
      {"counters", [](auto& c) { return status_of(c.counters()); }},
      {"flight_record", [](auto& c) { return status_of(c.flight_record()); }},
      {"explain", [](auto& c) { return status_of(c.explain({})); }},
      {"all_reduce", [](auto& c) { return all_reduce(c, a, ReduceOp::kSum); }},
  };
  for (int i = 0; i < kCollectiveCount; ++i) {
    const Request request{.collective = static_cast<Collective>(i), .input = a, .output = b};
    const char* name = to_string(request.collective).data();
    calls.emplace_back(name, [=](auto& c) { return c.call(request); });
    calls.emplace_back(name, [=](auto& c) { return status_of(c.start(request)); });
  }
  return calls;
}

TEST_CASE("a communicator that was moved from refuses every call") {
  auto comms = Communicator::in_process(1);
  if (!comms) FAIL(comms.error().to_string());
  Communicator& old = comms->front();
  Communicator now = std::move(old);
  CHECK(old.rank() == Rank{});
  CHECK(old.rank_count() == 0);
  CHECK(old.describe().empty());
  old.abort("nothing to abort");
  old.revoke("nothing to revoke");
  for (const auto& [name, call] : all_calls()) {
    INFO(name);
    const Status status = call(old);
    REQUIRE_FALSE(status);
    CHECK(status.error().code == Code::kInvalidArgument);
    CHECK(status.error().what.starts_with(name));
    CHECK(status.error().what.find("moved from") != std::string::npos);
  }
  const Status works = now.barrier();
  CHECK(works);
}

TEST_CASE("a result's value is what it holds") {
  Result<std::string> text(std::string("seven"));
  CHECK(text.value() == "seven");
  CHECK(std::as_const(text).value() == "seven");
  CHECK(std::move(text).value() == "seven");
  ok().value();
}

TEST_CASE("an error's value is one line on stderr and exit code 1") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    const Result<int> failed(Error{Code::kSystem, "open: no such file", Rank{3}});
    _exit(failed.value());  // Does not come back.
  }
  close(ends[1]);
  char text[200] = {};
  CHECK(read(ends[0], text, sizeof(text) - 1) > 0);
  close(ends[0]);
  CHECK(text == std::string("rank 3: system error: open: no such file\n"));
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 1);
}

}  // namespace
}  // namespace tutti::test
