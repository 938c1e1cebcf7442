// Every registered algorithm, at every small rank count: its plans verify with the fewest slots
// that a channel can have, keep the contract that they claim, and cost what the algorithm claims.
// The tables of docs/algorithms.md are those claims. A new algorithm is covered as soon as it is
// registered; no case here knows one by name.
#include "algorithms/algorithm.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "algorithms/ranks.h"
#include "plan/verify/verify.h"
#include "support/catch.h"
#include "support/claims.h"
#include "support/plan_cost.h"
#include "support/sample.h"
#include "support/trees.h"

namespace tutti {
namespace {

using namespace std::string_view_literals;
using plan::Plan;
using plan::Shape;
using test::Cost;
using test::cost_of;
using test::kSanitized;
using test::Sample;

std::string numbers(const std::vector<int>& list) {
  std::string text;
  for (const int number : list) text += std::to_string(number) + " ";
  return text;
}

std::string describe(const Algorithm& algorithm, const Shape& shape) {
  return std::string(to_string(shape.collective)) + " " + std::string(algorithm.name) + ", " +
         std::to_string(shape.rank_count) + " ranks, root " + std::to_string(shape.root) +
         ", groups of " + numbers(shape.groups.sizes) + "weights " + numbers(shape.weights) + ", " +
         std::to_string(shape.trees.size()) + " trees";
}

// Empty if all is well. Checks the plan itself, and that its claim is not too modest: a relaxed
// plan is never chosen by default, so one that happens to be deterministic would go to waste.
std::string complaint(const Algorithm& algorithm, const Shape& shape) {
  Plan plan = build(algorithm, shape);
  for (const std::uint32_t slots : {1u, 2u}) {
    const Status status = plan::verify(plan, {.slots = slots});
    if (!status) return status.error().what;
  }
  if (plan.contract == Contract::kRelaxed) {
    plan.contract = Contract::kDeterministic;
    if (plan::verify(plan)) return "is deterministic, but claims the relaxed contract";
  }
  return {};
}

std::set<int> roots(const Algorithm& algorithm, int n) {
  if (!has_root(algorithm.collective)) return {0};
  return {0, std::min(1, n - 1), n / 2, n - 1};
}

// All that a shape may say of n ranks.
std::vector<Shape> shapes(Collective collective, int n, int root) {
  std::vector<Shape> all;
  const plan::GroupSizes groups[] = {1, 2, 3, 4, 8, {2, 4}, {2, 6}, {3, 6}, {3, 9}, {2, 4, 8}};
  for (const auto& sizes : groups) all.push_back({collective, n, root, sizes});
  for (const int period : {1, 2, 5}) {  // Equal weights; 0, 1, 0, 1, ...; 0, 1, 2, 3, 4, 0, ...
    auto& weights = all.emplace_back(Shape{collective, n, root}).weights;
    for (int rank = 0; rank < n; ++rank) weights.push_back(period == 1 ? 3 : rank % period);
  }
  all.emplace_back(Shape{collective, n, root}).trees = {test::star(n, root)};
  all.emplace_back(Shape{collective, n, root}).trees = {test::chain(n, root), test::star(n, root)};
  all.emplace_back(Shape{collective, n, root}).trees = test::some_trees(collective, n, root, 3);
  return all;
}

TEST_CASE("every algorithm's plans verify, and keep the contract that they claim") {
  std::mt19937 random(Catch::rngSeed());
  for (const Algorithm* algorithm : algorithms()) {
    int plans = 0;
    Sample sample;
    for (int n = 1; n <= 33; ++n) {
      for (const int root : roots(*algorithm, n)) {
        for (const Shape& shape : shapes(algorithm->collective, n, root)) {
          if (!algorithm->applies(shape)) continue;
          sample.add("", [&plans, algorithm, shape] {
            ++plans;
            INFO(describe(*algorithm, shape));
            REQUIRE(complaint(*algorithm, shape) == "");
          });
        }
      }
    }
    sample.run(random);
    INFO(algorithm->name);
    REQUIRE(plans > 0);
  }
}

TEST_CASE("every algorithm's plans verify at random larger shapes") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937 random(seed);
  const auto up_to = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (const Algorithm* algorithm : algorithms()) {
    for (int round = 0; round < (kSanitized ? 2 : 8); ++round) {
      const int n = up_to(34, 100);
      const int root = has_root(algorithm->collective) ? up_to(0, n - 1) : 0;
      Shape shape{algorithm->collective, n, root, up_to(1, n)};
      if (round % 2 == 1) {  // Nested groups are full.
        const int inner = up_to(2, 4), outer = inner * up_to(2, 4);
        shape = {algorithm->collective, outer * up_to(2, 5), 0, {inner, outer}};
      }
      for (int rank = 0; rank < shape.rank_count; ++rank) shape.weights.push_back(up_to(0, 3));
      for (int tree = up_to(0, 4); tree > 0; --tree) {
        const int other =
            has_root(algorithm->collective) ? shape.root : up_to(0, shape.rank_count - 1);
        shape.trees.push_back(test::random_tree(random, shape.rank_count, other));
      }
      if (!algorithm->applies(shape)) continue;
      INFO(describe(*algorithm, shape));
      REQUIRE(complaint(*algorithm, shape) == "");
    }
  }
}

TEST_CASE("algorithms have names of their own") {
  std::set<std::pair<Collective, std::string_view>> names;
  for (const Algorithm* algorithm : algorithms()) {
    INFO(algorithm->name);
    REQUIRE(!algorithm->name.empty());
    REQUIRE(algorithm->name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") ==
            std::string_view::npos);
    REQUIRE(names.insert({algorithm->collective, algorithm->name}).second);
    REQUIRE(find_algorithm(algorithm->collective, algorithm->name) == algorithm);
  }
  REQUIRE(find_algorithm(Collective::kBroadcast, "one_shot") == nullptr);
  REQUIRE(find_algorithm(Collective::kAllReduce, "") == nullptr);
}

// In units of one chunk per slot, the least that has to travel: each chunk of a sum takes n-1
// messages to come together, and each chunk of an output one to each rank that does not have it.
int fewest_messages(const Plan& plan) {
  const int others = plan.shape.rank_count - 1;
  const CollectiveTraits traits = traits_of(plan.shape.collective);
  const auto chunks = static_cast<int>(plan.pieces);
  // An all-to-all has a block for each pair; a rooted one leaves the root, or comes to it.
  const int blocks =
      traits.input_each || traits.output_each
          ? (has_root(plan.shape.collective) ? others : plan.shape.rank_count * others)
          : others;
  return (plan.shape.collective == Collective::kAllReduce ? 2 : 1) * blocks * chunks;
}

// Chunks of the message, M: all blocks together, or what one rank gives of an all-to-all.
double chunks_of_message(const Plan& plan) {
  const CollectiveTraits traits = traits_of(plan.shape.collective);
  return plan.pieces * (traits.input_each || traits.output_each ? plan.shape.rank_count : 1.0);
}

// All claims of one algorithm, held against its plans.
class Claimed {
 public:
  explicit Claimed(const Algorithm& algorithm) : claims_(algorithm.claims), algorithm_(algorithm) {}

  // Empty if the plan of this shape is as claimed.
  std::string complaint(const Shape& shape) {
    const Plan plan = build(algorithm_, shape);
    const Cost cost = cost_of(plan);
    if (shape.rank_count == 1) return cost.total == 0 ? "" : "one rank sends messages";
    std::uint32_t scratch = 0;
    for (const auto& rank : plan.ranks) scratch = std::max(scratch, rank.scratch_chunks);
    const double whole = chunks_of_message(plan), chunk = 1.0 / whole;
    const test::Letters letters = test::letters_of(shape);
    const std::string found[] = {rounds_.complaint(shape, letters, cost.rounds, 1),
                                 bytes_.complaint(shape, letters, cost.busiest / whole, chunk),
                                 peers_.complaint(shape, letters, cost.neighbours, 1),
                                 scratch_.complaint(shape, letters, scratch, 1),
                                 waits_.complaint(shape, letters, cost.chain, 1),
                                 between(shape, cost, whole),
                                 totals(plan, cost)};
    for (const std::string& each : found) {
      if (!each.empty()) return each;
    }
    return {};
  }

  // Empty if, over all the plans, no claim was too modest.
  std::string too_modest(int most_ranks) const {
    for (const test::ClaimCheck* check : {&rounds_, &bytes_, &peers_, &scratch_, &waits_}) {
      if (auto found = check->too_modest(most_ranks); !found.empty()) return found;
    }
    if (even_ && !algorithm_.even) return "all ranks send as much in every plan: claim .even";
    if (!sends_more_ && algorithm_.sends_more) return "no plan sends more than it has to";
    return {};
  }

 private:
  std::string between(const Shape& shape, const Cost& cost, double whole) {
    if (claims_.between.text.empty()) return {};
    const int n = shape.rank_count;
    for (std::size_t level = 0; level < cost.crossing.size(); ++level) {
      const int size = shape.groups.sizes[level];
      const int first = has_root(shape.collective) ? shape.root / size * size : 0;
      const int beside = std::min(size, n - first);
      const test::Letters letters{{"n", n},
                                  {"M", 1},
                                  {"s", size},
                                  {"G", shape.groups.sizes.back()},
                                  {"m", (n + size - 1) / size},
                                  {"o", n - beside}};
      if (auto found = between_.complaint(shape, letters, cost.crossing[level] / whole, 1);
          !found.empty())
        return found + ", between groups of " + std::to_string(size);
    }
    return {};
  }

  std::string totals(const Plan& plan, const Cost& cost) {
    const int fewest = fewest_messages(plan);
    if (cost.total < fewest) return "sends less than has to travel: fewest_messages() is wrong";
    sends_more_ = sends_more_ || cost.total > fewest;
    if (cost.total > fewest && !algorithm_.sends_more)
      return "sends " + std::to_string(cost.total) + " chunks in all, where " +
             std::to_string(fewest) + " have to travel: claim .sends_more";
    even_ = even_ && cost.busiest == cost.fewest;
    if (algorithm_.even && cost.busiest != cost.fewest)
      return "claims to be even: the ranks send " + std::to_string(cost.fewest) + " to " +
             std::to_string(cost.busiest) + " chunks";
    return {};
  }

  const Claims claims_;
  const Algorithm& algorithm_;
  test::ClaimCheck rounds_{"rounds", claims_.rounds.text}, bytes_{"bytes", claims_.bytes.text},
      peers_{"peers", claims_.peers.text}, scratch_{"scratch", claims_.scratch.text},
      waits_{"waits", claims_.waits.text}, between_{"between groups", claims_.between.text};
  bool even_ = true, sends_more_ = false;
};

TEST_CASE("algorithms cost what they claim and claim no more than they cost") {
  const int most = kSanitized ? 16 : 33;
  for (const Algorithm* algorithm : algorithms()) {
    Claimed claimed(*algorithm);
    std::string complaint;
    for (int n = 1; n <= 64 && complaint.empty(); n += n < most ? 1 : 31) {
      for (const Shape& shape : shapes(algorithm->collective, n, n / 3)) {
        if (!complaint.empty() || !algorithm->applies(shape)) continue;
        if (complaint = claimed.complaint(shape); !complaint.empty())
          complaint = describe(*algorithm, shape) + ": " + complaint;
      }
    }
    if (complaint.empty()) complaint = claimed.too_modest(most);
    INFO(to_string(algorithm->collective) << " " << algorithm->name);
    CHECK(complaint == "");
    CHECK(!algorithm->good_for.text.empty());
  }
}

TEST_CASE("a claim is refused if it is wrong or too modest") {
  const auto check = [](std::string_view claim, const std::function<double(int)>& cost) {
    test::ClaimCheck rounds("rounds", claim);
    for (int n = 2; n <= 16; ++n) {
      const Shape shape{Collective::kAllReduce, n};
      if (auto found = rounds.complaint(shape, test::letters_of(shape), cost(n), 1); !found.empty())
        return found;
    }
    return rounds.too_modest(16);
  };
  const auto levels = [](int n) { return level_count(n); };
  CHECK(check("k", levels) == "");
  CHECK(check("<= k", levels) == "");
  CHECK(check("< k", levels) == "rounds claimed: < k, that is 1.000000; found: 1.000000");
  CHECK(check("< 2k - 1/2", levels) == "");
  CHECK(check("2(k+1)/2 - 1", levels) == "");
  CHECK(check("k-1", levels) != "");
  CHECK(check("<= k-1", levels) != "");
  CHECK(check("<= k+1", levels) ==
        "rounds claimed: <= k+1; no plan for 5 to 8 ranks comes to that: the claim is too modest");
  CHECK(check("< 4k", levels) != "");
  CHECK(check("~ k", levels) != "");  // For n = 5 it is not more.
  CHECK(check("n a power of two: k; other n: <= n-1", levels) != "");
  CHECK(check("n a power of two: k; other n: <= min(n-1, k)", levels) == "");
  CHECK(check("n a power of two up to 8: k", levels) == "");
  CHECK_THROWS(check("k rounds", levels));
  CHECK_THROWS(check("some n: k", levels));
}

// ---- docs/algorithms.md ----

std::string with_signs(std::string_view claim) {
  std::string text(claim);
  for (const auto& [plain, sign] :
       {std::pair{"<= "sv, "≤ "sv}, {"~ "sv, "≈ "sv}, {"< "sv, "&lt; "sv}}) {
    for (std::size_t at = 0; (at = text.find(plain, at)) != std::string::npos; at += sign.size())
      text.replace(at, plain.size(), sign);
  }
  return text;
}

std::string row(const Algorithm& algorithm, std::vector<std::string>& sources) {
  const Claims& claims = algorithm.claims;
  std::string rounds = with_signs(claims.rounds.text), bytes = with_signs(claims.bytes.text);
  if (!claims.waits.text.empty()) rounds += "; waits: " + with_signs(claims.waits.text);
  if (algorithm.even) bytes += ", every rank";
  if (algorithm.sends_more) bytes += " (*)";
  if (!claims.between.text.empty()) bytes += "; between groups " + with_signs(claims.between.text);
  std::string source;
  if (!algorithm.source.empty()) {
    auto at = std::find(sources.begin(), sources.end(), algorithm.source);
    if (at == sources.end()) at = sources.insert(at, std::string(algorithm.source));
    source = "[" + std::to_string(at - sources.begin() + 1) + "]";
  }
  std::string text = "|";
  const std::string contract =
      reduces(algorithm.collective) ? std::string(algorithm.contract.words) : "";
  for (const std::string& cell :
       {"`" + std::string(algorithm.name) + "`", rounds, bytes, with_signs(claims.peers.text),
        with_signs(claims.scratch.text), contract, std::string(algorithm.good_for.text), source})
    text += cell.empty() ? " |" : " " + cell + " |";
  return text + "\n";
}

// The part of the page between the two lines that say so.
std::string tables() {
  std::string text;
  std::vector<std::string> sources;
  std::set<Collective> done;
  for (const Algorithm* first : algorithms()) {
    if (!done.insert(first->collective).second) continue;
    text += "\n### " + std::string(to_string(first->collective)) +
            "\n\n| name | rounds | bytes sent | peers | scratch | contract | good for | source |\n"
            "|---|---|---|---|---|---|---|---|\n";
    for (const Algorithm* algorithm : algorithms()) {
      if (algorithm->collective == first->collective) text += row(*algorithm, sources);
    }
  }
  text += "\n### Sources\n\n";
  for (std::size_t i = 0; i < sources.size(); ++i)
    text += std::to_string(i + 1) + ". " + sources[i] + ".\n";
  return text + "\n";
}

struct Page {
  std::string path, text, before, tables, after;
};

Page read_page() {
  Page page;
  const char* folder = std::getenv("TEST_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
  page.path = std::string(folder == nullptr ? "." : folder) + "/docs/algorithms.md";
  std::stringstream text;
  text << std::ifstream(page.path).rdbuf();
  page.text = text.str();
  constexpr std::string_view kBegin = "written by algorithms_test -->\n", kEnd = "<!-- end of";
  const std::size_t begin = page.text.find(kBegin), end = page.text.find(kEnd);
  INFO(page.path << " has lines that begin and end what is written here");
  REQUIRE(begin != std::string::npos);
  REQUIRE(end != std::string::npos);
  page.before = page.text.substr(0, begin + kBegin.size());
  page.tables = page.text.substr(page.before.size(), end - page.before.size());
  page.after = page.text.substr(end);
  return page;
}

TEST_CASE("the tables of the page are the claims") {
  INFO("build/release/tests/algorithms_test '[update]' writes them");
  CHECK(read_page().tables == tables());
}

// Not a test: hidden, and run by its tag alone.
TEST_CASE("write the tables of the page", "[.][update]") {
  const Page page = read_page();
  std::ofstream(page.path) << page.before << tables() << page.after;
}

}  // namespace
}  // namespace tutti
