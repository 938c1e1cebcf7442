// File: sweep/options.h: what a sweep was asked for. Options and meanings are those of nccl-tests;
// ours come on top.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tutti/result.h"
#include "tutti/types.h"
#include "tutti/wire.h"

namespace tutti::perf {

enum class Check { kOff, kValues, kBits };

/// More sizes than that are a slip of the step, and an error of parse_options.
inline constexpr std::size_t kMostSizes = 10'000;

/// It has more than 15 fields: one for each option of the command line.
struct Options {
  Collective collective = Collective::kAllReduce;
  std::size_t min_bytes = std::size_t{32} << 20, max_bytes = std::size_t{32} << 20;
  std::size_t step_bytes = std::size_t{1} << 20;  // Used when factor is 0.
  double factor = 0;
  int iterations = 0;  // 0: as many as fit 10 ms, at least 20.
  int cycles = 1;      // 0: for ever.
  int warmup = 1;
  int aggregate = 1;
  Check check = Check::kValues;
  int check_rounds = 1;  // Verified calls per placement, before the clock starts.
  std::vector<ReduceOp> ops{ReduceOp::kSum};
  std::vector<DataType> types{DataType::kFloat32};
  std::vector<int> roots{0};  // -1: all.
  bool registered = false;
  int blocking = 1, report_cpu = 0, timestamps = 0;  // 0 or 1.
  int average = 1;  // 0 rank 0's time, 1 average, 2 minimum, 3 maximum.
  int timeout_s = 0;
  int ranks = 0;    // Processes that the sweep starts itself.
  int threads = 1;  // Ranks per process, as threads.
  bool pin = false;
  bool percentiles = false;
  bool bound = false;
  Wire wire;         // How values travel.
  std::string plan;  // Files with plans to run, as TUTTI_PLAN.
  std::string csv, json, plot;
  std::vector<std::string> ignored;  // Options given that mean nothing on a host.
  std::string command_line;
  std::string program;  // The program's name, for errors.
  std::string busy;     // Why the machine is busy (noise.h); "": it is not.
};

/// Reads the command line. Prints help or one line of error itself; then `exit_code` is set and the
/// program ends with it.
Options parse_options(Collective collective, int argc, char** argv, int* exit_code);

/// "8", "64K", "1.5M", "2G" in bytes; empty for anything else.
std::optional<std::size_t> parse_size(const std::string& text);
/// A type's name in nccl-tests' output ("float", "half"), and back (ours are understood too).
std::string type_name(DataType type);
std::optional<DataType> parse_type(const std::string& text);
/// What to say of a name that is none, with a `list` of names that can be chosen.
std::string unknown_type(const std::string& text, const std::string& list);
/// "sum", …, "mulsum"; and back.
std::string op_name(ReduceOp op);
std::optional<ReduceOp> parse_op(const std::string& text);

/// All sizes of the sweep, in bytes, ascending; at most kMostSizes of them.
std::vector<std::size_t> sizes_of(const Options& options);

/// The main function of all_reduce_perf and its like. 0: measured, and all values right. 1:
/// something failed or was wrong. 2: the command line is.
int sweep_main(Collective collective, int argc, char** argv);

}  // namespace tutti::perf
