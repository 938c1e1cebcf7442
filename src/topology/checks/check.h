// File: topology/checks/check.h: the doctor: what is wrong with a machine, judged from its graph
// alone.
//
// A check is a function in checks/*.cc and a line in checks.def with the codes of its findings. A
// code without a damaged machine in tests/support/topology/topology_damages.h fails its test. A
// check says what the graph's facts show and nothing more: where a fact is missing it is silent,
// for readers and probes have said that already (CheckOptions::known carries what they said).
//
// Severities: an error is broken, a warning costs bandwidth or will surprise, a note is what to
// know. `loss` is the share of bandwidth that the parts concerned lose: from both figures of the
// link where there are two, from a published case otherwise; the evidence says which.
#pragma once
#include "topology/graph/finding.h"

namespace tutti::topology {

struct CheckOptions {
  /// What a probe or reader has already found in this graph: passed through and ranked with the
  /// rest. What a check finds again (same code, same place) appears once, as the check has it.
  Findings known;
};

/// All verdicts, worst first: by severity, then predicted loss, then code and place. What several
/// parts have for one reason is one verdict, at "host0/gpu0-gpu7". The same for the same graph. The
/// graph has to be sound (validate's rules, reader.h); linear in it but for sorting, and for
/// patterns of rails, where every host is compared with every different one.
Findings check(const Graph& graph, const CheckOptions& options = {});

/// What `b` has otherwise than `a` (the machine as it should be: another one, or a model), ranked
/// likewise. Hosts are matched in their order, parts of a kind by index, or by bus address where
/// not all have one. What only one side says anything about is no difference; nor are serial
/// numbers and addresses. `where` names the part of `a`, or of `b` where only that has it.
Findings differences(const Graph& a, const Graph& b);

/// 0: nothing, or notes only. 1: warnings. 2: errors. For scripts.
int exit_code(const Findings& findings);

}  // namespace tutti::topology
