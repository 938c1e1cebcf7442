// The progress thread: what happens if it can't be started, and what callbacks on it may do. Each
// case runs in processes of its own, as a process has one such thread for all its life.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <stdexcept>

#include "support/catch.h"
#include "support/processes.h"

namespace {

std::atomic<bool> no_threads{false};

}  // namespace

/// Replaces the system's function in the whole program.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) {
  static const auto real =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return no_threads ? EAGAIN : real(thread, attributes, body, argument);
}

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kF32 = DataType::kFloat32;

Result<Work> start(Communicator& comm, float& value) {
  return comm.start_all_reduce(&value, &value, 1, kF32, ReduceOp::kSum);
}

std::string text(const Status& status) { return status ? "" : status.error().to_string(); }

/// Two ranks of this process; one progress thread carries out the calls of both.
struct Pair {
  std::optional<Communicator> zero, one;
};
std::string make(Pair& pair) {
  auto made = Communicator::in_process(2);
  if (!made) return made.error().to_string();
  pair.zero.emplace(std::move((*made)[0]));
  pair.one.emplace(std::move((*made)[1]));
  return "";
}

/// "" if the progress thread still carries out asynchronous calls.
std::string still_works() {
  Pair pair;
  if (auto failed = make(pair); !failed.empty()) return failed;
  float a = 1, b = 2;
  auto on_a = start(*pair.zero, a), on_b = start(*pair.one, b);
  if (!on_a || !on_b) return "could not start another call";
  if (auto status = on_a->wait(20s); !status) return "another call: " + text(status);
  if (auto status = on_b->wait(20s); !status) return "another call: " + text(status);
  return a == 3 && b == 3 ? "" : "wrong sum";
}

int in_a_process(const std::function<std::string()>& body) {
  Processes process(1, [&](int) { return body(); });
  return process.wait(0, 100s);
}

int with_pair(const std::function<std::string(Pair&)>& body) {
  return in_a_process([&]() -> std::string {
    Pair pair;
    if (auto failed = make(pair); !failed.empty()) return failed;
    return body(pair);
  });
}

TEST_CASE("a progress thread that can't be started is an error of that call alone") {
  Settings settings;
  settings.transport = GENERATE("shared_memory", "tcp");
  const ScratchDirectory meeting;
  RankProcesses processes(meeting, 2, settings, [&](int rank, Communicator& comm) -> std::string {
    float value = 1, sent = 2;
    if (rank == 1) {
      no_threads = true;
      for (int i = 0; i < 2; ++i) {
        const auto refused = start(comm, value);
        if (refused) return "a call without a thread was started";
        const Error& error = refused.error();
        if (error.code != Code::kSystem ||
            error.what.find("progress thread") == std::string::npos ||
            error.what.find("ulimit -u") == std::string::npos)
          return "unexpected: " + error.to_string();
        const auto message = comm.start_send(&sent, 1, kF32, Rank{0});
        if (message || message.error().code != Code::kSystem) return "a message was started";
      }
      no_threads = false;
    }
    auto work = start(comm, value);
    if (!work) return work.error().to_string();
    if (auto status = work->wait(60s); !status) return text(status);
    if (value != 2) return "wrong sum";
    return text(comm.barrier());
  });
  for (int rank = 0; rank < 2; ++rank) CHECK(processes.wait(rank, 100s) == 0);
}

TEST_CASE("without a progress thread blocking calls and the end of a communicator work") {
  CHECK(in_a_process([]() -> std::string {
          Settings settings;
          settings.transport = "shared_memory";
          const auto rendezvous = memory_rendezvous();
          auto comm = Communicator::create(*rendezvous, Rank{0}, 1, settings);
          if (!comm) return comm.error().to_string();
          no_threads = true;
          float value = 1;
          if (start(*comm, value)) return "was started";
          if (auto status = comm->barrier(); !status) return text(status);
          { const Communicator gone = *std::move(comm); }
          return "";
        }) == 0);
}

TEST_CASE("ranks of a process whose threads can't be started are an error") {
  CHECK(in_a_process([]() -> std::string {
          no_threads = true;
          const auto made = Communicator::in_process(3);
          if (made) return "were made";
          return made.error().code == Code::kSystem ? "" : made.error().to_string();
        }) == 0);
}

TEST_CASE("a callback may end its communicator, also with other calls under way") {
  CHECK(with_pair([](Pair& pair) -> std::string {
          float a = 1, b = 1, c = 1, d = 1;
          auto first = start(*pair.zero, a), second = start(*pair.zero, b);
          if (!first || !second) return "could not start";
          std::atomic<bool> ended{false};
          first->then([&](const Status&) {
            pair.zero.reset();
            ended = true;
          });
          auto other = start(*pair.one, c);
          if (!other) return "could not start";
          if (!eventually([&] { return ended.load(); }, 20s)) return "the callback hangs";
          auto last = start(*pair.one, d);
          if (!last) return "could not start";
          if (auto status = second->wait(20s); !status) return "the second call: " + text(status);
          if (auto status = last->wait(20s); !status) return "the other rank: " + text(status);
          if (a + b + c + d != 8) return "wrong sum";
          pair.one.reset();
          return still_works();
        }) == 0);
}

TEST_CASE("a callback may end its communicator with its last call, or a message") {
  CHECK(with_pair([](Pair& pair) -> std::string {
          float a = 1, b = 2, sent = 3, got = 0;
          auto send = pair.zero->start_send(&sent, 1, kF32, Rank{1});
          auto call = start(*pair.zero, a);
          if (!call || !send) return "could not start";
          std::atomic<int> ended{0};
          call->then([&](const Status&) { ++ended; });
          send->then([&](const Status&) {
            pair.zero.reset();
            ++ended;
          });
          auto receive = pair.one->start_recv(&got, 1, kF32, Rank{0});
          if (!receive || !receive->wait(20s)) return "the message did not come";
          if (!eventually([&] { return ended >= 1; }, 20s)) return "the callback hangs";
          auto other = start(*pair.one, b);
          if (!other || !other->wait(20s)) return "the other rank's call failed";
          other->then([&](const Status&) { pair.one.reset(); });
          if (!eventually([&] { return ended == 2; }, 20s)) return "the call's callback is missing";
          return a == 3 && got == 3 ? still_works() : "wrong data";
        }) == 0);
}

TEST_CASE("what waits in a callback gets an error, and holds nobody up") {
  CHECK(with_pair([](Pair& pair) -> std::string {
          float a = 1, b = 1, c = 1, d = 1;
          auto first = start(*pair.zero, a), second = start(*pair.zero, b);
          if (!first || !second) return "could not start";
          std::vector<Status> outcomes;
          std::atomic<bool> over{false};
          first->then([&](const Status&) {
            outcomes.push_back(second->wait());
            outcomes.push_back(second->wait(20s));
            outcomes.push_back(pair.zero->barrier());
            float value = 0;
            outcomes.push_back(pair.zero->recv(&value, 1, kF32, Rank{1}));
            over = true;
          });
          auto third = start(*pair.one, c);
          if (!eventually([&] { return over.load(); }, 20s)) return "the callback hangs";
          auto fourth = start(*pair.one, d);
          if (!third || !fourth || !second->wait(20s)) return "the calls did not go on";
          for (const Status& status : outcomes) {
            if (status || status.error().code != Code::kInvalidArgument) return "no error";
            if (status.error().what.find("callback") == std::string::npos) return text(status);
          }
          return still_works();
        }) == 0);
}

TEST_CASE("what a callback throws does not end the progress thread") {
  CHECK(with_pair([](Pair& pair) -> std::string {
          float a = 1, b = 1;
          auto work = start(*pair.zero, a);
          if (!work) return "could not start";
          std::atomic<int> told{0};
          for (int i = 0; i < 2; ++i) {
            work->then([&](const Status&) {
              ++told;
              throw std::runtime_error("of the program");
            });
          }
          auto other = start(*pair.one, b);
          if (!other || !other->wait(20s) || !work->wait(20s)) return "the call failed";
          if (!eventually([&] { return told == 2; }, 20s)) return "a callback is missing";
          return still_works();
        }) == 0);
}

TEST_CASE("a child can't wait for its parent's work") {
  CHECK(with_pair([](Pair& pair) -> std::string {
          float a = 1, b = 1;
          auto work = start(*pair.zero, a);
          if (!work) return "could not start";
          const pid_t child = fork();
          if (child == 0) {
            alarm(20);
            const Status status = work->wait();
            _exit(!status && status.error().code == Code::kInvalidArgument ? 0 : 1);
          }
          int how = 0;
          if (waitpid(child, &how, 0) != child || how != 0)
            return "the child hung, or got no error";
          auto other = start(*pair.one, b);
          return other && work->wait(20s) && other->wait(20s) ? "" : "the call failed";
        }) == 0);
}

}  // namespace
}  // namespace tutti::test
