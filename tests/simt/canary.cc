// File: simt/canary.cc: calls in all slot formats, that go wrong if any one barrier, wait or memory
// order of the kernels is left out (SIMT_MISTAKE, see engine.h). Exits with 1 and a line where a
// result is wrong or a wait ended; `list` prints the mistakes that can be planted.
#include <cstdio>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "plan/passes/passes.h"
#include "plan/verify/verify.h"
#include "simt/engine.h"
#include "simt/fused_cases.h"
#include "simt/message_cases.h"
#include "simt/multimem_cases.h"
#include "simt/program_kernel_cases.h"

namespace tutti {
namespace {

constexpr int kRanks = 3;

/// A plan that touches peers' buffers.
std::string run_lowered(test::DeviceRanks& ranks, const exec::CudaPlan& plan,
                        const test::Case& test) {
  return ranks.run_mapped(test, 1, [&](int rank, const exec::CudaCall& call, cudaStream_t stream) {
    return ranks.mesh().launch(rank, plan, call, stream);
  });
}

std::string run_two_shot(test::DeviceRanks& ranks, test::Case test) {
  test.count = 20000;
  return ranks.run_mapped(test, 1, [&](int rank, const exec::CudaCall& call, cudaStream_t stream) {
    return ranks.mesh().launch_two_shot(rank, call, stream);
  });
}

/// A broadcast that begins with signals, right after all ranks have met.
plan::Plan signals_first() {
  plan::Plan plan;
  plan.name = "signals_first";
  plan.shape = {Collective::kBroadcast, kRanks};
  plan.entry_barrier = true;
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

/// A broadcast in so many pieces that its steps need several pages, of which only the first begins
/// with moves that a block takes together.
plan::Plan many_pieces() {
  using enum plan::Place;
  plan::Plan plan;
  plan.name = "many_pieces";
  plan.shape = {Collective::kBroadcast, kRanks};
  plan.pieces = 2 * cuda::kPageSteps - 6;
  plan.ranks.resize(kRanks);
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    plan::Lane& lane = plan.ranks[rank].lanes.emplace_back();
    const auto move = [&lane](std::uint32_t chunk, std::vector<plan::Location> from_and_to) {
      const auto first = static_cast<std::uint32_t>(lane.locations.size());
      const auto targets = static_cast<std::uint16_t>(from_and_to.size() - 1);
      lane.locations.insert(lane.locations.end(), from_and_to.begin(), from_and_to.end());
      lane.steps.push_back({plan::StepKind::kMove, 0, 1, targets, first, chunk});
    };
    for (std::uint32_t chunk = 0; chunk < plan.pieces; ++chunk) {
      const plan::Location input{kInput, Form::kResult, 0, chunk};
      const plan::Location output{kOutput, Form::kResult, 0, chunk};
      const auto slot = [](std::uint16_t peer) {
        return plan::Location{kSlot, Form::kResult, peer, 0};
      };
      if (rank != 0) {
        move(chunk, {slot(0), output});
      } else if (chunk == 0) {
        move(chunk, {input, slot(1)});
        move(chunk, {input, slot(2)});
        move(chunk, {input, output});
      } else {
        move(chunk, {input, output, slot(1), slot(2)});
      }
    }
  }
  return plan;
}

/// The kernel that interprets no plan, several times on the same areas.
std::string run_one_shot(test::DeviceRanks& ranks, test::Case test) {
  test.count = 1000;  // Several units for a thread.
  const auto inputs = test::DeviceRanks::make_inputs(test, 9);
  const auto buffers = ranks.make_buffers(test, inputs);
  std::string complaint;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    for (int round = 0; round < 4; ++round) {
      complaint += test::said(ranks.mesh().launch_one_shot(
          static_cast<int>(rank), ranks.call_of(test, rank, buffers), ranks.stream(rank)));
    }
  }
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    complaint += test::said(cudaStreamSynchronize(ranks.stream(rank))) +
                 test::said(ranks.mesh().rings().check(static_cast<int>(rank)));
  }
  return complaint.empty() ? test::DeviceRanks::compare(test, inputs, buffers) : complaint;
}

/// Over multicast memory, with several tiles; by the switch and in canonical order.
std::string run_multimem(test::DeviceRanks& ranks, test::Case test) {
  std::string wrong;
  test::MulticastRanks memory(ranks, kRanks, 16 * test::kSmallArea, 1, wrong);
  test.count = 5 * test::kSmallArea / sizeof(float);
  for (const bool any_order : {false, true}) {
    for (const test::Lies lies : {test::Lies{false, false}, test::Lies{true, true}}) {
      if (wrong.empty()) wrong = memory.run(test, any_order, lies, 1);
    }
  }
  test.collective = Collective::kAllGather;
  return wrong.empty() ? memory.run(test, false, {}, 1) : wrong;
}

/// The kernels that know no slots. Long enough that threads are far apart where they leave.
std::string run_fused(test::DeviceRanks& ranks, test::Case test) {
  if (std::string wrong = run_two_shot(ranks, test); !wrong.empty()) return wrong;
  const test::NormCase norm{test.type, 6, 24000, 0.25F, true};
  if (std::string wrong = test::run_norm(ranks, kRanks, norm, 1); !wrong.empty()) return wrong;
  const test::SgdCase sgd{test.type, 60000, 0.125F, 0.5F, 0.25F};
  if (std::string wrong = test::run_sgd(ranks, kRanks, sgd, 1); !wrong.empty()) return wrong;
  return run_multimem(ranks, test);
}

/// Kernels of a program's own, of which each call finds the windows as the one before left them.
std::string run_program(test::DeviceRanks& ranks) {
  test::ProgramRanks program(ranks, kRanks);
  if (std::string wrong = program.pass_on(4000, 4); !wrong.empty()) return wrong;
  for (std::uint64_t seed = 1; seed < 4; ++seed) {
    if (std::string wrong = program.reduce(test::kProgramReductions[0], 6000, seed); !wrong.empty())
      return wrong;
  }
  return "";
}

std::string run_all(cuda::SlotFormat format) {
  exec::CudaMeshOptions options;
  options.devices = {0, 1, 2};
  options.slot_count = 2;
  options.slot_bytes = 1024;
  options.format = format;
  options.threads = test::kThreads;
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
  const plan::Plan many = many_pieces();
  if (const Status status = plan::verify(many); !status) return status.error().to_string();
  auto pages = ranks->mesh().load(many);
  if (!pages) return pages.error().to_string();
  test.count = 40000;  // Several tiles of each piece.
  if (complaint = ranks->run(*pages, test, 1, 2); !complaint.empty()) return complaint;
  test.count = 1500;
  test.collective = Collective::kAllReduce;
  if (complaint = run_one_shot(*ranks, test); !complaint.empty()) return complaint;
  if (complaint = test::run_messages(*ranks, {kRanks}, 1, 2); !complaint.empty()) return complaint;
  if (format == cuda::SlotFormat::kSimple) {
    complaint = run_fused(*ranks, test);
    if (complaint.empty()) complaint = run_program(*ranks);
  }
  if (!complaint.empty()) return complaint;
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
