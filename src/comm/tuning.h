// File: comm/tuning.h: which tuning table the ranks of a communicator use.
//
// Rank 0 looks: for the file of the setting `tuning`, or for that in the usual place. What it found
// goes to all ranks with its hello, so all have the same tables, or the same reason why not,
// without a file system that they share. A machine is only probed where there is a file. A table of
// ranks on several hosts holds for all their machines, which these tell each other where rank 0 has
// a table that may fit.
// Communicators that are split off have the tables of their parent: a file may have them for
// several rank counts. If their rank 0 is on a machine of another kind than the parent's, or that
// has no file, what it finds itself is theirs.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "comm/exchange_over.h"
#include "planner/tuning_table.h"
#include "tutti/rendezvous.h"
#include "tutti/settings.h"

namespace tutti {

/// Tables that may hold here: of this version, and of this machine or several hosts.
struct Tuning {
  std::string source;         // The file; empty: there is none.
  std::string reason;         // Why there are no tables.
  std::uint64_t machine = 0;  // Rank 0's; 0: it was not looked at.
  std::vector<planner::TuningTable> tables;
};

/// What rank 0 finds. kInvalidArgument if a file that was asked for can't be read, or is broken;
/// one that lies in the usual place is left alone then, with a warning.
Result<Tuning> find_tuning(const Settings& settings);

/// What rank 0 of a part, of so many ranks, finds; nothing: the tables of the whole hold. What
/// can't be read is left alone, with a warning: the whole was made without it.
std::optional<Tuning> find_tuning_of_part(const Settings& settings, int rank_count,
                                          const Tuning& whole);

/// The hosts of a communicator, as tables know them.
struct TunedHosts {
  std::uint64_t machine = 0;       // A hash of all of them in order; 0: no rank asked.
  std::vector<std::string> names;  // By host; words.
};

/// Asks. `hosts` as planner::Hosts::of. Collective.
Result<TunedHosts> meet_hosts(const std::vector<int>& hosts, const Exchange& exchange);

/// As bytes, for the other ranks; an error goes to them as well.
Bytes pack_tuning(const Result<Tuning>& found);
Result<Tuning> unpack_tuning(std::span<const std::byte> bytes);

/// Reads a file of tables. kSystem if it can't be read, kInvalidArgument if it is broken.
Result<std::vector<planner::TuningTable>> read_tuning_file(const std::string& path);

}  // namespace tutti
