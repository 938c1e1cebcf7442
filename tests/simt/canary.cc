// File: simt/canary.cc: calls of all kernels, in all slot formats, that go wrong if any one
// barrier, wait or memory order is left out (SIMT_MISTAKE, see engine.h). Exits with 1 and a line
// where a result is wrong or a wait ended.
//
//   simt_canary               all cases
//   simt_canary CASE...       these; each notices by itself what can be left out of its kernels
//   simt_canary cases         their names
//   simt_canary list CASE...  the mistakes that can be planted there, with SIMT_MISTAKE=list
#include <algorithm>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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

std::string run_two_shot(test::DeviceRanks& ranks, const test::Case& by_default) {
  test::Case test = by_default;
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
std::string run_one_shot(test::DeviceRanks& ranks, const test::Case& by_default) {
  test::Case test = by_default;
  test.count = 1000;  // Several units for a thread.
  return ranks.run_mapped(test, 1, [&](int rank, const exec::CudaCall& call, cudaStream_t stream) {
    return ranks.mesh().launch_one_shot(rank, call, stream);
  });
}

/// Over multicast memory, with several tiles; by the switch and in canonical order.
std::string run_multimem(test::DeviceRanks& ranks, const test::Case& by_default) {
  test::Case test = by_default;
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

/// Kernels of a program's own, of which each call finds the windows as the one before left them.
std::string run_program(test::DeviceRanks& ranks, const test::Case& /*test*/) {
  test::ProgramRanks program(ranks, kRanks);
  if (std::string wrong = program.pass_on(4000, 4); !wrong.empty()) return wrong;
  for (std::uint64_t seed = 1; seed < 4; ++seed) {
    if (std::string wrong = program.reduce(test::kProgramReductions[0], 6000, seed); !wrong.empty())
      return wrong;
  }
  return "";
}

// The kernels that know no slots are run long enough that threads are far apart where they leave.
std::string run_norm(test::DeviceRanks& ranks, const test::Case& test) {
  return test::run_norm(ranks, kRanks, {test.type, 6, 24000, 0.25F, true}, 1);
}
std::string run_sgd(test::DeviceRanks& ranks, const test::Case& test) {
  return test::run_sgd(ranks, kRanks, {test.type, 60000, 0.125F, 0.5F, 0.25F}, 1);
}

std::string run_messages(test::DeviceRanks& ranks, const test::Case& /*test*/) {
  return test::run_messages(ranks, {kRanks}, 1, 2);
}

std::string run_signals(test::DeviceRanks& ranks, const test::Case& by_default) {
  test::Case test = by_default;
  const plan::Plan plan = signals_first();
  if (const Status status = plan::verify(plan); !status) return status.error().to_string();
  auto loaded = ranks.mesh().load(plan);
  if (!loaded) return loaded.error().to_string();
  test.collective = Collective::kBroadcast;
  return run_lowered(ranks, *loaded, test);
}

std::string run_pages(test::DeviceRanks& ranks, const test::Case& by_default) {
  test::Case test = by_default;
  const plan::Plan plan = many_pieces();
  if (const Status status = plan::verify(plan); !status) return status.error().to_string();
  auto loaded = ranks.mesh().load(plan);
  if (!loaded) return loaded.error().to_string();
  test.collective = Collective::kBroadcast;
  test.count = 40000;  // Several tiles of each piece.
  return ranks.run(*loaded, test, 1, 2);
}

constexpr const char* kAlgorithms[] = {"one_shot", "two_shot", "ring"};

plan::Plan plan_of(Collective collective, const char* algorithm) {
  return build(*find_algorithm(collective, algorithm), {collective, kRanks});
}

/// `format`: over those of the mesh's slots; none: over its own.
std::string run_plan(test::DeviceRanks& ranks, const test::Case& test, const char* algorithm,
                     std::optional<cuda::SlotFormat> format = {}) {
  auto loaded = ranks.mesh().load(plan_of(test.collective, algorithm), format);
  return loaded ? ranks.run(*loaded, test, 1, 2) : loaded.error().to_string();
}
std::string run_plans(test::DeviceRanks& ranks, const test::Case& test) {
  for (const char* algorithm : kAlgorithms) {
    if (std::string wrong = run_plan(ranks, test, algorithm); !wrong.empty()) return wrong;
  }
  return "";
}

/// Encoded slots. To nearest, as both rounds have to have the same result.
std::string run_wire(test::DeviceRanks& ranks, const test::Case& by_default) {
  test::Case test = by_default;
  test.wire = Wire(WireFormat::kInt8, Rounding::kNearest);
  test.count = 7000;  // Several tiles, of a byte an element.
  for (const char* algorithm : {"one_shot", "two_shot"}) {
    if (std::string wrong = run_plan(ranks, test, algorithm); !wrong.empty()) return wrong;
  }
  // These wait for all others in each tile, so slots are free. A root waits for nothing else.
  test.collective = Collective::kBroadcast;
  test.count = 40000;
  return run_plan(ranks, test, "ring");
}

/// Calls over slots of all formats, one after the other.
std::string run_mixed(test::DeviceRanks& ranks, const test::Case& test) {
  for (const char* algorithm : kAlgorithms) {
    using enum cuda::SlotFormat;
    for (const auto format : {kPacked, kSimple, kLine, kPacked, kLine}) {
      if (std::string wrong = run_plan(ranks, test, algorithm, format); !wrong.empty())
        return wrong;
    }
  }
  return "";
}

std::string run_direct(test::DeviceRanks& ranks, const test::Case& test) {
  if (std::string wrong = run_signals(ranks, test); !wrong.empty()) return wrong;
  for (const char* algorithm : kAlgorithms) {
    const auto direct = plan::direct(plan_of(test.collective, algorithm));
    if (!direct) continue;
    auto loaded = ranks.mesh().load(*direct);
    if (!loaded) return loaded.error().to_string();
    if (std::string wrong = run_lowered(ranks, *loaded, test); !wrong.empty()) return wrong;
  }
  return "";
}

struct CanaryCase {
  const char* name;
  std::string (*run)(test::DeviceRanks& ranks, const test::Case& test);
  cuda::SlotFormat format = cuda::SlotFormat::kSimple;
};

using enum cuda::SlotFormat;
constexpr CanaryCase kCases[] = {{"direct", run_direct},
                                 {"plans", run_plans},
                                 {"plans_packed", run_plans, kPacked},
                                 {"plans_line", run_plans, kLine},
                                 {"plans_mixed", run_mixed},
                                 {"wire", run_wire},
                                 {"pages", run_pages},
                                 {"pages_packed", run_pages, kPacked},
                                 {"pages_line", run_pages, kLine},
                                 {"messages", run_messages},
                                 {"messages_packed", run_messages, kPacked},
                                 {"messages_line", run_messages, kLine},
                                 {"one_shot", run_one_shot},
                                 {"two_shot", run_two_shot},
                                 {"norm", run_norm},
                                 {"sgd", run_sgd},
                                 {"multimem", run_multimem},
                                 {"program", run_program}};

std::string run(const CanaryCase& one) {
  exec::CudaMeshOptions options;
  options.devices = {0, 1, 2};
  options.slot_count = 2;
  options.slot_bytes = 1024;
  options.format = one.format;
  if (one.format == cuda::SlotFormat::kSimple) {
    options.more = {{kPacked, 1, 1024}, {kLine, 1, 1024}};
  }
  options.threads = test::kThreads;
  options.timeout = std::chrono::seconds(2);
  std::string complaint;
  const auto ranks = test::DeviceRanks::open(options, complaint);
  if (!complaint.empty()) return complaint;
  test::Case test;
  test.collective = Collective::kAllReduce;
  test.count = 1500;  // Several tiles.
  test.ranks = kRanks;
  test.exact = true;
  return one.run(*ranks, test);
}

/// Those that are named; all if none is.
bool is_asked_for(const CanaryCase& one, std::span<char*> names) {
  return names.empty() || std::any_of(names.begin(), names.end(), [&](const char* name) {
           return std::string_view(name) == one.name;
         });
}

}  // namespace
}  // namespace tutti

int main(int count, char** words) {
  const std::span<char*> all(words + 1, static_cast<std::size_t>(count - 1));
  const std::string_view first = all.empty() ? "" : all[0];
  const auto names = all.subspan(first == "list" ? 1 : 0);
  for (const tutti::CanaryCase& one : tutti::kCases) {
    if (first == "cases") {
      std::puts(one.name);
      continue;
    }
    if (!tutti::is_asked_for(one, names)) continue;
    const std::string complaint = tutti::run(one);
    if (complaint.empty()) continue;
    std::fprintf(stderr, "%s: %s\n", one.name, complaint.c_str());
    return 1;
  }
  if (first == "list") std::fputs(tutti::simt::mistakes_met().c_str(), stdout);
  return 0;
}
