// File: trainer/worker.h: one rank's part of training.
//
// Training is a row of turns: the steps of an epoch, and its evaluation. A turn is done as a whole
// or not at all, and a rank may be one turn ahead of another that has failed: it can go back by
// one.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/passes.h"
#include "trainer/strategies/strategy.h"
#include "trainer/train.h"

namespace tutti::trainer {

/// What training has come to. The values are those of Strategy::pieces, in their order.
struct State {
  std::vector<std::vector<float>> values;
  std::vector<float> buffers;  // Passes::buffers.
  std::uint64_t turn = 0;      // The next one.
  double loss = 0;             // Over this rank's samples of the epoch so far.
  std::vector<Epoch> epochs;
};

/// It has more than 20 functions: what an epoch, a step and a batch do, and what elastic training
/// (elastic.h) needs.
class Worker {
 public:
  /// The data, options and network outlive it.
  Worker(const Split& data, const TrainOptions& options, const Network& network);

  /// Takes part in `comm` from now on, which has to live until the next `use`. State stays, where
  /// each rank has all of it. Collective.
  Status use(Communicator& comm);
  /// Does the next turn. The figures of an epoch, if it was the last one of that.
  Result<std::optional<Epoch>> advance();
  bool done() const { return turn_ == turns() * static_cast<std::uint64_t>(options_.epochs); }
  /// Whether the next turn is the first of an epoch.
  bool begins_epoch() const { return turn_ % turns() == 0; }
  std::uint64_t turn() const { return turn_; }
  const std::vector<Epoch>& epochs() const { return epochs_; }

  /// Keeps copies of the state before the turn that is under way, and before the last one, for
  /// go_back. A rank that is in a turn, and so has begun to change its state, may have to go back
  /// to the one before: others may not have ended that.
  void keep_copies() { keeps_ = true; }
  /// To the state before one of these turns. False: there is none.
  bool go_back(std::uint64_t turn);
  /// All ranks get the state of `root`. Only where each rank has all of it.
  Status hand_over(Rank root);
  /// Whether each rank has the whole state.
  bool has_whole_state();

  /// What a checkpoint has beside the strategy's pieces: all of State but the values.
  State position() const;
  /// Goes on from there; the pieces have their values already.
  Status go_on(const State& position);
  /// What two runs must have in common so that one may go on from where the other was.
  std::string task() const;
  const std::string& strategy_name() const { return options_.strategy.name; }

  /// A hash of the weights' bits, which are left in `weights`; an error unless it is the same on
  /// all ranks. Collective.
  Result<std::uint64_t> check_replicas(std::vector<float>& weights);
  Phases phases() const;
  Strategy& strategy() { return *strategy_; }
  const Ledger& memory() const { return memory_; }
  double bytes() const { return bytes_ + (traffic_ ? traffic_->bytes() : 0); }
  std::uint64_t steps_done() const { return steps_done_; }

 private:
  std::size_t group() const {
    return options_.batch * static_cast<std::size_t>(options_.accumulate);
  }
  std::uint64_t steps() const { return (order_.size() + group() - 1) / group(); }
  std::uint64_t turns() const { return steps() + 1; }  // In an epoch.
  State snapshot();
  Status restore(const State& state);
  Status step(std::size_t first, std::size_t last, double rate);
  Result<Epoch> evaluate();
  std::vector<Slice> slices_of(std::size_t begin, std::size_t end) const;
  std::vector<char> choose_skipped() const;
  Passes::Sum sum_of_ranks();

  const Split& data_;
  const TrainOptions& options_;
  const Network& network_;
  std::vector<std::size_t> order_;  // The samples', in the epoch before `shuffled_`.
  std::uint64_t shuffled_ = 0;      // Epochs.
  Ledger memory_;
  std::optional<Traffic> traffic_;
  std::unique_ptr<Strategy> strategy_;
  Passes passes_;
  std::uint64_t turn_ = 0, steps_done_ = 0;
  double loss_ = 0, bytes_ = 0, steps_s_ = 0;  // bytes_: with communicators before this one.
  std::vector<Epoch> epochs_;
  bool keeps_ = false;
  std::array<std::optional<State>, 2> copies_;  // By turn; modulo.
  std::optional<State> kept_;                   // From one communicator to the next.
};

/// What training has come to, in `seconds` for so many samples. Collective.
Result<Outcome> outcome_of(Worker& worker, double samples, double seconds);

}  // namespace tutti::trainer
