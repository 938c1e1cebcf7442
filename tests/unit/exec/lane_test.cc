// All ranks of a plan in one thread: a lane may be polled in any order, and what it sends before
// its turn changes nothing but how long others wait.
#include "exec/lane.h"

#include <cstring>
#include <memory>
#include <numeric>
#include <random>

#include "algorithms/algorithm.h"
#include "exec/links.h"
#include "plan/passes/passes.h"
#include "plan/text/text.h"
#include "plan/verify/verify.h"
#include "support/catch.h"
#include "support/cluster.h"
#include "unit/exec/two_ranks.h"

namespace tutti::test {
namespace {

using exec::Poll;

constexpr std::size_t kTileElements = 16;

/// The lanes of all ranks, with what they need.
class OneThread {
 public:
  OneThread(const plan::Plan& plan, std::uint32_t slots) : plan_(plan) {
    RegionConfig config;
    config.rank_count = static_cast<std::uint32_t>(plan.ranks.size());
    config.slot_count = config.multicast_slots = slots;
    config.slot_bytes = kTileElements * sizeof(float);
    config.lanes = static_cast<std::uint32_t>(plan.ranks[0].lanes.size());
    memory_ = std::make_unique<Memory>(Region::bytes_for(config), false, 0);
    std::memset(memory_->data(), 0, Region::bytes_for(config));
    region_ = Region(memory_->data(), config);
    region_.format();
    for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
      const int me = static_cast<int>(rank);
      links_.push_back(std::make_unique<exec::Links>(region_, me, nullptr));
      scratch_.emplace_back(plan.ranks[rank].scratch_chunks * config.slot_bytes);
      for (std::size_t lane = 0; lane < plan.ranks[rank].lanes.size(); ++lane) {
        lanes_.push_back(std::make_unique<exec::BoundLane>(
            plan_, me, lane, *links_.back(), scratch_.back().data(), config.slot_bytes));
        rank_of_.push_back(rank);
      }
    }
    contexts_.resize(plan.ranks.size());
    buffers_.resize(plan.ranks.size());
  }

  void start(const Case& test, std::uint64_t seed) {
    inputs_.assign(plan_.ranks.size(), Buffer(test.input_bytes()));
    for (std::size_t rank = 0; rank < inputs_.size(); ++rank) {
      fill(test, static_cast<int>(rank), seed, inputs_[rank].data());
      prepare(test, rank);
    }
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane)
      lanes_[lane]->start(contexts_[rank_of_[lane]]);
  }

  /// A call of that case, polled in an order of `random`'s. Empty, or what was wrong.
  std::string run(const Case& test, std::mt19937_64& random) {
    start(test, random());
    std::vector<std::size_t> left(lanes_.size());
    std::iota(left.begin(), left.end(), 0);
    for (std::size_t idle = 0; !left.empty(); ++idle) {
      if (idle > 100 * lanes_.size()) return "no lane gets any further";
      const std::size_t at = random() % left.size();
      const Poll result = lanes_[left[at]]->poll();
      if (result != Poll::kPending) idle = 0;
      if (result == Poll::kDone) left.erase(left.begin() + static_cast<std::ptrdiff_t>(at));
    }
    for (std::size_t rank = 0; rank < inputs_.size(); ++rank) {
      const Buffer want = expected(test, static_cast<int>(rank), inputs_);
      if (!want.empty() &&
          std::memcmp(contexts_[rank].buffers.output, want.data(), want.size()) != 0)
        return "rank " + std::to_string(rank) + " has another result";
    }
    return "";
  }

  exec::BoundLane& first_lane() { return *lanes_.front(); }
  exec::Links& links(std::size_t rank) { return *links_[rank]; }

 private:
  void prepare(const Case& test, std::size_t rank) {
    const CollectiveTraits traits = traits_of(test.collective);
    const std::size_t block = test.count * size_of(test.type), most = block * plan_.ranks.size();
    exec::CallContext& context = contexts_[rank];
    buffers_[rank].assign(2 * most, std::byte{0});
    std::byte *output = buffers_[rank].data(), *input = output + most;
    if (test.in_place) {
      input = output + (traits.output_each && !traits.input_each ? rank * block : 0);
      if (traits.input_each && !traits.output_each) output += rank * block;
    }
    if (!traits.root_input || static_cast<int>(rank) == test.root)
      std::copy(inputs_[rank].begin(), inputs_[rank].end(), input);
    context.buffers.input = input;
    context.buffers.output = output;
    context.arithmetic = {test.type, test.op, test.ranks, 1, 1};
    context.count = test.count;
    context.tile_elements = kTileElements;
    const std::size_t largest =
        plan::piece_of(test.count, plan_.pieces, 0, kCacheLine / size_of(test.type)).count;
    context.tiles = (largest + kTileElements - 1) / kTileElements;
  }

  const plan::Plan plan_;
  std::unique_ptr<Memory> memory_;
  Region region_;
  std::vector<std::unique_ptr<exec::Links>> links_;
  std::vector<std::vector<std::byte>> scratch_;
  std::vector<std::unique_ptr<exec::BoundLane>> lanes_;
  std::vector<std::size_t> rank_of_;  // By lane.
  std::vector<exec::CallContext> contexts_;
  std::vector<Buffer> inputs_, buffers_;
};

TEST_CASE("every algorithm, its lanes polled in any order, in place and not") {
  const std::uint64_t seed = Catch::rngSeed();
  std::mt19937_64 random(seed);
  std::size_t ran = 0;
  for (const Algorithm* algorithm : algorithms()) {
    for (const int ranks : {2, 3, 4, 7}) {
      plan::Shape shape{algorithm->collective, ranks, 0, 1};
      if (has_root(algorithm->collective))
        shape.root = static_cast<int>(random() % shape.rank_count);
      if (!algorithm->applies(shape)) continue;
      plan::Plan plan = build(*algorithm, shape);
      if (auto cast = plan::multicast(plan); cast && random() % 2 == 0) plan = *std::move(cast);
      const auto slots = static_cast<std::uint32_t>(1 + random() % 5);
      INFO("seed " << seed << ", " << to_string(algorithm->collective) << " " << algorithm->name
                   << ", " << ranks << " ranks, " << slots << " slots");
      OneThread all(plan, slots);
      for (const bool in_place : {false, true, true}) {  // One call after the other.
        if (in_place && plan.apart) continue;
        Case test;
        test.collective = algorithm->collective;
        test.ranks = ranks;
        test.root = shape.root;
        test.in_place = in_place;
        test.exact = true;
        test.count = 1 + random() % (8 * kTileElements * plan.pieces);
        INFO(test.to_string());
        REQUIRE(all.run(test, random) == "");
        ++ran;
      }
    }
  }
  CHECK(ran > 100);
}

TEST_CASE("a rank that has to wait sends as many tiles as its rings take") {
  for (const auto& [collective, in_place] :
       {std::pair(Collective::kAllGather, false), std::pair(Collective::kAllGather, true),
        std::pair(Collective::kAllToAll, false), std::pair(Collective::kAllToAll, true),
        std::pair(Collective::kReduceScatter, true)}) {
    INFO(to_string(collective) << (in_place ? " in place" : ""));
    constexpr std::uint32_t kSlots = 3;
    const plan::Plan plan = build(*find_algorithm(collective, "direct"), {collective, 4, 0, 1});
    OneThread all(plan, kSlots);
    Case test;
    test.collective = collective;
    test.ranks = 4;
    test.count = kTileElements * 10;
    test.in_place = in_place;
    all.start(test, 1);
    CHECK(all.first_lane().poll() == Poll::kProgressed);
    CHECK(all.first_lane().poll() == Poll::kPending);
    CHECK(all.first_lane().waiting_for() > 0);
    exec::Inbox& inbox = all.links(1).from(0, 0);
    std::uint32_t there = 0;
    for (; inbox.has_slot(); ++there) inbox.release();
    CHECK(there == kSlots);
  }
}

/// To which every rank can be sent from any memory; counts what is.
class ZeroCopyLink final : public test::IdleLink {
 public:
  int zero_copy = 0;
  bool allows_zero_copy(int) const override { return true; }
  void send_zero_copy(int, std::size_t, std::uint64_t, SendBuffer) override { ++zero_copy; }
};

// Ranks 0 and 1 are of one host, rank 2 of another; rank 1 reduces.
constexpr std::string_view kReducedBesideRank0 =
    "plan mine all_reduce ranks 3 pieces 1 contract deterministic together\n"
    "rank 0\n lane 0\n"
    "  move 0: input[0] -> to(2):contribution\n"
    "  signal 1\n"
    "  wait 1\n"
    "rank 1\n lane 0\n"
    "  wait 0\n"
    "  move 0: input(0)[0], input[0], from(2):contribution -> output[0], OUTPUT, to(2):result\n"
    "  signal 0\n"
    "rank 2 scratch 1\n lane 0\n"
    "  move 0: input[0] -> to(1):contribution\n"
    "  move 0: from(0):contribution -> scratch[0]:contribution\n"
    "  move 0: from(1):result -> output[0]\n";

TEST_CASE("an input that a peer may write over in place is not lent") {
  for (const bool writes : {true, false}) {
    std::string text(kReducedBesideRank0);
    text.replace(text.find("OUTPUT"), 6, writes ? "output(0)[0]" : "to(0):result");
    if (!writes)
      text.replace(text.find("  wait 1\n"), 9, "  move 0: from(1):result -> output[0]\n  wait 1\n");
    const auto plan = plan::parse(text);
    REQUIRE(plan);
    const Status holds = plan::verify(*plan);
    INFO((holds ? "" : holds.error().what));
    REQUIRE(holds);
    RegionConfig config;
    config.rank_count = 3;
    Memory memory(Region::bytes_for(config), false, 0);
    std::memset(memory.data(), 0, Region::bytes_for(config));
    Region region(memory.data(), config);
    region.format();
    ZeroCopyLink remote_link;
    exec::Links links(region, 0, &remote_link);
    exec::BoundLane lane(*plan, 0, 0, links, nullptr, config.slot_bytes);
    std::vector<float> buffer(4096);
    exec::CallContext context;
    context.buffers.input = reinterpret_cast<const std::byte*>(buffer.data());
    context.buffers.output = reinterpret_cast<std::byte*>(buffer.data());
    context.arithmetic = {DataType::kFloat32, ReduceOp::kSum, 3, 1, 1};
    context.count = context.tile_elements = buffer.size();
    lane.start(context);
    CHECK(lane.poll() == Poll::kProgressed);
    CHECK(remote_link.zero_copy == (writes ? 0 : 1));
  }
}

}  // namespace
}  // namespace tutti::test
