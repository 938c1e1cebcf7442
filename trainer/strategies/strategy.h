// File: trainer/strategies/strategy.h: what a way to train data-parallel is.
//
// A strategy decides where parameters, gradients and the optimiser's values are, and when ranks
// communicate. The trainer computes. It walks through the units of a network, forward and back, and
// calls the strategy at each:
//
//   begin_step
//     begin_batch                               for each batch between two synchronisations
//       forward:  parameters(u) ... release(u)      u = 0, 1, ..., last
//       backward: parameters(u) ... release(u), gradient(u) ... ready(u)      u = last, ..., 1, 0
//   step                                        the weights change
//
// Every rank makes the same calls, also one that has no samples, so any of them may be collective.
//
// To add one: a file here that defines `std::unique_ptr<Strategy> make_NAME(const Setup&)`, its
// equation and source at the top, and a line in strategies.def. The tests and `--compare` take it
// from there.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/memory.h"
#include "trainer/models/network.h"
#include "trainer/optimisers/optimiser.h"
#include "trainer/traffic.h"

namespace tutti::trainer {

/// It has more than 15 fields: those of all strategies, so that a program can offer them as
/// options.
struct StrategyOptions {
  std::string name = "ddp";
  std::size_t bucket_bytes = std::size_t{1} << 20;  // Gradients that are reduced together.
  bool find_unused = false;                         // ddp: a rank may leave units out.
  bool broadcast_buffers = false;                   // ddp: running means are rank 0's.
  int cycle_us = 500;                               // horovod: between two looks at what is ready.
  bool adasum = false;                              // horovod: adasum.h in place of a sum.
  DataType precision = DataType::kFloat32;          // fsdp: kBfloat16 is mixed precision.
  bool reshard = true;        // fsdp: parameters go after forward, and are gathered again.
  int group_ranks = 2;        // hierarchical: ranks of a group.
  int servers = 1;            // ps, async_ps, dcasgd.
  int staleness = 4;          // async_ps, dcasgd: steps that a worker may be ahead.
  double delay_lambda = 2;    // dcasgd
  int local_steps = 8;        // local: steps between two averages.
  int post_local_steps = 0;   // local: steps with an average each, before that.
  double outer_rate = 1;      // local: 1 and a momentum of 0 are the plain average.
  double outer_momentum = 0;  // local: DiLoCo has 0.7 and 0.9.
  OptimiserOptions optimiser = {};
};

/// What a strategy works with; all of it outlives the strategy.
struct Setup {
  Traffic& traffic;
  const Network& network;
  Ledger& ledger;
  const StrategyOptions& options;
};

/// One step of the weights.
struct StepInfo {
  std::uint64_t number = 1;  // From 1 on.
  double rate = 0;
  std::size_t labels = 0;      // Learnt by all ranks, in all batches of the step,
  std::size_t own_labels = 0;  // and by this rank.
};

/// It has more than 20 functions: the places where a strategy may act, most of which do nothing.
class Strategy {
 public:
  explicit Strategy(const Setup& setup) : setup_(setup) {}
  virtual ~Strategy() = default;

  /// Takes the first weights, the same on all ranks. Collective.
  virtual Status begin(std::span<const float> weights) = 0;

  /// The part of a batch that this rank computes: part `index` of `count`, or none.
  struct Share {
    std::size_t index = 0, count = 1;
    bool none = false;
  };
  virtual Share share() const { return {traffic().me(), traffic().ranks()}; }

  /// `buffers`: values that are no parameters, see Layer.
  virtual Status begin_step(std::span<float> /*buffers*/) { return ok(); }
  /// `last`: ranks synchronise after this batch.
  virtual Status begin_batch(bool first, bool last) {
    first_batch_ = first;
    last_batch_ = last;
    return ok();
  }
  /// A unit's parameters, which stay until `release`.
  virtual Result<const float*> parameters(std::size_t unit) = 0;
  virtual Status release(std::size_t /*unit*/) { return ok(); }
  /// Where this unit's gradient goes, and whether it is added to what is there.
  struct Target {
    float* data = nullptr;
    bool add = false;
  };
  virtual Result<Target> gradient(std::size_t unit) = 0;
  /// The unit's gradient over this batch is there. Not called for a unit that was left out.
  virtual Status ready(std::size_t unit) = 0;
  /// The loss's slopes come multiplied by this.
  virtual float loss_scale() const { return 1; }
  /// All gradients are there: changes the weights.
  virtual Status step(const StepInfo& info) = 0;

  /// Between these, `parameters` returns the model that the ranks have trained together, alike on
  /// all of them. Collective.
  virtual Status begin_evaluation() { return ok(); }
  virtual Status end_evaluation() { return ok(); }

  /// What this rank holds of the state between two epochs, for checkpoints. All ranks' pieces
  /// together cover each kind of value.
  virtual std::vector<Piece> pieces() = 0;
  /// Values were put into the pieces. Collective.
  virtual Status restored() { return ok(); }
  /// A line about what this strategy did, or nothing.
  virtual std::string note() const { return {}; }

 protected:
  Traffic& traffic() const { return setup_.traffic; }
  const std::vector<Unit>& units() const { return setup_.network.units(); }
  const StrategyOptions& options() const { return setup_.options; }
  /// Values of this rank's, in the ledger.
  Result<Floats> make(Holds what, std::size_t count) const {
    return Floats::make(setup_.ledger, what, count);
  }

  Setup setup_;
  bool first_batch_ = true, last_batch_ = true;
};

struct StrategyInfo {
  const char* name;
  const char* text;
  std::unique_ptr<Strategy> (*make)(const Setup&);
};
/// All of strategies.def, in its order.
std::span<const StrategyInfo> strategies();
/// kInvalidArgument if there is none of that name.
Result<std::unique_ptr<Strategy>> make_strategy(const Setup& setup);

}  // namespace tutti::trainer
