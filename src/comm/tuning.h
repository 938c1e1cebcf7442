// File: comm/tuning.h: which tuning table the ranks of a communicator use.
//
// Rank 0 looks: for the file of the setting `tuning`, or for that in the usual place. What it found
// goes to all ranks with its hello, so all have the same tables, or the same reason why not,
// without a file system that they share. A machine is only probed where there is a file.
// Communicators that are split off have the tables of their parent: a file may have them for
// several rank counts.
#pragma once
#include <string>
#include <vector>

#include "planner/tuning_table.h"
#include "tutti/rendezvous.h"
#include "tutti/settings.h"

namespace tutti {

/// Tables that may hold here: of this machine and version.
struct Tuning {
  std::string source;  // The file; empty: there is none.
  std::string reason;  // Why there are no tables.
  std::vector<planner::TuningTable> tables;
};

/// What rank 0 finds. kInvalidArgument if a file that was asked for can't be read, or is broken;
/// one that lies in the usual place is left alone then, with a warning.
Result<Tuning> find_tuning(const Settings& settings);

/// As bytes, for the other ranks; an error goes to them as well.
Bytes pack_tuning(const Result<Tuning>& found);
Result<Tuning> unpack_tuning(std::span<const std::byte> bytes);

/// Reads a file of tables. kSystem if it can't be read, kInvalidArgument if it is broken.
Result<std::vector<planner::TuningTable>> read_tuning_file(const std::string& path);
/// Writes one, so that whoever reads at the same time sees the old file or the new one. Makes the
/// folder that it is in.
Status write_tuning_file(const std::string& path, const std::vector<planner::TuningTable>& tables);

}  // namespace tutti
