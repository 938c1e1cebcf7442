// File: trainer/optimisers/optimiser.h: how gradients change weights.
//
// An optimiser works on runs: parts of units, wherever they lie. Its values (momentum, variances)
// lie beside it, one vector for each kind. SGD and Adam look at one element at a time, so a run
// changes to the same bits whether it is the whole vector or a rank's shard of it. LARS and LAMB
// scale by norms of a whole unit, which ranks with shards have to sum.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/memory.h"

namespace tutti::trainer {

/// Consecutive elements of a unit.
struct Run {
  std::size_t unit = 0;
  std::size_t begin = 0, size = 0;  // In the flat vector of all parameters.
  float* weights = nullptr;
  const float* gradient = nullptr;  // Summed over samples.
};

/// One step.
struct Step {
  std::uint64_t number = 1;  // From 1 on.
  double rate = 0;
  double scale = 1;  // Makes the summed gradient a mean.
};

struct OptimiserOptions {
  std::string name = "sgd";  // sgd, adam, lars or lamb.
  double momentum = 0.9;     // Adam's and LAMB's first beta too.
  double beta2 = 0.99;
  double epsilon = 1e-8;
  double weight_decay = 1e-4;
};

class Optimiser {
 public:
  static constexpr std::size_t kMostStates = 2;
  /// A run, with the optimiser's own values for it.
  struct Place {
    Run run;
    std::array<float*, kMostStates> states{};
  };

  explicit Optimiser(const OptimiserOptions& options) : options_(options) {}
  virtual ~Optimiser() = default;
  /// Its own values for each parameter.
  virtual std::size_t states() const = 0;
  /// Whether it has to know norms of whole units. Then `prepare` is called for all runs first.
  virtual bool by_unit() const { return false; }
  /// Adds a run's parts of the squares of two norms: of the weights and of the change.
  virtual void prepare(const Place& /*place*/, const Step& /*step*/, double* /*norms*/) {}
  /// `trust` is the weights' norm over the change's; 1 where one of them is 0.
  virtual void update(const Place& place, const Step& step, double trust) = 0;

 protected:
  OptimiserOptions options_;
};

/// kInvalidArgument if there is no such optimiser.
Result<std::unique_ptr<Optimiser>> make_optimiser(const OptimiserOptions& options);

/// The highest learning rate if none is asked for; 0 if there is no such optimiser.
double default_rate(const std::string& optimiser);

/// Which rank's the values of a piece are; for one kind of value it is the same on all ranks.
enum class Held : std::uint8_t {
  kInParts,     // Each rank has other stretches; those of all ranks together cover the vector.
  kEverywhere,  // The same values on all ranks.
  kByRank,      // Each rank has values of its own, which no other rank can go on from.
};

/// Values that belong to a stretch of the flat vector, for checkpoints: weights, "state 0", ...
struct Piece {
  std::string what;
  std::size_t begin = 0;
  std::span<float> values;
  Held held = Held::kInParts;
  bool optional = false;  // Stays as it is where a checkpoint does not have it.
};

/// An optimiser with its values, for the runs that one rank updates.
class Updater {
 public:
  static Result<Updater> make(const OptimiserOptions& options, Ledger& ledger,
                              std::vector<Run> runs, std::size_t units);
  /// Updates all runs, but for units that were not used (`used` may be null). Where a unit's runs
  /// are on several ranks, `sum` adds up the values of all of them.
  Status update(const Step& step, const std::function<Status(std::span<double>)>& sum = {},
                const std::vector<char>* used = nullptr);
  std::vector<Piece> pieces(Held held) const;
  const std::vector<Run>& runs() const { return runs_; }

 private:
  Optimiser::Place place(std::size_t index);

  std::unique_ptr<Optimiser> optimiser_;
  std::vector<Run> runs_;
  std::vector<std::size_t> offsets_;  // By run, into the optimiser's values.
  std::size_t total_ = 0, units_ = 0;
  Floats states_;
};

struct RateOptions {
  double peak = 0;  // 0: default_rate of the optimiser.
  double warm_up_epochs = 1;
  /// Goyal et al., 2017: the peak is for so many samples in a batch, and grows with the batch; 0:
  /// it does not.
  std::size_t reference_batch = 0;
};

/// The learning rate at `epoch` of `epochs`: a linear warm-up from a tenth, then down a cosine to a
/// hundredth. options.peak is not 0.
double rate_at(const RateOptions& options, double epoch, int epochs, std::size_t batch);

}  // namespace tutti::trainer
