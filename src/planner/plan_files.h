// File: planner/plan_files.h: plans that users wrote, and give to the library in files.
//
// A file has one plan in its text form (docs/plan-format.md). It is used for calls of its
// collective, rank count and root, at every size, and lowered as an algorithm's plan is. Nothing
// that it says of itself is believed: the verifier proves the result, and with it the contract.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"
#include "tutti/result.h"

namespace tutti::planner {

/// A plan from a file; its contract is the one that was proved.
struct WrittenPlan {
  std::string file;
  plan::Plan plan;
  bool mapped_only = false;  // It touches peers' buffers, so all ranks have to have mapped them.
};

/// Reads and verifies one. The error has the file, and the line and column or the rank, lane and
/// step. A file has at most 256 MiB.
Result<WrittenPlan> read_plan(const std::string& file);

/// Those of a communicator. Pure once loaded.
class PlanFiles {
 public:
  /// `files` are names separated by commas (Settings::plan); empty: none. A plan whose order of
  /// reduction is not the canonical one is an error if `contract` is deterministic.
  static Result<PlanFiles> load(std::string_view files, Contract contract);

  /// The plan for a call, or null. `mapped`: all ranks can map all buffers of the call.
  const plan::Plan* find(Collective collective, int rank_count, int root, bool mapped) const;
  /// Whether there is one for some call of that kind.
  bool has(Collective collective, int rank_count) const;
  /// The most lanes of a plan for so many ranks; at least 1.
  std::size_t lanes(int rank_count) const;
  /// A hash of what all of them do; 0: there are none. Comments and blanks don't matter.
  std::uint64_t hash() const;
  /// One line for each file, of a communicator of so many ranks.
  std::string describe(int rank_count) const;

 private:
  std::vector<WrittenPlan> plans_;
};

}  // namespace tutti::planner
