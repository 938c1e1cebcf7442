// File: support/plan_simulator.h: runs a plan on small vectors, one rank's move at a time, in
// random order.
//
// A second opinion on what the verifier says: it knows nothing of trees, wires or clocks, only
// memory. It executes like the real thing (tile by tile, empty tiles skipped, bounded rings, lanes
// side by side) but worse: a move reads all its sources at one moment and writes each target at a
// later one, and anything may happen between. The caller of each rank poisons its buffers as soon
// as the rank has returned, and starts the next call with new inputs while other ranks may be in
// the one before. So a missing signal shows for some seed.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "plan/chunks.h"
#include "plan/partition.h"
#include "plan/plan.h"

namespace tutti::test {

using Vector = std::vector<float>;

struct SimulationOptions {
  std::size_t count = 8;  // Elements of a block.
  std::size_t tile = 3;   // Elements that fit a slot.
  std::size_t slots = 1;
  bool in_place = false;
  std::uint64_t seed = 0;
};

/// The outputs: [call][rank]. `stuck` says where, if some rank never returned.
struct Simulated {
  std::optional<std::string> stuck;
  std::vector<std::vector<Vector>> outputs;
};

/// The balanced tree, split at the largest power of two below n.
inline float tree_sum(std::span<const float> values) {
  if (values.size() == 1) return values[0];
  std::size_t split = 1;
  while (2 * split < values.size()) split *= 2;
  return tree_sum(values.first(split)) + tree_sum(values.subspan(split));
}

class PlanSimulator {
 public:
  /// `inputs` is [call][rank], each of input_blocks * count elements.
  PlanSimulator(const plan::Plan& plan, const SimulationOptions& options,
                const std::vector<std::vector<Vector>>& inputs)
      : plan_(plan), options_(options), inputs_(inputs), random_(options.seed) {
    std::size_t largest = 0;
    for (std::uint32_t p = 0; p < plan.pieces; ++p)
      largest = std::max(largest, plan::piece_of(options.count, plan.pieces, p, 1).count);
    tiles_ = std::max<std::size_t>(1, (largest + options.tile - 1) / options.tile);
    result_.outputs.assign(inputs.size(), std::vector<Vector>(plan.ranks.size()));
    for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
      Rank& rank = ranks_.emplace_back();
      rank.scratch.assign(plan.ranks[r].scratch_chunks, Vector(options.tile, kPoison));
      rank.lanes.resize(plan.ranks[r].lanes.size());
      begin_call(r);
    }
  }

  Simulated run() {
    std::vector<std::pair<std::size_t, std::size_t>> actors;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t l = 0; l < ranks_[r].lanes.size(); ++l) actors.push_back({r, l});
    }
    for (bool moved = true; moved;) {
      moved = false;
      std::shuffle(actors.begin(), actors.end(), random_);
      for (const auto& [r, l] : actors) {
        // A rank may be far ahead of the others, or not move for long.
        for (auto burst = random_() % 4 == 0 ? 1 + random_() % 40 : 1; burst > 0; --burst) {
          if (!advance(r, l)) break;
          moved = true;
        }
      }
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].call < inputs_.size())
        result_.stuck = "rank " + std::to_string(r) + " in call " + std::to_string(ranks_[r].call);
    }
    return result_;
  }

 private:
  static constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

  struct LaneState {
    std::size_t tile = 0, step = 0;
    std::size_t targets_written = 0;
    std::optional<Vector> value;  // The value of the move that is going on.
    bool done = false;
  };
  struct Rank {
    std::size_t call = 0;
    Vector input, output;  // In place, some of the input lives in output.
    std::vector<Vector> scratch;
    std::vector<LaneState> lanes;
  };
  struct Ring {
    std::deque<Vector> slots;  // Sent; the front is the oldest that somebody has not read.
    std::size_t sent = 0;
    std::map<std::size_t, std::size_t> read;  // By reader.
  };
  // Kind (0 slots, 1 multicast, 2 signals), from, to, lane.
  using Key = std::tuple<int, std::size_t, std::size_t, std::size_t>;

  std::size_t offset_in_output(std::size_t rank) const {
    const CollectiveTraits traits = traits_of(plan_.shape.collective);
    return traits.output_each && !traits.input_each ? rank * options_.count : 0;
  }
  std::size_t offset_in_input(std::size_t rank) const {
    const CollectiveTraits traits = traits_of(plan_.shape.collective);
    return traits.input_each && !traits.output_each ? rank * options_.count : 0;
  }
  /// Elements that input and output of a rank share.
  std::size_t shared_elements(std::size_t rank) const {
    const auto r = static_cast<std::uint32_t>(rank);
    if (!options_.in_place || plan_.apart || !plan::has_input(plan_.shape, r) ||
        !plan::has_output(plan_.shape, r))
      return 0;
    return options_.count *
           std::min(plan::input_blocks(plan_.shape), plan::output_blocks(plan_.shape));
  }

  void begin_call(std::size_t r) {
    Rank& rank = ranks_[r];
    rank.output.assign(plan::output_blocks(plan_.shape) * options_.count, kPoison);
    rank.input.assign(plan::input_blocks(plan_.shape) * options_.count, kPoison);
    for (LaneState& lane : rank.lanes) lane = {};
    if (rank.call == inputs_.size()) {
      for (LaneState& lane : rank.lanes) lane.done = true;
      return;
    }
    rank.input = inputs_[rank.call][r];
    for (std::size_t i = 0; i < shared_elements(r); ++i)
      rank.output[offset_in_output(r) + i] = rank.input[offset_in_input(r) + i];
  }

  float& input_element(std::size_t r, std::size_t i) {
    const std::size_t shared = i - offset_in_input(r);  // Wraps to huge where it is before.
    if (shared < shared_elements(r)) return ranks_[r].output[offset_in_output(r) + shared];
    return ranks_[r].input[i];
  }

  Ring& ring(int kind, std::size_t from, std::size_t to, std::size_t lane) {
    return rings_[Key{kind, from, to, lane}];
  }
  Ring& source_ring(const plan::Location& at, std::size_t r, std::size_t l) {
    return at.place == plan::Place::kSlot ? ring(0, at.peer, r, l) : ring(1, at.peer, at.peer, l);
  }
  Ring& target_ring(const plan::Location& at, std::size_t r, std::size_t l) {
    return at.place == plan::Place::kSlot ? ring(0, r, at.peer, l) : ring(1, r, r, l);
  }
  static bool is_ring(const plan::Location& at) {
    return at.place == plan::Place::kSlot || at.place == plan::Place::kMulticast;
  }
  void take(Ring& from, std::size_t reader, std::size_t readers) {
    ++from.read[reader];
    std::size_t least = from.read.size() < readers ? 0 : from.sent;
    for (const auto& [who, count] : from.read) least = std::min(least, count);
    while (from.sent - from.slots.size() < least) from.slots.pop_front();
  }

  // One event of a lane; false if it has to wait or is done.
  bool advance(std::size_t r, std::size_t l) {
    LaneState& at = ranks_[r].lanes[l];
    if (at.done || (plan_.entry_barrier && !all_have_entered(ranks_[r].call))) return false;
    const auto& steps = plan_.ranks[r].lanes[l].steps;
    if (at.step == steps.size()) {
      at.step = 0;
      at.done = ++at.tile == tiles_;
      if (at.done) end_lane(r);
      return true;
    }
    if (!execute(r, l, at, steps[at.step])) return false;
    return true;
  }

  bool all_have_entered(std::size_t call) const {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [call](const Rank& rank) { return rank.call >= call; });
  }

  void end_lane(std::size_t r) {
    Rank& rank = ranks_[r];
    for (const LaneState& lane : rank.lanes) {
      if (!lane.done) return;
    }
    result_.outputs[rank.call][r] = rank.output;
    ++rank.call;
    begin_call(r);
  }

  bool execute(std::size_t r, std::size_t l, LaneState& at, const plan::Step& step) {
    if (step.kind == plan::StepKind::kSignal) {
      ++ring(2, r, step.peer, l).sent;
      return ++at.step, true;
    }
    if (step.kind == plan::StepKind::kWait) {
      Ring& signals = ring(2, step.peer, r, l);
      if (signals.read[r] == signals.sent) return false;
      ++signals.read[r];
      return ++at.step, true;
    }
    const plan::Range piece =
        plan::piece_of(options_.count, plan_.pieces, step.chunk % plan_.pieces, 1);
    const plan::Range range = plan::tile_of(piece, at.tile, options_.tile);
    if (range.count == 0) return ++at.step, true;
    const plan::Location* sources = plan_.ranks[r].lanes[l].locations.data() + step.first;
    const plan::Location* targets = sources + step.source_count;
    if (!at.value) {
      if (!ready(r, l, step, sources, targets)) return false;
      at.value = compute(r, l, step, sources, range);
      at.targets_written = 0;
      return true;
    }
    if (at.targets_written < step.target_count) {
      write(r, l, targets[at.targets_written++], range, *at.value);
      return true;
    }
    for (std::size_t i = 0; i < step.source_count; ++i) {
      if (is_ring(sources[i])) {
        const bool all = sources[i].place == plan::Place::kMulticast;
        take(source_ring(sources[i], r, l), r, all ? ranks_.size() - 1 : 1);
      }
    }
    at.value.reset();
    return ++at.step, true;
  }

  bool ready(std::size_t r, std::size_t l, const plan::Step& step, const plan::Location* sources,
             const plan::Location* targets) {
    for (std::size_t i = 0; i < step.source_count; ++i) {
      if (!is_ring(sources[i])) continue;
      Ring& from = source_ring(sources[i], r, l);
      if (from.read[r] == from.sent) return false;
    }
    for (std::size_t i = 0; i < step.target_count; ++i) {
      if (is_ring(targets[i]) && target_ring(targets[i], r, l).slots.size() >= options_.slots)
        return false;
    }
    return true;
  }

  Vector compute(std::size_t r, std::size_t l, const plan::Step& step,
                 const plan::Location* sources, const plan::Range& range) {
    Vector value(range.count), terms(step.source_count);
    for (std::size_t i = 0; i < range.count; ++i) {
      for (std::size_t s = 0; s < step.source_count; ++s)
        terms[s] = read(r, l, sources[s], range.offset + i, i);
      value[i] = tree_sum(terms);
    }
    return value;
  }

  // Element `element` of the block, `i` of the tile.
  float read(std::size_t r, std::size_t l, const plan::Location& at, std::size_t element,
             std::size_t i) {
    const std::size_t in_buffer = at.chunk / plan_.pieces * options_.count + element;
    switch (at.place) {
      case plan::Place::kInput: return input_element(r, in_buffer);
      case plan::Place::kPeerInput: return input_element(at.peer, in_buffer);
      case plan::Place::kOutput: return ranks_[r].output[in_buffer];
      case plan::Place::kPeerOutput: return ranks_[at.peer].output[in_buffer];
      case plan::Place::kScratch: return ranks_[r].scratch[at.chunk][i];
      default: break;
    }
    Ring& from = source_ring(at, r, l);
    const std::size_t index = from.read[r] - (from.sent - from.slots.size());
    return i < from.slots[index].size() ? from.slots[index][i] : kPoison;
  }

  void write(std::size_t r, std::size_t l, const plan::Location& at, const plan::Range& range,
             const Vector& value) {
    if (is_ring(at)) {
      Ring& to = target_ring(at, r, l);
      to.slots.push_back(value);
      ++to.sent;
      return;
    }
    if (at.place == plan::Place::kScratch) {
      std::copy(value.begin(), value.end(), ranks_[r].scratch[at.chunk].begin());
      return;
    }
    const std::size_t owner = at.place == plan::Place::kPeerOutput ? at.peer : r;
    const std::size_t first = at.chunk / plan_.pieces * options_.count + range.offset;
    std::copy(value.begin(), value.end(),
              ranks_[owner].output.begin() + static_cast<std::ptrdiff_t>(first));
  }

  const plan::Plan& plan_;
  const SimulationOptions options_;
  const std::vector<std::vector<Vector>>& inputs_;
  std::mt19937_64 random_;
  std::size_t tiles_ = 1;
  std::vector<Rank> ranks_;
  std::map<Key, Ring> rings_;
  Simulated result_;
};

/// Random inputs [call][rank]. `exact`: small integers, whose sum is the same in any order.
inline std::vector<std::vector<Vector>> random_inputs(const plan::Plan& plan, std::size_t count,
                                                      std::size_t calls, bool exact,
                                                      std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> any(-100, 100);
  std::vector<std::vector<Vector>> inputs(calls);
  for (auto& call : inputs) {
    for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
      Vector& input = call.emplace_back(plan::input_blocks(plan.shape) * count);
      for (float& element : input) element = exact ? std::round(any(random)) : any(random);
    }
  }
  return inputs;
}

/// The output that `rank` has to have, bit for bit, under the deterministic contract.
inline Vector reference(const plan::Shape& shape, std::size_t count,
                        const std::vector<Vector>& inputs, std::size_t rank) {
  const CollectiveTraits traits = traits_of(shape.collective);
  const std::size_t first = traits.input_each ? rank * count : 0;
  Vector output;
  if (!traits.reduces()) {
    for (std::size_t r = 0; r < inputs.size(); ++r) {
      if (!plan::has_input(shape, static_cast<std::uint32_t>(r))) continue;
      const auto block = std::span(inputs[r]).subspan(first, count);
      output.insert(output.end(), block.begin(), block.end());
    }
    return output;
  }
  Vector terms(static_cast<std::size_t>(
      summed_ranks(shape.collective, static_cast<int>(rank), static_cast<int>(inputs.size()))));
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t r = 0; r < terms.size(); ++r) terms[r] = inputs[r][first + i];
    output.push_back(tree_sum(terms));
  }
  return output;
}

/// Runs `plan` twice in a row with random inputs; empty if every rank got what the plan promises,
/// else what went wrong. For a relaxed plan the inputs are integers, so that any order is right.
inline std::optional<std::string> simulate(const plan::Plan& plan,
                                           const SimulationOptions& options) {
  constexpr std::size_t kCalls = 2;
  const bool exact = plan.contract == Contract::kRelaxed;
  const auto inputs = random_inputs(plan, options.count, kCalls, exact, options.seed);
  const Simulated got = PlanSimulator(plan, options, inputs).run();
  const std::string where = plan.name + " on " + std::to_string(plan.ranks.size()) +
                            " ranks, count " + std::to_string(options.count) + ", tile " +
                            std::to_string(options.tile) + (options.in_place ? ", in place" : "") +
                            ", seed " + std::to_string(options.seed) + ": ";
  if (got.stuck) return where + *got.stuck + " is stuck";
  for (std::size_t call = 0; call < kCalls; ++call) {
    for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
      if (!plan::has_output(plan.shape, static_cast<std::uint32_t>(r))) continue;
      if (got.outputs[call][r] != reference(plan.shape, options.count, inputs[call], r))
        return where + "wrong result on rank " + std::to_string(r) + " in call " +
               std::to_string(call);
    }
  }
  return std::nullopt;
}

}  // namespace tutti::test
