// A plan with all that is kept of it between sizes (instances.h, classes.h).
//
// Large messages. Tile after tile is simulated up to a bound on the work. Beyond it, two runs of A
// and 2A full tiles give the time that each further tile adds once the pipeline is full, and the
// rest of the message is charged at that. (Ramp-up and drain are in the first run.)
#include "plan/estimate/estimate.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/check.h"
#include "plan/estimate/timeline.h"
#include "plan/passes/draft.h"

namespace tutti::plan {
namespace {

constexpr std::size_t kMostTiles = 32;  // Simulated one by one.

// Bytes of an element in slots and scratch; 0 if there are none.
std::size_t widest_element(const Plan& plan, DataType type) {
  std::size_t widest = 0;
  for (const RankPlan& rank : plan.ranks) {
    for (const Lane& lane : rank.lanes) {
      for (const Location& at : lane.locations) {
        if (is_ring(at) || at.place == Place::kScratch)
          widest = std::max(widest, element_bytes(type, at.form));
      }
    }
  }
  return widest;
}

}  // namespace

struct Estimator::Parts {
  const DataType type;
  const int slots;
  const bool may_be_alike;
  const std::size_t most_events;  // Steps of all tiles, or locations and steps of one.
  const std::size_t slot_bytes, widest;
  const Instances instances;
  Ways ways;
  std::uint32_t lanes = 1;     // On each order, the most.
  std::size_t steps = 0;       // Per tile and lane, in all that is simulated.
  const Representatives even;  // For pieces that are all alike.
  // Runs of full tiles, by lanes and their number.
  std::map<std::pair<std::uint32_t, std::size_t>, Estimate> full_runs;

  Parts(const Plan& plan, const CostModel& model, DataType of, std::size_t slot, int slot_count)
      : type(of),
        slots(slot_count),
        may_be_alike(model.may_be_alike && !plan.entry_barrier),
        most_events(model.most_events),
        slot_bytes(slot),
        widest(widest_element(plan, of)),
        instances(plan, model),
        ways(instances, model),
        even(representatives(1, {})) {
    std::size_t size = 0;
    for (const Representatives::Actor& actor : even.actors) {
      steps += actor.steps.size();
      size += actor.steps.size() + actor.of_location.size();
    }
    const std::size_t most = std::max<std::uint32_t>(1, model.most_lanes);
    lanes = static_cast<std::uint32_t>(
        std::clamp<std::size_t>(most_events / std::max<std::size_t>(1, size), 1, most));
  }

  std::uint32_t at_most(std::uint32_t wanted) const {
    return wanted == 0 ? lanes : std::min(wanted, lanes);
  }
  std::uint32_t pieces(std::uint32_t each) const {
    return instances.plan.pieces * each * instances.orders;
  }
  Representatives representatives(std::uint32_t each, const PieceKinds& kinds) const {
    const bool all = !may_be_alike || instances.shares_memory;
    return all ? all_of(instances, ways) : one_of_each(instances, ways, each, kinds);
  }
  /// With `each` lanes on every order.
  Estimate run(std::uint32_t each, std::size_t count, std::size_t tile, std::size_t full_tiles,
               Recording* recording = nullptr, double limit_us = kBeyondLimit) {
    const Picoseconds limit = limit_us == kBeyondLimit ? std::numeric_limits<Picoseconds>::max()
                                                       : to_picoseconds(limit_us);
    const Pieces cut(count, pieces(each), type, tile, full_tiles);
    const PieceKinds kinds = cut.kinds();
    if (recording == nullptr && kinds.empty())
      return play({instances, ways, even, cut, type, slots, each, nullptr, limit});
    const Representatives other =
        recording == nullptr ? representatives(each, kinds) : all_of(instances, ways);
    return play({instances, ways, other, cut, type, slots, each, recording, limit});
  }
  /// Empty: it takes longer than the limit.
  const Estimate* full_run(std::uint32_t each, std::size_t tile, std::size_t tiles,
                           double limit_us = kBeyondLimit) {
    const std::pair key{each, tiles};
    const auto found = full_runs.find(key);
    if (found != full_runs.end()) return &found->second;
    Estimate made = run(each, 0, tile, tiles, nullptr, limit_us);
    if (made.microseconds == kBeyondLimit) return nullptr;
    return &full_runs.emplace(key, std::move(made)).first->second;
  }
};

Estimator::Estimator(const Plan& plan, const CostModel& model, DataType type,
                     std::size_t slot_bytes, int slots) {
  TUTTI_CHECK(slots > 0 && !plan.ranks.empty());
  TUTTI_CHECK(static_cast<std::size_t>(plan.shape.rank_count) % plan.ranks.size() == 0);
  parts_ = std::make_unique<Parts>(plan, model, type, slot_bytes, slots);
}
Estimator::~Estimator() = default;

std::uint32_t Estimator::lanes(std::uint32_t most_lanes) const {
  return parts_->at_most(most_lanes) * parts_->instances.orders;
}

struct Estimator::Cut {
  std::uint32_t each = 1;           // Lanes on every order.
  std::size_t largest = 0;          // Elements of the largest piece,
  std::size_t tile = 0, tiles = 0;  // of one of its tiles, and how many it has.
};

Estimator::Cut Estimator::cut(std::size_t count, std::uint32_t most_lanes) const {
  const std::size_t grain = std::max<std::size_t>(1, kCacheLine / size_of(parts_->type));
  Cut made{.each = parts_->at_most(most_lanes)};
  made.largest = piece_of(count, parts_->pieces(made.each), 0, grain).count;
  // Without slots and scratch nothing has to be cut into tiles, and no two sizes have tiles alike.
  made.tile = parts_->widest == 0 ? made.largest
                                  : std::max<std::size_t>(1, parts_->slot_bytes / parts_->widest);
  made.tiles = (made.largest + made.tile - 1) / made.tile;
  return made;
}

namespace {

/// How long what works longest does so.
double working_us(const Estimate& estimate) {
  double most = estimate.working_us;
  for (const double busy : estimate.busy_us) most = std::max(most, busy);
  return most;
}

/// The estimate of a long message from runs of its first tiles: `two` runs twice as many as `one`.
Estimate extended(const Estimate& one, const Estimate& two, double more) {
  const auto extend = [&](double first, double second) { return second + more * (second - first); };
  Estimate all{extend(one.microseconds, two.microseconds),
               extend(one.bytes_on_busiest_link, two.bytes_on_busiest_link),
               static_cast<std::size_t>(
                   extend(static_cast<double>(one.messages_on_critical_path),
                          static_cast<double>(std::max(one.messages_on_critical_path,
                                                       two.messages_on_critical_path)))),
               extend(one.latency_us, std::max(one.latency_us, two.latency_us)),
               {},
               two.simulated_ranks,
               extend(one.working_us, two.working_us)};
  for (std::size_t i = 0; i < one.busy_us.size(); ++i)
    all.busy_us.push_back(extend(one.busy_us[i], two.busy_us[i]));
  // Two runs may overlap more than a third would: but nothing is done before its resources and
  // lanes are.
  all.microseconds = std::max(all.microseconds, working_us(all));
  return all;
}

}  // namespace

double Estimator::guess_us(std::size_t count) {
  const Cut of = cut(count, 0);
  if (of.tiles <= 1) return run(count).microseconds;
  const Estimate& one = *parts_->full_run(of.each, of.tile, 1);
  return one.microseconds + static_cast<double>(of.tiles - 1) * working_us(one);
}

Estimate Estimator::run(std::size_t count, Recording* recording, std::uint32_t most_lanes,
                        double limit_us) {
  if (recording != nullptr) *recording = {};
  if (count == 0) return {};
  const auto [each, largest, tile, tiles] = cut(count, most_lanes);
  const std::size_t half = std::clamp<std::size_t>(
      parts_->most_events / 3 / std::max<std::size_t>(1, parts_->steps * each), 1, kMostTiles / 2);
  const auto recorded = [recording, tiles = tiles](const Estimate& estimate) {
    if (recording != nullptr) {
      recording->microseconds = estimate.microseconds;
      recording->of_tiles = tiles;
    }
    return estimate;
  };
  Estimate beyond;
  beyond.microseconds = kBeyondLimit;
  // All tiles but the last are full, or lack a cache line: so long does what is busiest work.
  if (limit_us != kBeyondLimit && tiles > 2) {
    const Estimate* first = parts_->full_run(each, tile, 1, limit_us);
    if (first == nullptr || static_cast<double>(tiles - 2) * working_us(*first) > limit_us)
      return beyond;
  }
  if (tiles <= 2 * half) return recorded(parts_->run(each, count, tile, 0, recording, limit_us));
  if (recording != nullptr) recorded(parts_->run(each, 0, tile, 2 * half, recording));
  const double more =
      static_cast<double>(largest) / static_cast<double>(tile) / static_cast<double>(half) - 2;
  const Estimate* one = parts_->full_run(each, tile, half, limit_us);
  if (one == nullptr) return beyond;
  // Beyond that the whole would be beyond the limit.
  const double second_limit_us =
      limit_us == kBeyondLimit ? limit_us : (limit_us + more * one->microseconds) / (1 + more);
  const Estimate* two = parts_->full_run(each, tile, 2 * half, second_limit_us);
  return two == nullptr ? beyond : extended(*one, *two, more);
}

}  // namespace tutti::plan
