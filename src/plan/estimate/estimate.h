// File: plan/estimate/estimate.h: how long a plan would take, by simulating its events over what
// its ranks share: link directions, and each rank's own compute.
//
// The model. A slot takes a path: a latency, and shares of resources. A resource works off what it
// is given in the order of time; what ranks send at the same moment in the same lane is worked off
// together and is done together. So two messages on one link take twice the time of one, no message
// is faster than its narrowest link, and ranks that do the same at the same time stay alike: so one
// of them is simulated for all (classes.h), and nothing comes out differently. Time is in
// whole picoseconds: sums do not depend on the order in which they are made.
//
// Plans of a few ranks. If plan.ranks lists only s ranks of the n of its shape, s dividing n, then
// every other rank is taken to do what rank (r mod s) does, with all peers shifted by a multiple of
// s. Chunks are not shifted: the message has to be one whose pieces are alike, the caller's duty.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "base/link_cost.h"
#include "plan/estimate/recording.h"
#include "plan/plan.h"
#include "tutti/types.h"

namespace tutti::plan {

/// Something that messages share: a direction of a link. 0 GB/s: bytes take no time.
struct Resource {
  double gigabytes_per_second = 0;
  double message_us = 0;  // Each message keeps it busy so long, whatever its bytes.
  /// A switch at one of its ends can join messages. Into it (kMulticast): data that a step
  /// sends to several ranks goes once. Out of it (kReduce): data that a step adds up comes once.
  /// The rank's own part goes through the switch as well, over `mirror`, the other direction.
  enum class Joins : std::uint8_t { kNothing, kMulticast, kReduce } joins = Joins::kNothing;
  std::uint32_t mirror = 0;
  double join_efficiency = 1;  // The share of its rate that joined messages get.
};

/// How much of a message a resource has to carry.
struct Use {
  std::uint32_t resource = 0;  // In CostModel::resources.
  double share = 1;
};

/// The way from one rank to another.
struct Path {
  LinkCost own;           // The latency; and a rate for what these two send alone. 0: no limit.
  std::vector<Use> uses;  // What it shares with others.
  Path() = default;
  Path(LinkCost cost, std::vector<Use> shared = {}) : own(cost), uses(std::move(shared)) {}
};

/// All that the estimator needs to know about the machine.
struct CostModel {
  /// A slot (or a mapped access) from one place to another.
  std::function<Path(Rank from, Rank to)> link;
  double reduce_gigabytes_per_second = 20;  // Per rank, bytes read and written by a move.
  double step_us = 0.02;                    // Per step.
  /// What a phase (phases.h) takes its lane though the other lanes of the rank go on: a thread
  /// block that waits for its loads and fences. And the rate at which it then reads and writes; 0:
  /// any.
  double lane_us = 0;
  double lane_gigabytes_per_second = 0;
  /// Whether a slot is seen to have come before it is taken. Else a phase has but one step that
  /// takes slots, the first.
  bool sees_slots = true;

  // All empty: ranks are places, links and ranks share nothing.
  std::vector<Resource> resources = {};
  /// The place of each rank. On each order stand all lanes of the plan, so many times as can be
  /// simulated up to most_lanes; each has its share of every piece.
  std::vector<std::vector<Rank>> orders = {};
  std::uint32_t most_lanes = 1;
  /// About so many are simulated: beyond that fewer lanes, and fewer tiles one by one.
  std::size_t most_events = std::size_t{1} << 21;
  std::function<Use(Rank)> compute =
      {};                    // What a place computes with; at the rate of its resource.
  bool may_be_alike = true;  // Off: all are simulated, also those that are alike. For tests.
};

/// The time of what takes longer than the caller asked for.
inline constexpr double kBeyondLimit = std::numeric_limits<double>::infinity();

struct Estimate {
  double microseconds = 0;           // Until the last rank is done.
  double bytes_on_busiest_link = 0;  // Sent over the rank-to-rank link that carries most.
  std::size_t messages_on_critical_path = 0;
  double latency_us = 0;        // Part of the time: what these messages, and the news of room in
                                // slots, take whatever their bytes.
  std::vector<double> busy_us;  // By resource of the model: how long it works.
  std::size_t simulated_ranks = 0;  // Fewer than there are: they stand for those that are alike.
  double working_us = 0;  // How long the bytes of the busiest lane keep it, whatever it waits for.
};

/// Simulates a plan for messages of any size. Keeps what sizes have in common, above all the runs
/// that long messages are extended from. Not for several threads at a time.
class Estimator {
 public:
  /// The plan has to be verified, with as many slots; it and the model have to outlive this.
  Estimator(const Plan& plan, const CostModel& model, DataType type, std::size_t slot_bytes,
            int slots);
  /// A temporary would not outlive it.
  Estimator(const Plan&, CostModel&&, DataType, std::size_t, int) = delete;
  ~Estimator();
  /// For `count` elements per block, with the model's lanes on each order, or at most so many. A
  /// recording gets all that was simulated for this: of a long message its first tiles, taken as
  /// full. What takes longer than the limit is given up early, with kBeyondLimit as its time.
  Estimate run(std::size_t count, Recording* recording = nullptr, std::uint32_t most_lanes = 0,
               double limit_us = kBeyondLimit);
  /// A guess at that, out of one tile: for the order in which plans are tried.
  double guess_us(std::size_t count);
  /// In which the plan's lanes are then.
  std::uint32_t lanes(std::uint32_t most_lanes = 0) const;

 private:
  struct Parts;
  struct Cut;
  Cut cut(std::size_t count, std::uint32_t most_lanes) const;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tutti::plan
