// One random verified plan on all executors that a host has, and all have to give the same bits: a
// simulation of its moves one at a time (support/plan_simulator.h), and the lanes of the host
// executor over memory that all ranks share, with mapped buffers and without, and over a network
// that is slow and loses rails (support/net/slow_network.h). The verifier's symbols say beforehand
// that the plan is right: each result is compared with the reference arithmetic too.
//
// The input is a list of numbers (Choices): an algorithm, a shape, passes, changes of the plan that
// the verifier lets through, and a call. What an input lacks is 0.
#include "fuzz/frames.h"
#include "plan/passes/passes.h"
#include "plan/text/text.h"
#include "plan/verify/verify.h"
#include "support/kinds.h"
#include "support/net/slow_network.h"
#include "support/plan_mutator.h"
#include "support/plan_simulator.h"
#include "support/plans.h"

namespace {

using namespace tutti;
using namespace tutti::test;
using tutti::fuzz::require;

/// Numbers from the input, in order.
class Choices {
 public:
  explicit Choices(std::span<const std::uint8_t> bytes) : rest_(bytes) {}
  /// Below `count`.
  std::size_t pick(std::size_t count) {
    std::size_t value = 0;
    for (int i = 0; i < (count > 256 ? 4 : 1); ++i) {
      value = value << 8 | (rest_.empty() ? 0 : rest_[0]);
      if (!rest_.empty()) rest_ = rest_.subspan(1);
    }
    return value % count;
  }
  bool flip() { return pick(2) == 1; }

 private:
  std::span<const std::uint8_t> rest_;
};

constexpr std::size_t kMostLanes = 8, kMostCount = 700;

/// A shape to which the algorithm applies; empty: none of those here.
std::optional<plan::Shape> pick_shape(const Algorithm& algorithm, Choices& choices) {
  const int ranks = 2 + static_cast<int>(choices.pick(5));
  plan::Shape shape{algorithm.collective, ranks, 0};
  const auto root = static_cast<int>(choices.pick(static_cast<std::size_t>(ranks)));
  if (has_root(algorithm.collective)) shape.root = root;
  const std::size_t kind = choices.pick(4);
  if (algorithm.applies(shape)) return shape;
  if (kind == 0) shape.groups = 2;
  if (kind == 1) shape.groups = 3;
  for (int rank = 0; rank < ranks && kind == 2; ++rank) shape.weights.push_back((rank + 1) % 3);
  if (kind == 3) shape.trees = {chain(ranks, shape.root), star(ranks, shape.root)};
  return algorithm.applies(shape) ? std::optional(shape) : std::nullopt;
}

/// A plan that verifies: the algorithm's, lowered and changed.
std::optional<plan::Plan> pick_plan(Choices& choices) {
  const auto all = algorithms();
  const Algorithm& algorithm = *all[choices.pick(all.size())];
  const auto shape = pick_shape(algorithm, choices);
  if (!shape) return std::nullopt;
  plan::Plan plan = build(algorithm, *shape);
  if (choices.flip()) {
    if (auto lowered = plan::multicast(plan)) plan = *std::move(lowered);
  }
  if (const std::size_t lanes = 1 + choices.pick(2); lanes > 1)
    plan = plan::replicate(plan, static_cast<std::uint32_t>(lanes));
  const std::size_t changes = choices.pick(8);
  for (std::size_t i = 0; i < changes; ++i) {
    const std::uint64_t seed = choices.pick(1 << 16);
    plan::Plan changed =
        Mutator(plan, seed).mutate(static_cast<Mutation>(choices.pick(kMutations)));
    if (plan::verify(changed)) plan = std::move(changed);
  }
  for (const plan::RankPlan& rank : plan.ranks) {
    if (rank.lanes.size() > kMostLanes) return std::nullopt;
  }
  return plan;
}

/// The plan, and what it becomes where all map each other's buffers.
struct OnePlan final : exec::PlanSource {
  explicit OnePlan(const plan::Plan& one) : plain(one), mapped(plan::direct(one)) {}
  Result<exec::PlanChoice> choose(const exec::Call&, exec::Access access,
                                  std::size_t) const override {
    return exec::PlanChoice{access == exec::Access::kMapped && mapped ? &*mapped : &plain, 1, 0};
  }
  plan::Plan plain;
  std::optional<plan::Plan> mapped;
};

/// A region that all ranks share, as threads of one process do.
class SharedEndpoint final : public Endpoint {
 public:
  SharedEndpoint(Region region, bool maps) : region_(region), maps_(maps) {}
  const Region& region() const override { return region_; }
  BufferName name(const void* data, std::size_t) override {
    return maps_ ? BufferName{1, reinterpret_cast<std::uintptr_t>(data)} : BufferName{};
  }
  Result<std::byte*> map(int, BufferName name, std::size_t) override {
    return reinterpret_cast<std::byte*>(name.offset);
  }
  bool alive(int) const override { return true; }
  std::size_t shared_bytes() const override { return 0; }

 private:
  Region region_;
  bool maps_;
};

/// With short slots small calls have several tiles; long ones are sent from where they are.
RegionConfig small_region(int ranks, bool long_slots) {
  RegionConfig config = slow_region(ranks);
  config.slot_bytes = long_slots ? 8192 : 256;
  config.packet_slots = 16;
  config.packet_bytes = 1024;
  return config;
}

/// Ranks that share a region, all polled by this thread.
class SharedRanks {
 public:
  SharedRanks(RegionConfig config, const std::shared_ptr<const exec::PlanSource>& plans, bool maps,
              std::uint64_t seed)
      : random_(seed) {
    config.replica = 0;
    const std::size_t bytes = Region::bytes_for(config);
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)));
    std::fill_n(memory_.get(), bytes, std::byte{});
    Region region(memory_.get(), config);
    region.format();
    for (int rank = 0; rank < static_cast<int>(config.rank_count); ++rank) {
      exec::HostExecutor::Options options;
      options.plans = plans;
      executors_.push_back(std::make_unique<exec::HostExecutor>(
          std::make_unique<SharedEndpoint>(region, maps), rank, std::move(options)));
    }
  }
  exec::HostExecutor& operator[](int rank) { return *executors_[static_cast<std::size_t>(rank)]; }
  std::string finish(const std::function<void(std::size_t)>& done_with) {
    std::vector<bool> done(executors_.size());
    for (std::size_t left = done.size(), turns = 0; left != 0; ++turns) {
      if (turns == 10'000'000) return "it goes on for ever";
      const std::size_t rank = random_() % done.size();
      if (done[rank] || executors_[rank]->poll() != exec::Poll::kDone) continue;
      done[rank] = true;
      --left;
      if (const Status status = executors_[rank]->take_status(); !status)
        return status.error().to_string();
      done_with(rank);
    }
    return {};
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<exec::HostExecutor>> executors_;
};

void check(const std::string& complaint, const char* where, const plan::Plan& plan) {
  if (complaint.empty()) return;
  std::fprintf(stderr, "%s: %s\n%s", where, complaint.c_str(), plan::to_text(plan).c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices choices({data, size});
  const auto plan = pick_plan(choices);
  if (!plan) return 0;
  const Status verified = plan::verify(*plan);
  require(bool(verified), "a plan of the library does not verify");
  Case test;
  test.collective = plan->shape.collective;
  test.ranks = static_cast<int>(plan->ranks.size());
  test.root = plan->shape.root;
  test.type = all_types()[choices.pick(all_types().size())];
  test.count = 1 + choices.pick(kMostCount);
  test.exact = plan->contract == Contract::kRelaxed;
  // In any order small sums and maxima are exact; a scale would be this call's own.
  constexpr std::array kOps{ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProd,
                            ReduceOp::kAvg};
  test.op = kOps[choices.pick(test.exact ? 3 : kOps.size())];
  test.in_place = choices.flip() && !plan->apart && plan->shape.collective != Collective::kAllToAll;
  const std::uint64_t seed = choices.pick(1 << 16);
  const bool long_slots = choices.pick(4) == 1;
  if (long_slots) test.count *= 12;
  const RegionConfig region = small_region(test.ranks, long_slots);

  check(simulate(*plan, {.count = 1 + test.count % 13,
                         .tile = 3,
                         .slots = 1 + seed % 3,
                         .in_place = test.in_place,
                         .seed = seed})
            .value_or(""),
        "the simulation", *plan);
  const auto source = std::make_shared<OnePlan>(*plan);
  for (const bool maps : {false, true}) {
    if (maps && !source->mapped) continue;
    SharedRanks ranks(region, source, maps, seed);
    for (int call = 0; call < 2; ++call)
      check(run(ranks, test, seed), maps ? "mapped memory" : "shared memory", *plan);
  }
  const std::size_t rails = 1 + seed % 2;
  Ranks ranks({.region = region, .rails = rails}, source, seed);
  if (rails > 1) ranks.slowness().cut_one_in = 200;
  for (int call = 0; call < 2; ++call) check(run(ranks, test, seed), "a slow network", *plan);
  return 0;
}
