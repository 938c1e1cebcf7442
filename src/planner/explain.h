// File: planner/explain.h: which candidate a call takes, why not the others, and what its time can
// be compared with; for hosts and devices.
//
// Times are those of select.h: measured where a tuning table has them, else estimated. The bound is
// the memory's: every input byte read once and every output byte written once, by as many CPUs as
// there are, each at the rate at which it copies. (What is measured to be faster than that shows
// that the rate is not this machine's: `tutti tune` measures it.) Between hosts it is the
// network's, where that is longer: what has to go into or out of a host at least.
#pragma once
#include <string>
#include <vector>

#include "planner/select.h"

namespace tutti::planner {

/// The factor of bandwidth, as nccl-tests multiply it, to compare collectives and rank counts.
double bus_factor(Collective collective, int ranks);

/// Bytes that have to be read and written at least, all ranks together; `bytes` is the message: the
/// larger of what a rank gives and gets.
double memory_traffic(const plan::Shape& shape, std::size_t bytes);

/// A candidate, and why it is not the one that is taken.
struct ExplainedWay {
  Candidate candidate;
  std::string why;  // Empty for the one that is taken.
};

struct CallExplanation {
  std::vector<ExplainedWay> ways;  // As candidates() has them: what is taken comes first.
  double bound_us = 0;
  std::string bound_words;
  std::string links_from;                 // "topology of cluster.topo"; empty: no graph.
  std::string weights_words;              // Which there are, and why; empty: none.
  std::vector<std::string> to_be_faster;  // What would have to change, one sentence each.

  const Candidate& taken() const { return ways.front().candidate; }
  /// Adds a sentence if another request, whose candidates these are, is faster: "the relaxed
  /// contract: ring in 3 us, 2 times as fast".
  void add_faster(std::string_view what, const Result<std::vector<Candidate>>& others);
};

/// The list, with why not for all but the first. kInvalidArgument: nothing is left to choose.
Result<CallExplanation> explained(std::vector<Candidate> list, Collective collective);

/// For ranks on CPUs. Pure, but for estimates, which are kept. Errors: those of candidates(), and
/// where there is nothing left to choose. Any thread.
Result<CallExplanation> explain(const Request& request, const PlannerInputs& inputs);

/// A table and what follows from it, at most 100 columns wide. `heading` is its first line.
std::string to_text(const CallExplanation& explanation, const Request& request,
                    std::string_view heading);

}  // namespace tutti::planner
