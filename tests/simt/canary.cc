// File: simt/canary.cc: calls in all slot formats, that go wrong if any one barrier, wait or memory
// order of the kernels is left out (SIMT_MISTAKE, see engine.h). Exits with 1 and a line where a
// result is wrong or a wait ended; `list` prints the mistakes that can be planted.
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "algorithms/algorithm.h"
#include "plan/passes.h"
#include "plan/verify.h"
#include "simt/device_ranks.h"
#include "simt/engine.h"

namespace tutti {
namespace {

constexpr int kRanks = 3;

/// A plan that touches peers' buffers, which their own streams fill anew for each call. Each rank
/// has a thread, so that nothing but the plan's signals orders what ranks do.
std::string run_lowered(test::DeviceRanks& ranks, const exec::CudaPlan& plan,
                        const test::Case& test) {
  constexpr std::uint64_t kRounds = 4;
  std::vector<std::vector<test::Buffer>> inputs;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    inputs.push_back(test::DeviceRanks::make_inputs(test, round));
  }
  std::vector<std::unique_ptr<test::DeviceRanks::DeviceBuffers>> buffers;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    buffers.push_back(std::make_unique<test::DeviceRanks::DeviceBuffers>(ranks.device(rank), test,
                                                                         rank, inputs[0][rank]));
  }
  std::vector<std::string> complaints(kRanks);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto call = ranks.call_of(test, rank, buffers);
        const exec::OnDevice on(ranks.device(rank));
        for (const auto& round : inputs) {
          cudaMemcpyAsync(buffers[rank]->input, round[rank].data(), round[rank].size(),
                          cudaMemcpyDefault, ranks.stream(rank));
          complaints[rank] += test::said(
              ranks.mesh().launch(static_cast<int>(rank), plan, call, ranks.stream(rank)));
        }
        complaints[rank] += test::said(cudaStreamSynchronize(ranks.stream(rank))) +
                            test::said(ranks.mesh().check(static_cast<int>(rank)));
      });
    }
  }
  for (const std::string& complaint : complaints) {
    if (!complaint.empty()) return complaint;
  }
  return test::DeviceRanks::compare(test, inputs.back(), buffers);
}

/// A broadcast that begins with signals, right after all ranks have met.
plan::Plan signals_first() {
  plan::Plan plan;
  plan.name = "signals_first";
  plan.shape = {Collective::kBroadcast, kRanks};
  plan.together = true;
  plan.ranks.resize(kRanks);
  const auto step = [](plan::StepKind kind, std::uint16_t peer) {
    return plan::Step{kind, peer, 0, 0, 0, 0};
  };
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    plan::Lane& lane = plan.ranks[rank].lanes.emplace_back();
    const auto place = rank == 0 ? plan::Place::kInput : plan::Place::kPeerInput;
    lane.locations = {{place, Form::kResult, 0, 0}, {plan::Place::kOutput, Form::kResult, 0, 0}};
    const plan::Step move{plan::StepKind::kMove, 0, 1, 1, 0, 0};
    if (rank == 0) {
      lane.steps = {step(plan::StepKind::kSignal, 1), step(plan::StepKind::kSignal, 2), move,
                    step(plan::StepKind::kWait, 1), step(plan::StepKind::kWait, 2)};
    } else {
      lane.steps = {step(plan::StepKind::kWait, 0), move, step(plan::StepKind::kSignal, 0)};
    }
  }
  return plan;
}

/// The kernel that interprets no plan, several times on the same areas.
std::string run_one_shot(test::DeviceRanks& ranks, test::Case test) {
  test.count = 200;
  const auto inputs = test::DeviceRanks::make_inputs(test, 9);
  std::vector<std::unique_ptr<test::DeviceRanks::DeviceBuffers>> buffers;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    buffers.push_back(std::make_unique<test::DeviceRanks::DeviceBuffers>(ranks.device(rank), test,
                                                                         rank, inputs[rank]));
  }
  std::string complaint;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    for (int round = 0; round < 4; ++round) {
      complaint += test::said(ranks.mesh().launch_one_shot(
          static_cast<int>(rank), ranks.call_of(test, rank, buffers), ranks.stream(rank)));
    }
  }
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    complaint += test::said(cudaStreamSynchronize(ranks.stream(rank))) +
                 test::said(ranks.mesh().check(static_cast<int>(rank)));
  }
  return complaint.empty() ? test::DeviceRanks::compare(test, inputs, buffers) : complaint;
}

std::string run_all(cuda::SlotFormat format) {
  exec::CudaMeshOptions options;
  options.devices = {0, 1, 2};
  options.slot_count = 2;
  options.slot_bytes = 1024;
  options.format = format;
  options.threads = 64;
  options.timeout = std::chrono::seconds(2);
  std::string complaint;
  const auto ranks = test::DeviceRanks::open(options, complaint);
  if (!complaint.empty()) return complaint;
  test::Case test;
  test.count = 1500;  // Several tiles.
  test.ranks = kRanks;
  test.exact = true;
  const plan::Plan first = signals_first();
  if (const Status status = plan::verify(first); !status) return status.error().to_string();
  auto broadcast = ranks->mesh().load(first);
  if (!broadcast) return broadcast.error().to_string();
  test.collective = Collective::kBroadcast;
  if (complaint = run_lowered(*ranks, *broadcast, test); !complaint.empty()) return complaint;
  test.collective = Collective::kAllReduce;
  if (complaint = run_one_shot(*ranks, test); !complaint.empty()) return complaint;
  for (const char* name : {"one_shot", "two_shot", "ring"}) {
    const plan::Plan plan =
        build(*find_algorithm(Collective::kAllReduce, name), {Collective::kAllReduce, kRanks});
    auto loaded = ranks->mesh().load(plan);
    if (!loaded) return loaded.error().to_string();
    if (complaint = ranks->run(*loaded, test, 1, 2); !complaint.empty()) return complaint;
    const auto direct = plan::direct(plan);
    if (!direct) continue;
    auto lowered = ranks->mesh().load(*direct);
    if (!lowered) return lowered.error().to_string();
    if (complaint = run_lowered(*ranks, *lowered, test); !complaint.empty()) return complaint;
  }
  return "";
}

}  // namespace
}  // namespace tutti

int main(int count, char** words) {
  const std::string word = count > 1 ? words[1] : "";
  for (const auto format : tutti::cuda::kSlotFormats) {
    const std::string complaint = tutti::run_all(format);
    if (complaint.empty()) continue;
    std::fprintf(stderr, "%s: %s\n", tutti::cuda::to_string(format), complaint.c_str());
    return 1;
  }
  if (word == "list") std::fputs(tutti::simt::mistakes_met().c_str(), stdout);
  return 0;
}
