#include "planner/simulate_symmetry.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "plan/draft.h"
#include "plan/passes.h"
#include "plan/traffic.h"

namespace tutti::planner {
namespace {

constexpr std::size_t kMostLocations = std::size_t{1} << 25;  // Of the ranks that stand for all.
constexpr std::size_t kFewLocations = std::size_t{1} << 22;   // Up to which lanes are added.
constexpr std::size_t kMostRoutes = std::size_t{1} << 21;
constexpr double kSame = 1e-9;

std::size_t size_of_plan(const plan::RankPlan& rank) {
  std::size_t sum = 0;
  for (const plan::Lane& lane : rank.lanes) sum += lane.steps.size() + lane.locations.size();
  return sum;
}

bool has_peer(const plan::Location& at, bool is_source) {
  using plan::Place;
  return at.place == Place::kSlot || at.place == Place::kPeerInput ||
         at.place == Place::kPeerOutput || (at.place == Place::kMulticast && is_source);
}

// Plans of single ranks, as the simulation runs them, and whether they are alike.
class Ranks {
 public:
  Ranks(const Algorithm& algorithm, const plan::Shape& shape)
      : algorithm_(algorithm), shape_(shape) {}

  plan::RankPlan build(int rank) const {
    plan::RankPlan plan = tutti::build(algorithm_, shape_, Rank{rank});
    for (plan::Lane& lane : plan.lanes) {
      plan::DraftLane draft = plan::to_draft(lane);
      if (plan::join_moves(draft, plan::Join::kAll)) lane = plan::to_lane(draft);
    }
    return plan;
  }

  /// Whether rank `other` does what `rank` does, seen from itself.
  bool alike(const plan::RankPlan& a, int rank, const plan::RankPlan& b, int other) const {
    if (a.lanes.size() != b.lanes.size()) return false;
    for (std::size_t lane = 0; lane < a.lanes.size(); ++lane) {
      const std::size_t steps = a.lanes[lane].steps.size();
      if (steps != b.lanes[lane].steps.size()) return false;
      for (std::size_t i = 0; i < steps; ++i) {
        // As a rule they are alike as they stand; only else is it worth putting them in order.
        if (!same(a.lanes[lane], rank, b.lanes[lane], other, i) &&
            seen(a.lanes[lane], i, rank) != seen(b.lanes[lane], i, other))
          return false;
      }
    }
    return true;
  }

 private:
  // Whether a step is the same, seen from these ranks, in the order in which it is written.
  bool same(const plan::Lane& a, int rank, const plan::Lane& b, int other,
            std::size_t index) const {
    const plan::Step &x = a.steps[index], &y = b.steps[index];
    if (x.kind != y.kind || x.source_count != y.source_count || x.target_count != y.target_count)
      return false;
    if (x.kind != plan::StepKind::kMove) return distance(rank, x.peer) == distance(other, y.peer);
    for (std::uint32_t i = 0; i < std::uint32_t{x.source_count} + x.target_count; ++i) {
      const plan::Location &from = a.locations[x.first + i], &to = b.locations[y.first + i];
      if (from.place != to.place || from.form != to.form) return false;
      if (has_peer(from, i < x.source_count) &&
          distance(rank, from.peer) != distance(other, to.peer))
        return false;
    }
    return true;
  }
  using Seen = std::vector<std::tuple<int, int, int, int>>;
  int distance(int rank, int peer) const {
    return (peer - rank + shape_.rank_count) % shape_.rank_count;
  }
  // A step without chunks, its sources and targets in an order of their own.
  Seen seen(const plan::Lane& lane, std::size_t index, int rank) const {
    const plan::Step& step = lane.steps[index];
    if (step.kind != plan::StepKind::kMove)
      return {{static_cast<int>(step.kind), 0, 0, distance(rank, step.peer)}};
    Seen all;
    for (std::uint32_t i = 0; i < std::uint32_t{step.source_count} + step.target_count; ++i) {
      const plan::Location& at = lane.locations[step.first + i];
      const bool is_source = i < step.source_count;
      all.emplace_back(is_source ? 0 : 1, static_cast<int>(at.place), static_cast<int>(at.form),
                       has_peer(at, is_source) ? distance(rank, at.peer) : 0);
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  const Algorithm& algorithm_;
  const plan::Shape& shape_;
};

// Resources in classes, by what all images of a channel (or of a rank's compute) use.
class Classes {
 public:
  explicit Classes(const plan::CostModel& model) : model_(model), parents_(model.resources.size()) {
    std::iota(parents_.begin(), parents_.end(), 0U);
  }

  /// One orbit: the paths of all images. False if they differ in more than which resources.
  bool add(const std::vector<plan::Path>& images) {
    const plan::Path& first = images.front();
    for (const plan::Path& image : images) {
      if (image.uses.size() != first.uses.size() || image.own.latency_us != first.own.latency_us)
        return false;
      for (std::size_t i = 0; i < image.uses.size(); ++i) {
        if (std::abs(image.uses[i].share - first.uses[i].share) > kSame ||
            !alike(image.uses[i], first.uses[i]))
          return false;
        join(image.uses[i].resource, first.uses[i].resource);
        uses_.push_back(image.uses[i]);
      }
    }
    ends_.push_back(uses_.size());
    return true;
  }

  /// After all orbits: numbers the classes; false if a member of one carries more than another.
  bool settle() {
    numbers_.assign(parents_.size(), kNone);
    for (const plan::Use& use : uses_) {
      const std::uint32_t top = find(use.resource);
      if (numbers_[use.resource] != kNone) continue;
      if (numbers_[top] == kNone || top == use.resource) {
        if (numbers_[top] == kNone) {
          numbers_[top] = static_cast<std::uint32_t>(members_.size());
          representatives_.push_back(top);
          members_.push_back(1);  // The top is always used: tops are of used resources only.
        }
        if (top == use.resource) continue;
      }
      numbers_[use.resource] = numbers_[top];
      ++members_[numbers_[top]];
    }
    std::vector<double> load(parents_.size());
    std::size_t begin = 0;
    for (const std::size_t end : ends_) {
      if (!even(begin, end, load)) return false;
      begin = end;
    }
    return true;
  }

  std::uint32_t number(std::uint32_t resource) const { return numbers_[resource]; }
  std::size_t members(std::uint32_t number) const { return members_[number]; }
  const std::vector<std::size_t>& representatives() const { return representatives_; }
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

 private:
  bool alike(const plan::Use& a, const plan::Use& b) const {
    const plan::Resource &x = model_.resources[a.resource], &y = model_.resources[b.resource];
    return x.gigabytes_per_second == y.gigabytes_per_second && x.message_us == y.message_us;
  }
  std::uint32_t find(std::uint32_t node) {
    while (parents_[node] != node) node = parents_[node] = parents_[parents_[node]];
    return node;
  }
  void join(std::uint32_t a, std::uint32_t b) { parents_[find(a)] = find(b); }

  // Whether each class that the orbit touches is loaded evenly. `load` is all 0 before and after.
  bool even(std::size_t begin, std::size_t end, std::vector<double>& load) {
    std::vector<std::uint32_t> touched;
    for (std::size_t i = begin; i < end; ++i) {
      double& at = load[uses_[i].resource];
      if (at == 0) touched.push_back(uses_[i].resource);
      at += uses_[i].share;
    }
    std::vector<std::pair<std::uint32_t, double>> loads;  // Class and load.
    for (const std::uint32_t resource : touched)
      loads.emplace_back(numbers_[resource], std::exchange(load[resource], 0));
    std::sort(loads.begin(), loads.end());
    bool is_even = true;
    for (std::size_t i = 0; i < loads.size();) {
      std::size_t last = i;
      while (last < loads.size() && loads[last].first == loads[i].first) {
        is_even = is_even && std::abs(loads[last].second - loads[i].second) < kSame * 1e3;
        ++last;
      }
      is_even = is_even && last - i == members_[loads[i].first];
      i = last;
    }
    return is_even;
  }

  const plan::CostModel& model_;
  std::vector<std::uint32_t> parents_;
  std::vector<plan::Use> uses_;    // Of all images of all orbits,
  std::vector<std::size_t> ends_;  // and where each orbit's end.
  std::vector<std::uint32_t> numbers_;
  std::vector<std::size_t> members_;
  std::vector<std::size_t> representatives_;
};

using Orders = std::vector<std::vector<Rank>>;

// The paths of the images of what joins two ranks of a plan of `listed` ranks: shifted, and in the
// lanes [first, last).
std::vector<plan::Path> images(const plan::CostModel& model, const Orders& orders,
                               std::size_t listed, std::size_t from, std::size_t to,
                               std::size_t first, std::size_t last) {
  std::vector<plan::Path> paths;
  for (std::size_t lane = first; lane < last; ++lane) {
    const std::vector<Rank>& order = orders[lane];
    for (std::size_t shift = 0; shift < order.size(); shift += listed) {
      const Rank a = order[(from + shift) % order.size()];
      if (from == to) {  // Its compute.
        paths.emplace_back(LinkCost{}, std::vector{model.compute(a)});
      } else {
        paths.push_back(model.link(a, order[(to + shift) % order.size()]));
      }
    }
  }
  return paths;
}

// The classes; empty if the plan's images are not alike. `merged`: lanes are images too.
std::optional<Symmetric> quotient(const plan::Plan& plan,
                                  const std::vector<plan::TrafficChannel>& channels,
                                  const plan::CostModel& model, const Orders& orders, bool merged,
                                  std::uint32_t most_channels) {
  const std::size_t listed = plan.ranks.size(), lanes = orders.size();
  Classes classes(model);
  const auto add = [&](std::size_t from, std::size_t to) {
    if (merged) return classes.add(images(model, orders, listed, from, to, 0, lanes));
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      if (!classes.add(images(model, orders, listed, from, to, lane, lane + 1))) return false;
    }
    return true;
  };
  for (std::size_t rank = 0; rank < listed; ++rank) {
    if (!add(rank, rank)) return std::nullopt;
  }
  for (const plan::TrafficChannel& channel : channels) {
    if (channel.distance == 0) continue;
    const std::size_t to = (channel.from + channel.distance) % orders[0].size();
    if (!add(channel.from, to)) return std::nullopt;
  }
  if (!classes.settle()) return std::nullopt;

  Symmetric result;
  result.representatives = classes.representatives();
  result.orders = merged ? Orders{orders[0]} : orders;
  const std::size_t copies_of_listed = orders[0].size() / listed;
  const double count =
      static_cast<double>(copies_of_listed) * static_cast<double>(merged ? lanes : 1);
  for (std::uint32_t resource = 0; resource < model.resources.size(); ++resource)
    result.classes.push_back(classes.number(resource));
  for (std::uint32_t number = 0; number < result.representatives.size(); ++number)
    result.shares.push_back(count / static_cast<double>(classes.members(number)));
  std::size_t size = 0;
  for (const plan::RankPlan& rank : plan.ranks) size += size_of_plan(rank) * (merged ? 1 : lanes);
  result.channels =
      static_cast<std::uint32_t>(std::clamp<std::size_t>(kFewLocations / size, 1, most_channels));
  const std::uint32_t copies = static_cast<std::uint32_t>(lanes) * result.channels;
  result.plan = merged ? plan::replicate(plan, result.channels) : plan::replicate(plan, copies);
  if (merged) result.plan.pieces = plan.pieces * copies;  // The other lanes have the rest.
  return result;
}

// The first ranks of a plan, more and more of them.
class FirstRanks {
 public:
  FirstRanks(const Algorithm& algorithm, const plan::Shape& shape)
      : ranks_(algorithm, shape),
        plan_{.name = std::string(algorithm.name),
              .shape = shape,
              .contract = algorithm.contract(shape),
              .pieces = algorithm.pieces(shape),
              .ranks = {}} {}

  /// Makes the plan list `listed` ranks, at least as many as before. False: they are too large.
  bool list(int listed) {
    while (static_cast<int>(plan_.ranks.size()) < listed && size_ <= kMostLocations) {
      plan_.ranks.push_back(ranks_.build(static_cast<int>(plan_.ranks.size())));
      size_ += size_of_plan(plan_.ranks.back());
    }
    return size_ <= kMostLocations;
  }
  /// Whether those that are listed stand for all: three others of each are alike. Who stands for
  /// all does so as part of a multiple.
  bool stand_for_all() {
    const auto listed = static_cast<int>(plan_.ranks.size());
    if (period_ != 0 && listed % period_ == 0) return true;
    const int images = plan_.shape.rank_count / listed;
    for (int rank = 0; rank < listed; ++rank) {
      for (const int image : std::array{1, images / 2, images - 1}) {
        const int other = rank + image * listed;
        if (!ranks_.alike(plan_.ranks[static_cast<std::size_t>(rank)], rank, ranks_.build(other),
                          other))
          return false;
      }
    }
    period_ = listed;
    return true;
  }
  const plan::Plan& plan() const { return plan_; }

 private:
  const Ranks ranks_;
  plan::Plan plan_;
  std::size_t size_ = 0;
  int period_ = 0;  // So many ranks stand for all; 0: not known.
};

}  // namespace

plan::CostModel Symmetric::model(const plan::CostModel& whole) const {
  plan::CostModel result = whole;
  result.resources.clear();
  for (const std::size_t resource : representatives)
    result.resources.push_back(whole.resources[resource]);
  result.orders = orders;
  const auto of_classes = [this](std::vector<plan::Use> uses) {
    std::erase_if(uses, [this](const plan::Use& use) {
      return classes[use.resource] == Classes::kNone;  // Latency alone is asked for.
    });
    for (plan::Use& use : uses) {
      use.resource = classes[use.resource];
      use.share *= shares[use.resource];
    }
    return uses;
  };
  result.link = [link = whole.link, of_classes](Rank from, Rank to) {
    plan::Path path = link(from, to);
    path.uses = of_classes(std::move(path.uses));
    return path;
  };
  result.compute = [compute = whole.compute, of_classes](Rank place) {
    return of_classes({compute(place)})[0];
  };
  return result;
}

std::optional<Symmetric> find_symmetry(const Algorithm& algorithm, const plan::Shape& shape,
                                       const plan::CostModel& model, const Orders& orders,
                                       int group, std::uint32_t most_channels) {
  const int n = shape.rank_count;
  if (has_root(shape.collective) || orders.empty()) return std::nullopt;
  FirstRanks first(algorithm, shape);
  for (int listed = std::max(group, 1); listed <= n / 2; listed += std::max(group, 1)) {
    if (n % listed != 0) continue;
    if (!first.list(listed)) return std::nullopt;
    if (!first.stand_for_all()) continue;
    const std::vector<plan::TrafficChannel> channels = plan::traffic(first.plan()).channels;
    const std::size_t routes =
        channels.size() * static_cast<std::size_t>(n / listed) * orders.size();
    if (routes > kMostRoutes) return std::nullopt;
    for (const bool merged : {true, false}) {
      if (merged && orders.size() == 1) continue;
      if (auto found = quotient(first.plan(), channels, model, orders, merged, most_channels))
        return found;
    }
  }
  return std::nullopt;
}

}  // namespace tutti::planner
