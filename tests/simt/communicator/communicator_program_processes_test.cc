// Kernels of a program's own (communicator_program_test.cc) where ranks are processes.
#include <chrono>
#include <csignal>
#include <fstream>
#include <optional>
#include <string>

#include <unistd.h>

#include "simt/communicator/windowed.h"
#include "support/catch.h"
#include "support/processes.h"
#if !defined(TUTTI_GPU)
#include "simt/runtime.h"
#endif

namespace tutti {
namespace {

using test::PassOn;
using test::ProgramReduce;
using test::said;
using test::Windowed;

constexpr int kRanks = 3;

Result<DeviceCommunicator> join(const test::ScratchDirectory& meeting, int rank) {
  TUTTI_TRY(const auto rendezvous, file_rendezvous(meeting.path(), "program"));
  Settings settings = test::small_settings();
  settings.timeout = std::chrono::seconds(60);
  return DeviceCommunicator::create(*rendezvous, Rank{rank}, kRanks, test::device_of(rank),
                                    settings);
}

TEST_CASE("processes run kernels of a program on each other's windows") {
  const test::ScratchDirectory meeting;
  test::Processes all(kRanks, [&](int rank) -> std::string {
    auto comm = join(meeting, rank);
    if (!comm) return comm.error().to_string();
    Windowed here(*comm, test::new_stream(comm->device()));
    if (here.wrong.empty()) here.wrong = here.pass_on(1000, 4);
    for (const test::ProgramReduction& what : test::kProgramReductions) {
      if (here.wrong.empty()) here.wrong = here.reduce(ProgramReduce(what, 2000, kRanks, 1));
    }
    return here.wrong.empty() ? here.leave() : here.wrong;
  });
  for (int rank = 0; rank < kRanks; ++rank) CHECK(all.wait(rank) == 0);
}

TEST_CASE("a rank that is killed ends a program's kernels with an error that names it") {
  const test::ScratchDirectory meeting;
  test::Processes all(kRanks, [&](int rank) -> std::string {
    auto comm = join(meeting, rank);
    if (!comm) return comm.error().to_string();
    Windowed here(*comm, test::new_stream(comm->device()));
    const PassOn what(1000, 2);
    std::string wrong = here.wrong + what.prepare(here.one);
    if (!wrong.empty()) return wrong;
    test::say_ready(meeting, rank);
    while (!test::all_ready(meeting, kRanks)) usleep(1000);
    if (rank == 2) kill(getpid(), SIGKILL);
    wrong = here.start(what);
    wrong += said(cudaStreamSynchronize(here.one.stream));
    const Status found = here.comm.check();
    if (found) return wrong + "it noticed nothing";
    const bool names = found.error().code == Code::kPeerFailed && found.error().peer == Rank{2};
    return names ? wrong : "another error: " + found.error().to_string();
  });
  CHECK(all.wait(2) == 128 + SIGKILL);
  for (int rank = 0; rank < 2; ++rank) CHECK(all.wait(rank) == 0);
}

#if !defined(TUTTI_GPU)
/// Waits until the file is there.
bool reached(const std::string& file) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (access(file.c_str(), F_OK) != 0) {
    if (std::chrono::steady_clock::now() > end) return false;
    usleep(5000);
  }
  return true;
}

TEST_CASE("signals are freed once all processes have closed them, where handles are IPC's") {
  for (const bool deregisters : {true, false}) {
    const test::ScratchDirectory meeting;
    test::Processes all(kRanks, [&](int rank) -> std::string {
      simt::share_as(0);
      auto joined = join(meeting, rank);
      if (!joined) return joined.error().to_string();
      std::optional<DeviceCommunicator> comm(*std::move(joined));
      Windowed here(*comm, test::new_stream(comm->device()));
      if (here.wrong.empty()) here.wrong = here.pass_on(1000, 2);
      if (here.wrong.empty() && deregisters) here.wrong = here.leave();
      // Rank 0 leaves last and frees its memory; the others wait for it in vain, and look no more.
      for (int peer = 1; peer < kRanks && rank == 0; ++peer) {
        if (!reached(meeting.path() + "/left" + std::to_string(peer)))
          return "a rank does not leave";
      }
      comm.reset();
      std::ofstream(meeting.path() + "/left" + std::to_string(rank)) << ".";
      if (!reached(meeting.path() + "/left0")) return "rank 0 does not leave";
      return simt::freed_while_open() == 0 ? here.wrong : "a peer had it open";
    });
    INFO((deregisters ? "deregistered" : "left"));
    for (int rank = 0; rank < kRanks; ++rank) CHECK(all.wait(rank) == 0);
  }
}
#endif

}  // namespace
}  // namespace tutti
