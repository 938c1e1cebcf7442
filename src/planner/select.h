// File: planner/select.h: all candidates for a call, best first, and why not the others.
//
// Pure: the same request and costs give the same list on every rank. Four sources decide, in this
// order:
//
//   the user    a forced candidate is the only one; a forbidden one is refused (override.h)
//   a table     the candidates that were measured on this machine, by their times
//   the rules   built_in_ranges (tuning_table.h), for up to kBuiltInRanks ranks
//   estimates   plan/estimate/estimate.h over what a hop and a byte cost here
//
// A candidate that one source knows comes before all that only later sources know. So a table that
// measured three candidates puts these three first, and the others follow by estimate.
//
// One list serves hosts and devices. Each says through PlanCosts what it knows of plans: for hosts
// that follows from a PlannerInputs, for devices see cuda/comm/select.h. The simulator (simulate/)
// is another matter: it tries each algorithm with several shapes, rank orders and protocols.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/estimate/estimate.h"
#include "plan/estimate/recording.h"
#include "planner/planner.h"
#include "planner/tuning_table.h"

namespace tutti::planner {

/// The source that puts a candidate in its place in the list.
enum class Evidence : std::uint8_t { kForced, kTuned, kRule, kEstimated };
std::string_view to_string(Evidence evidence);

struct Candidate {
  const Algorithm* algorithm = nullptr;  // Null: the eager path.
  bool eager = false;
  bool multicast = false;     // Over multicast memory, by a kernel that stands for the algorithm.
  bool copy_engines = false;  // Copies of devices run the algorithm's direct plan, no kernel.
  std::uint32_t lanes = 1;    // How often its lanes are repeated.
  double microseconds = 0;    // Measured if tuned, else estimated; 0: refused or not estimated.
  Evidence evidence = Evidence::kEstimated;
  std::string refused;  // Why it can't be taken, one line; empty: it can.
  /// "packet", "nvls", "copy_engines", or the algorithm's.
  std::string_view name() const;
};

/// What is known of plans on one kind of machine: it limits, ranks and times them.
class PlanCosts {
 public:
  virtual ~PlanCosts() = default;
  /// Settings::algorithm.
  virtual std::string_view overrides() const = 0;
  /// What a source other than the user and estimates says, best first.
  virtual std::vector<Way> ways(Evidence, const Request&) const { return {}; }
  /// Why the eager path can't be taken; empty: it can. None: it is no candidate.
  virtual std::optional<std::string> eager_refusal(const Request&) const { return {}; }
  /// The same of calls over multicast memory.
  virtual std::optional<std::string> multicast_refusal(const Request&) const { return {}; }
  /// The same for copy engines.
  virtual std::optional<std::string> copy_engines_refusal(const Request&) const { return {}; }
  /// How often lanes are repeated: as the user says, or a source; 0: it does not.
  virtual std::uint32_t lanes(const Algorithm& algorithm, const Request& request,
                              std::uint32_t by_user, std::uint32_t by_source) const = 0;
  /// Why a plan that applies and keeps the contract can't be taken; empty: it can.
  virtual std::string refusal(const Algorithm& algorithm, std::uint32_t lanes,
                              const Request& request) const = 0;
  /// How long a candidate takes; none: it has too many steps.
  virtual std::optional<double> estimate_us(const Candidate& candidate,
                                            const Request& request) const = 0;
  /// A time for every candidate, to compare those that all have too many steps.
  virtual double rough_us(const Candidate& candidate, const Request& request) const = 0;
};

/// All candidates of the request's collective, best first, refused ones last, in the order of the
/// registry. kInvalidArgument if the overrides name what there is not.
Result<std::vector<Candidate>> candidates(const Request& request, const PlanCosts& costs);
Result<std::vector<Candidate>> candidates(const Request& request, const PlannerInputs& inputs);

/// Those among them that can be taken, but the eager path, best first; never without a plan. With a
/// source that decides, the first is the best, and nothing is estimated. kInvalidArgument: nothing
/// is left. Where there are so many ranks that none can be estimated, rough times put them in
/// order.
Result<std::vector<Candidate>> usable_plans(const Request& request, const PlanCosts& costs);

/// The plans that are worth trying, best first: one, if that is known to be best, or blocks differ
/// in size; up to kMostTried, if it is an estimate. Never empty; choose() takes the first. Errors
/// as choose().
Result<std::vector<Candidate>> contenders(const Request& request, const PlannerInputs& inputs);
inline constexpr std::size_t kMostTried = 4;

/// How long a plan of the algorithm would take. Bounded: a plan of more than kMostEstimated steps
/// in all is not simulated, and has no value. Remembered for the process. Any thread.
std::optional<double> estimate_us(const Algorithm& algorithm, const Request& request,
                                  const PlannerInputs& inputs);
inline constexpr std::size_t kMostEstimated = std::size_t{1} << 17;

/// The same from one rank's plan, however many steps all have: the rank's messages one after
/// another, and what it shares as if all ranks had the same. Within a factor of two where they do,
/// but not for trees, whose depth one rank does not show.
double rough_us(const Algorithm& algorithm, const Request& request, const plan::CostModel& model);
double rough_us(const Algorithm& algorithm, const Request& request, const PlannerInputs& inputs);

/// As estimate_us, not remembered; a recording gets what happens when.
std::optional<double> simulate_us(const Algorithm& algorithm, const Request& request,
                                  const PlannerInputs& inputs, plan::Recording* recording);

/// The same for the eager path, whatever the size.
double estimate_eager_us(const Request& request, const PlannerInputs& inputs);

}  // namespace tutti::planner
