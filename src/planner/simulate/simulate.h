// File: planner/simulate/simulate.h: how long a collective would take on a machine that need not be
// here.
//
// An algorithm's plan, fused as far as the slots allow, is laid on the machine: its lanes on rank
// orders (machine_cost.h), in the layout that carries a large message faster. Its events are then
// simulated (plan/estimate/estimate.h), one of all that are alike; where plans of all ranks would
// be too large, those of a few are made (symmetry.h). What comes out is never faster than
// topology/bounds/bound.h, and the tests hold it to that.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "planner/explain.h"
#include "planner/machine_cost.h"
#include "topology/bounds/bound.h"

namespace tutti::planner {

struct SimulateOptions {
  Collective collective = Collective::kAllReduce;
  int root = 0;
  Contract contract = Contract::kDeterministic;
  DataType type = DataType::kFloat32;
  // As NCCL's Simple protocol has them: 8 slots of 512 KiB for each channel and peer.
  std::size_t slot_bytes = std::size_t{512} << 10;
  int slots = 8;
  /// So many lanes on every rank order, or as many as can be simulated: while one waits another
  /// sends. NCCL has up to 16 and more; four hide the latency of its slots.
  std::uint32_t channels = 4;
  std::uint32_t most_lanes = 0;                    // A plan's on all orders together; 0: no limit.
  std::size_t most_events = std::size_t{1} << 21;  // See plan::CostModel.
  bool symmetry = true;                            // Off: all ranks are simulated. For tests.
};

/// The resource of a kind that works longest.
struct Busy {
  std::string_view kind;  // "nvlink", "port", "memory".
  std::string name;       // In words.
  double us = 0;
};

struct Sample {
  double microseconds = 0;
  const Algorithm* algorithm = nullptr;
  const Protocol* protocol = nullptr;
  plan::Shape shape = {};           // With the groups that it uses.
  std::size_t lanes = 1;            // On all rank orders together,
  std::size_t orders = 1;           // of which there are so many.
  std::size_t simulated_ranks = 0;  // Fewer than there are: the others are alike.
  std::size_t messages = 0;         // One after the other, on the critical path,
  double latency_us = 0;            // and what they take whatever their bytes.
  std::vector<Busy> busy;           // One of each kind that is used, longest first.

  /// For which part of the time the busiest works.
  double bottleneck_share() const { return busy.empty() ? 0 : busy[0].us / microseconds; }
};

/// GB/s by the conventions of nccl-tests: bytes as bound() counts them.
double algorithm_bandwidth(double bytes, double microseconds);

/// It has more than 20 functions: one for each cost and each caller's question.
class Simulator {
 public:
  /// The graph has to outlive this; at least 2 endpoints.
  Simulator(const topology::Graph& graph, std::span<const topology::NodeId> endpoints,
            const SimulateOptions& options);
  ~Simulator();

  const MachineCost& machine() const { return machine_; }
  /// The algorithms of the collective that apply here and keep the contract.
  std::vector<const Algorithm*> candidates() const;

  /// Whether the machine has the protocol and the contract, by default that of the options, allows
  /// it.
  bool may_use(const Protocol& protocol, std::optional<Contract> contract = {}) const;

  /// The time of an algorithm with one protocol, whether or not they keep the contract. Errors: too
  /// many steps to simulate, ranks that nothing joins. A recording gets what Estimator::run says.
  /// What takes longer than the limit is given up early, and its time is plan::kBeyondLimit.
  Result<Sample> run(const Algorithm& algorithm, const Protocol& protocol, std::size_t bytes,
                     plan::Recording* recording = nullptr, double limit_us = plan::kBeyondLimit);
  /// With the fastest of the protocols given that may be used, under that contract.
  Result<Sample> run(const Algorithm& algorithm, std::span<const Protocol* const> protocols,
                     std::size_t bytes, std::optional<Contract> contract = {});
  /// A time that `run` is not below, out of the bytes that one rank sends. Far cheaper than `run`,
  /// which it saves where only the fastest algorithm counts.
  double least_us(const Algorithm& algorithm, const Protocol& protocol, std::size_t bytes);
  /// The time of a plan of all ranks as it is, in the order of the machine.
  double microseconds(const plan::Plan& plan, const Protocol& protocol, std::size_t bytes);
  /// The plan behind a sample, with all lanes; of the ranks that stand for all. Errors as of run.
  Result<plan::Plan> plan_of(const Sample& sample);
  /// The shape asked for: hosts as groups; weights, if links are not alike; trees, for few ranks.
  const plan::Shape& shape() const { return shapes_.front(); }
  /// The shapes that an algorithm is tried with: it applies to them and they keep the contract; or
  /// if none does both, all to which it applies. Several where groups may be nested in several
  /// ways.
  std::vector<const plan::Shape*> shapes_of(const Algorithm& algorithm) const;
  const SimulateOptions& options() const { return options_; }

  /// The time nothing can beat, in us; with switches that join what passes them fewer bytes are
  /// enough for an all-reduce. An error if the machine has none (bound.h).
  Result<double> bound_us(std::size_t bytes, bool joins_in_switch);
  /// The cut behind it.
  Result<std::string> bound_words(bool joins_in_switch);

 private:
  struct Layout;
  struct Prepared;
  /// See least.cc: microseconds for each element of a chunk, chunks of a block, lanes on all
  /// orders.
  struct Least {
    double element_us = 0;
    std::uint32_t pieces = 1;
    std::size_t lanes = 1;
  };
  Least least_of(const Algorithm& algorithm, const Protocol& protocol);
  Result<Prepared*> prepare(const Algorithm& algorithm, const Protocol& protocol);
  Result<std::unique_ptr<Prepared>> lay_out(const Algorithm& algorithm,
                                            const plan::CostModel& model,
                                            std::unique_ptr<Layout>& layout) const;
  Result<plan::Plan> plan_for(const Algorithm& algorithm, const plan::Shape& shape,
                              std::size_t orders, std::size_t all) const;
  bool may_lie(const Algorithm& algorithm, const plan::Shape& shape,
               const std::vector<std::vector<Rank>>& orders) const;
  double least(const Protocol& protocol, std::size_t bytes);
  std::uint32_t least_lanes(const Prepared& prepared, std::size_t bytes) const;
  plan::Estimate estimate(Prepared& prepared, std::size_t bytes, std::uint32_t lanes,
                          plan::Recording* recording, double limit_us = plan::kBeyondLimit) const;
  std::vector<Busy> busiest(const plan::Estimate& estimate) const;
  Result<const topology::Bound*> bound(bool joins_in_switch);

  const SimulateOptions options_;
  MachineCost machine_;
  std::vector<plan::Shape> shapes_;  // First with hosts as groups, then with smaller ones in them.
  std::vector<std::vector<std::vector<Rank>>> orders_;
  std::map<std::pair<const Algorithm*, bool>, std::unique_ptr<Layout>> layouts_;  // Joins or not.
  std::map<std::pair<const Algorithm*, bool>, std::optional<Error>> failed_;
  std::map<std::pair<const Algorithm*, const Protocol*>, std::unique_ptr<Prepared>> prepared_;
  std::map<std::pair<const Algorithm*, const Protocol*>, Least> leasts_;
  std::map<bool, Result<topology::Bound>> bounds_;
};

}  // namespace tutti::planner
