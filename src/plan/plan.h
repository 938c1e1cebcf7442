// File: plan/plan.h: what every rank does in one collective, as data.
//
// A plan has no pointers, no sizes, no transport and no device in it. It can be printed, parsed,
// compared, verified, estimated and executed.
//
// One kind of data step: read n sources, reduce them in the order given as a balanced binary tree
// (it splits at the largest power of two below n), write the result to m targets. Beside it stand
// only signal and wait, for plans that touch peers' memory (made by passes, see passes.h).
//
// Chunks. A message consists of blocks of `count` elements (chunks.h says which), and every block
// is cut into `pieces` chunks of nearly equal size: chunk c is piece c % pieces of block c /
// pieces. So chunk indices are fractions of the message, never bytes. Inputs and outputs are cut in
// the same way; their chunks are counted from the start of the buffer.
//
// Execution. The whole step list of a lane runs once per tile (a chunk's part that fits one slot),
// and one slot location is one slot. So a plan that the verifier finds free of deadlock with K
// slots per channel is free of deadlock for every message size. Scratch chunks hold one tile each.
#pragma once
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "base/form.h"
#include "tutti/types.h"

namespace tutti::plan {

enum class Place : std::uint8_t {
  kInput,    // A chunk of this rank's input. A contribution, or a result where nothing is reduced.
  kOutput,   // A chunk of this rank's output. Always a result.
  kScratch,  // A tile of this rank's scratch memory, of any form.
  kSlot,     // Source: the next slot from `peer`. Target: the next slot to `peer`.
  kMulticast,  // Source: the next slot of `peer`'s multicast ring. Target: this rank's own (peer is
               // unused).
  kPeerInput,  // A chunk of the mapped input of `peer`; source only.
  kPeerOutput,  // A chunk of the mapped output of `peer`.
};

struct Location {
  Place place = Place::kInput;
  Form form = Form::kResult;
  std::uint16_t peer = 0;
  std::uint32_t chunk =
      0;  // Input and output: the chunk. Scratch: the scratch chunk. Slots: unused, 0.
  friend bool operator==(const Location&, const Location&) = default;
};
static_assert(sizeof(Location) == 8, "a kernel loads one location with one 8-byte read");

/// A slot or a multicast slot: it comes from or goes to a ring.
constexpr bool is_ring(const Location& at) {
  return at.place == Place::kSlot || at.place == Place::kMulticast;
}
/// Memory of a peer that is mapped.
constexpr bool is_of_peer(const Location& at) {
  return at.place == Place::kPeerInput || at.place == Place::kPeerOutput;
}

/// Whether these can be targets of one step, with one value: a contribution and a result of it are
/// two, as an average is divided in between, and a wire rounds it once more.
constexpr bool one_value(std::span<const Location> targets, std::span<const Location> others = {}) {
  bool contribution = false, result = false;
  for (const std::span<const Location> some : {targets, others}) {
    for (const Location& at : some) {
      contribution = contribution || at.form == Form::kContribution;
      result = result || at.form == Form::kResult;
    }
  }
  return !contribution || !result;
}

enum class StepKind : std::uint8_t {
  kMove,    // sources -> targets
  kSignal,  // Adds one to the counter that `peer` waits on.
  kWait,    // Waits for the next signal from `peer`.
};

struct Step {
  StepKind kind = StepKind::kMove;
  std::uint16_t peer = 0;  // Signal and wait: the other rank.
  std::uint16_t source_count =
      0;  // Move: locations[first .. first + source_count) are the sources,
  std::uint16_t target_count = 0;  // and the next target_count the targets.
  std::uint32_t first = 0;
  std::uint32_t chunk = 0;  // Move: the chunk of the message that it is about; this fixes its size.
  /// Behind its last location.
  constexpr std::uint32_t end() const { return first + source_count + target_count; }
  friend bool operator==(const Step&, const Step&) = default;
};
static_assert(sizeof(Step) == 16, "a kernel loads one step with one 16-byte read");

/// The steps of one rank in one lane, in order. Lanes of a rank run side by side.
struct Lane {
  std::vector<Step> steps;
  std::vector<Location> locations;
  std::span<const Location> sources(const Step& step) const {
    return std::span(locations).subspan(step.first, step.source_count);
  }
  std::span<const Location> targets(const Step& step) const {
    return std::span(locations).subspan(step.first + step.source_count, step.target_count);
  }
  friend bool operator==(const Lane&, const Lane&) = default;
};

/// The plan of one rank.
struct RankPlan {
  std::uint32_t scratch_chunks = 0;
  std::vector<Lane> lanes;
  friend bool operator==(const RankPlan&, const RankPlan&) = default;
};

/// Which ranks are near each other: sizes of nested groups in ranks, innermost first, each a
/// multiple of the one before it. {8, 32}: 8 ranks to a host, 4 hosts to a rack. Group k of size s
/// is ranks [k*s, (k+1)*s), cut off at the rank count. Empty: no groups.
struct GroupSizes {
  GroupSizes() = default;
  /// One kind of groups; of 1 rank: none.
  GroupSizes(int size) {
    if (size != 1) sizes.push_back(size);
  }
  GroupSizes(std::initializer_list<int> list) : sizes(list) {}
  std::vector<int> sizes;
  // NOLINTNEXTLINE(modernize-use-nullptr): not a 0.
  friend auto operator<=>(const GroupSizes&, const GroupSizes&) = default;
};

/// A tree over all ranks, along which a share of the message goes.
struct SpanningTree {
  int weight = 1;            // Its share, compared with the other trees'.
  std::vector<int> parents;  // By rank; the root's is itself.
  // NOLINTNEXTLINE(modernize-use-nullptr): not a 0.
  friend auto operator<=>(const SpanningTree&, const SpanningTree&) = default;
};

/// All ranks, in the order in which a lane passes them.
using RankOrder = std::vector<std::uint16_t>;

/// What the plan is for: all that an algorithm may look at, beside the rank it builds for.
struct Shape {
  Collective collective = Collective::kAllReduce;
  int rank_count = 1;
  int root = 0;  // For rooted collectives.
  GroupSizes groups = {};
  /// By rank: how much of an all-reduce it owns, compared with the others. Empty: all the same.
  std::vector<int> weights = {};
  /// Trees that fit the links of the machine together. Empty: not known.
  std::vector<SpanningTree> trees = {};
  // NOLINTNEXTLINE(modernize-use-nullptr): not a 0.
  friend auto operator<=>(const Shape&, const Shape&) = default;
};

/// The whole: all ranks' plans.
struct Plan {
  std::string name;  // The algorithm's, with the passes that were applied: "two_shot+direct".
  Shape shape;
  Contract contract = Contract::kDeterministic;
  /// No lane begins before all ranks have entered the call. The executor sees to that, where ranks
  /// have told each other at the start of a call where their buffers are; a plan that touches
  /// peers' buffers then needs no signals for it.
  bool entry_barrier = false;
  /// No rank's input shares memory with its output. All other plans may be run in place.
  bool apart = false;
  std::uint32_t pieces = 1;
  std::vector<RankPlan> ranks;
  friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace tutti::plan
