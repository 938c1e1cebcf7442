// File: perf/plan_bench.cc: what plans cost: to build and to verify, by rank count; to interpret,
// by step; and what a communicator costs to make and to hold.
//   plan_bench [--json]
//
// The interpreter is measured with all ranks' lanes polled in turn by one thread over a region in
// plain memory, with one element per step: no time goes by in caches' traffic or in arithmetic, so
// the time per step is the interpreter's.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <vector>

#include "algorithms/algorithm.h"
#include "base/json.h"
#include "exec/lane.h"
#include "exec/links.h"
#include "perf/command_line/command_line.h"
#include "perf/sweep/buffer.h"
#include "perf/sweep/noise.h"
#include "plan/passes/passes.h"
#include "plan/verify/verify.h"
#include "tutti/communicator.h"

namespace {

using namespace tutti;  // NOLINT(google-build-using-namespace): it measures the insides.
using Clock = std::chrono::steady_clock;
using perf::median;

constexpr int kRounds = 5;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

std::size_t steps_of(const plan::RankPlan& rank) {
  std::size_t steps = 0;
  for (const plan::Lane& lane : rank.lanes) steps += lane.steps.size();
  return steps;
}

struct PlanCost {
  int ranks = 0;
  std::size_t steps = 0;  // Rank 0's.
  double build_ms = 0, verify_ms = 0;
};

PlanCost cost_of(const Algorithm& algorithm, int ranks) {
  const plan::Shape shape{algorithm.collective, ranks, 0, 1};
  PlanCost cost{ranks, 0, 0, 0};
  std::vector<double> builds, verifies;
  for (int round = 0; round < (ranks < 256 ? kRounds : 1); ++round) {
    const auto start = Clock::now();
    const plan::Plan made = build(algorithm, shape);
    builds.push_back(us_since(start) / 1e3);
    const auto built = Clock::now();
    if (auto verified = plan::verify(made); !verified) {
      fmt::print(stderr, "plan_bench: {}\n", verified.error().to_string());
      std::exit(1);
    }
    verifies.push_back(us_since(built) / 1e3);
    cost.steps = steps_of(made.ranks.front());
  }
  cost.build_ms = median(builds);
  cost.verify_ms = median(verifies);
  return cost;
}

/// All ranks of a plan in one thread.
class Interpreted {
 public:
  explicit Interpreted(plan::Plan plan)
      : plan_(std::move(plan)),
        ranks_(plan_.ranks.size()),
        config_(Region::default_config(static_cast<int>(ranks_))),
        memory_(Region::bytes_for(config_)),
        region_(memory_.data(), config_) {
    region_.format();
    const std::size_t count = std::size_t{16} * std::max(plan_.pieces, 1U);  // A piece is a line.
    inputs_.assign(ranks_, std::vector<float>(count * ranks_, 1));
    outputs_ = inputs_;
    contexts_.resize(ranks_);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      links_.push_back(std::make_unique<exec::Links>(region_, static_cast<int>(rank), nullptr));
      scratch_.emplace_back(plan_.ranks[rank].scratch_chunks * config_.slot_bytes);
      exec::CallContext& context = contexts_[rank];
      context.arithmetic = {DataType::kFloat32, ReduceOp::kSum, static_cast<int>(ranks_), 1, 1};
      context.count = count;
      context.tile_elements = config_.slot_bytes / sizeof(float);
      context.buffers.input = bytes(inputs_[rank]);
      context.buffers.output = bytes(outputs_[rank]);
      for (std::size_t peer = 0; peer < ranks_; ++peer) {
        context.buffers.peer_inputs.push_back(bytes(inputs_[peer]));
        context.buffers.peer_outputs.push_back(bytes(outputs_[peer]));
      }
      lanes_.emplace_back(plan_, static_cast<int>(rank), 0, *links_.back(), scratch_.back().data(),
                          config_.slot_bytes);
    }
  }

  /// One call by all ranks.
  void run() {
    for (std::size_t rank = 0; rank < ranks_; ++rank) lanes_[rank].start(contexts_[rank]);
    for (std::size_t done = 0; done < ranks_;) {
      done = 0;
      for (auto& lane : lanes_) done += lane.poll() == exec::Poll::kDone ? 1 : 0;
    }
  }
  std::size_t steps() const {
    std::size_t all = 0;
    for (const auto& rank : plan_.ranks) all += steps_of(rank);
    return all;
  }

 private:
  static std::byte* bytes(std::vector<float>& floats) {
    return reinterpret_cast<std::byte*>(floats.data());
  }
  plan::Plan plan_;
  std::size_t ranks_;
  RegionConfig config_;
  perf::Buffer memory_;
  Region region_;
  std::vector<std::vector<float>> inputs_, outputs_;
  std::vector<exec::CallContext> contexts_;
  std::vector<std::unique_ptr<exec::Links>> links_;
  std::vector<std::vector<std::byte>> scratch_;
  std::vector<exec::BoundLane> lanes_;
};

double ns_per_step(const plan::Plan& plan) {
  Interpreted all(plan);
  constexpr int kCalls = 2000;
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = Clock::now();
    for (int call = 0; call < kCalls; ++call) all.run();
    times.push_back(us_since(start) * 1e3 / kCalls / static_cast<double>(all.steps()));
  }
  return median(times);
}

/// Milliseconds until the first communicator of so many ranks, as threads, is ready.
double creation_ms(int ranks, std::string* description) {
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = Clock::now();
    auto comms = Communicator::in_process(ranks, Settings{});
    if (!comms) {
      fmt::print(stderr, "plan_bench: {}\n", comms.error().to_string());
      std::exit(1);
    }
    times.push_back(us_since(start) / 1e3);
    *description = comms->front().describe();
  }
  // The first one also prepares what later ones find done.
  return times.front();
}

const Algorithm& named(std::string_view name) {
  return *find_algorithm(Collective::kAllReduce, name);
}

}  // namespace

int main(int argc, char** argv) {
  tutti::perf::CommandLine app(
      "What plans cost: building, verifying, interpreting; and creating a communicator");
  bool as_json = false;
  app.add_flag("--json", as_json, "Print JSON");
  if (const auto code = app.parse_or_print(argc, argv)) return *code;

  Json json;
  std::string description;
  const double created = creation_ms(8, &description);
  json["communicator_8_ranks_ms"] = created;
  if (!as_json)
    fmt::print("First communicator of 8 ranks (threads): {:.2f} ms\n{}\n", created, description);

  const auto ring = build(named("ring"), {Collective::kAllReduce, 8, 0, 1});
  const auto two_shot = build(named("two_shot"), {Collective::kAllReduce, 8, 0, 1});
  const auto direct = plan::direct(two_shot);
  if (!as_json) fmt::print("Interpreter, 8 ranks in one thread, ns per step:\n");
  const auto interpret = [&](const char* what, const plan::Plan& plan) {
    const double ns = ns_per_step(plan);
    json["ns_per_step"][what] = ns;
    if (!as_json) fmt::print("  {:<44} {:6.1f}\n", what, ns);
  };
  interpret("ring (slots, 2 sources or 1)", ring);
  interpret("two_shot (slots, up to 8 sources, 8 targets)", two_shot);
  if (direct) interpret("two_shot+direct (signals, mapped buffers)", *direct);

  if (!as_json)
    fmt::print(
        "\nPlans, all-reduce, all ranks' plans built and verified, ms:\n  {:<18}{:>6}{:>10}"
        "{:>12}{:>12}\n",
        "algorithm", "ranks", "steps", "build", "verify");
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->collective != Collective::kAllReduce) continue;
    for (const int ranks : {8, 64, 512}) {
      if (!algorithm->applies({algorithm->collective, ranks, 0, 1})) continue;
      const PlanCost cost = cost_of(*algorithm, ranks);
      json["plans"].push_back({{"algorithm", algorithm->name},
                               {"ranks", ranks},
                               {"steps", cost.steps},
                               {"build_ms", cost.build_ms},
                               {"verify_ms", cost.verify_ms}});
      if (!as_json)
        fmt::print("  {:<18}{:>6}{:>10}{:>12.3f}{:>12.3f}\n", algorithm->name, ranks, cost.steps,
                   cost.build_ms, cost.verify_ms);
    }
  }
  if (as_json) fmt::print("{}\n", json.text({.indent = 2, .sorted = true}));
  return 0;
}
