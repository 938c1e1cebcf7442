#include "soak/ranks.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "soak/mix.h"
#include "trainer/train.h"

namespace tutti::soak {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Every so many steps ranks agree on whether to finish.
constexpr std::uint64_t kStepsPerLook = 8;

std::int64_t ns_of(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

/// A child that holds all that its parent held, and does nothing until it is killed, or the watcher
/// of the round has gone.
void fork_sleeper(Place& place, pid_t watcher) {
  const pid_t child = ::fork();
  if (child != 0) {
    place.child.store(child, std::memory_order_relaxed);  // The phase orders it.
    return;
  }
  ::prctl(PR_SET_PDEATHSIG, 0);
  while (::kill(watcher, 0) == 0) std::this_thread::sleep_for(1s);
  ::_exit(0);
}

/// A child that uses the library a little, or not at all, and ends. Nobody waits for it here:
/// SIGCHLD is ignored.
void fork_one(std::uint64_t how) {
  if (::fork() != 0) return;
  if (how % 3 == 1) std::this_thread::sleep_for(20ms);
  if (how % 3 == 2) {
    if (auto memory = mem_alloc(4096)) (void)mem_free(*memory);
  }
  ::_exit(0);
}

/// Whether some rank wants to finish; at the same step on all ranks.
Result<bool> all_finish(Communicator& comm, bool mine) {
  std::uint32_t any = mine ? 1 : 0;
  TUTTI_RETURN_IF_ERROR(comm.all_reduce(&any, &any, 1, DataType::kUint32, ReduceOp::kMax));
  return any != 0;
}

void note(Place& place, const Error& error, Clock::time_point called) {
  place.ended_ns = ns_of(Clock::now());
  place.put_waits();
  place.called_ns = ns_of(called);
  place.code = static_cast<int>(error.code);
  place.peer = place.named = error.peer.value;
  place.put(place.text, error.what);
}

void make_calls(const RoundOptions& options, Board& board, Communicator& comm, Place& place) {
  Mix mix(comm, options.seed);
  bool failed = false;  // In a part of the ranks: the whole fails in one of the next steps.
  for (;;) {
    if (auto ended = mix.step()) {
      if (!ended->wrong.empty()) place.put(place.wrong, ended->call + ": " + ended->wrong);
      if (ended->error && !failed) {
        note(place, *ended->error, mix.called());
        place.named = ended->named;
        place.put(place.call, ended->call);
      }
      failed = true;
      if (!ended->part) break;
    }
    place.steps = mix.steps();
    if (place.at() == Phase::kJoining) place.go(Phase::kRunning);
    if (options.attack == Attack::kFork && mix.steps() % 4 == 0) fork_one(mix.steps() / 4);
    if (mix.steps() % kStepsPerLook != 0) continue;
    const auto called = Clock::now();
    const auto finish = all_finish(comm, board.finish.load(std::memory_order_relaxed));
    if (!finish && !failed) {
      note(place, finish.error(), called);
      place.put(place.call, "the look at whether to finish");
    }
    if (!finish || *finish) break;
  }
  place.steps = mix.steps();
}

void train(const RoundOptions& options, const trainer::Split& data, Communicator& comm,
           Place& place) {
  trainer::TrainOptions training;
  training.epochs = 1'000'000;
  training.seed = options.seed;
  training.strategy.bucket_bytes = std::size_t{1} << (12 + options.seed % 6);
  // The first step has worked once a barrier has.
  if (Status met = comm.barrier(); !met) return note(place, met.error(), Clock::now());
  place.go(Phase::kRunning);
  const auto outcome = trainer::train(comm, data, training, [](int, int, const trainer::Epoch&) {});
  if (outcome) return place.put(place.wrong, "a million epochs went by");
  note(place, outcome.error(), Clock::time_point{});
  place.put(place.call, "training");
}

}  // namespace

void be_rank(const RoundOptions& options, const trainer::Split& data, Board& board,
             const std::string& meeting, int rank) {
  const pid_t watcher = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGCHLD, SIG_IGN);
  Place& place = board.ranks[static_cast<std::size_t>(rank)];
  Settings settings;
  settings.transport = options.transport;
  settings.timeout = options.attack == Attack::kStop ? 3s : 20s;
  {
    auto rendezvous = file_rendezvous(meeting, "soak");
    auto comm = rendezvous ? Communicator::create(**rendezvous, Rank{rank}, options.ranks, settings)
                           : Result<Communicator>(std::move(rendezvous.error()));
    if (!comm) {
      note(place, comm.error(), Clock::now());
      place.put(place.wrong, "it could not join: " + comm.error().what);
      place.go(Phase::kEnded);
      ::_exit(1);
    }
    rendezvous->reset();
    if (options.children) fork_sleeper(place, watcher);
    if (options.trains)
      train(options, data, *comm, place);
    else
      make_calls(options, board, *comm, place);
    place.go(Phase::kEnded);
    // Others may still find out which rank has gone: this one stays until all have.
    while (!board.leave.load(std::memory_order_relaxed)) std::this_thread::sleep_for(1ms);
  }
  ::_exit(0);
}

std::string run_member(Communicator& comm, std::uint64_t seed, double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  Mix mix(comm, seed);
  for (;;) {
    if (auto ended = mix.step()) {
      return ended->call + ": " +
             (ended->wrong.empty() ? ended->error->to_string() : "WRONG: " + ended->wrong);
    }
    if (mix.steps() % kStepsPerLook != 0) continue;
    const auto finish = all_finish(comm, Clock::now() >= end);
    if (!finish) return "the look at whether to finish: " + finish.error().to_string();
    if (*finish) break;
  }
  std::printf("ok: %llu steps\n", static_cast<unsigned long long>(mix.steps()));
  return "";
}

}  // namespace tutti::soak
