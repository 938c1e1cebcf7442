#include "perf/sweep/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>

#include "base/output.h"
#include "perf/sweep/help.h"

namespace tutti::perf {
namespace {

constexpr DataType kTypes[] = {
#define TUTTI_DATA_TYPE(enumerator, ...) DataType::enumerator,
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
};
constexpr std::array<ReduceOp, 9> kOps{ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin,
                                       ReduceOp::kMax, ReduceOp::kAvg,  ReduceOp::kPreMulSum,
                                       ReduceOp::kAnd, ReduceOp::kOr,   ReduceOp::kXor};

std::string known_types() {
  std::string text;
  for (const DataType type : kTypes) text += type_name(type) + " ";
  return text + "all";
}

std::string known_ops() {
  std::string text;
  for (const ReduceOp op : kOps) text += op_name(op) + " ";
  return text + "all";
}

/// Options of nccl-tests that have no use on a host.
constexpr std::array<const char*, 4> kForDevices{"-g,--ngpus", "-G,--cudagraph",
                                                 "-p,--parallel_init", "-y,--stream_null"};

struct Words {  // Options that are words, until they are understood.
  std::string min = "32M", max = "32M", step = "1M", op = "sum", type = "float", check = "1";
  std::string root = "0";
  int local_register = 0, blocking = 1, report_cpu = 0, timestamps = 0;
  int gpus = 1, graph = 0, parallel_init = 0, stream_null = 0;
};

void add_options(CLI::App& app, Options& o, Words& w) {
  app.add_option("-b,--minbytes", w.min, "Smallest size, with K, M or G")->capture_default_str();
  app.add_option("-e,--maxbytes", w.max, "Largest size")->capture_default_str();
  app.add_option("-i,--stepbytes", w.step, "Step from size to size")->capture_default_str();
  app.add_option("-f,--stepfactor", o.factor, "Factor from size to size, instead of a step")
      ->check(CLI::Range(1.0001, 1e9));
  app.add_option("-n,--iters", o.iterations,
                 "Calls per measurement; 0: what fits 10 ms, at least 20")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("-N,--run_cycles", o.cycles, "Times to run the whole sweep; 0: for ever")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("-w,--warmup_iters", o.warmup, "Calls before the clock starts")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("-m,--agg_iters", o.aggregate, "Calls that are grouped into one")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("-c,--check", w.check,
                 "Calls to verify, 0 for none; or bits: one, against the canonical reference")
      ->capture_default_str();
  app.add_option("-o,--op", w.op, "Reduction: " + known_ops())->capture_default_str();
  app.add_option("-d,--datatype", w.type, "Type: " + known_types())->capture_default_str();
  app.add_option("-r,--root", w.root, "Root of a broadcast; -1 or all: all in turn")
      ->capture_default_str();
  app.add_option("-z,--blocking", w.blocking, "1: blocking calls, 0: asynchronous ones")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  app.add_option("-a,--average", o.average,
                 "Time of a call: 0 rank 0's, 1 average, 2 minimum, 3 maximum")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  app.add_option("-C,--report_cputime", w.report_cpu, "1: report CPU time instead of latency")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  app.add_option("-R,--local_register", w.local_register,
                 "0: plain buffers, 1 or 2: buffers that peers can map")
      ->check(CLI::Range(0, 2))
      ->capture_default_str();
  app.add_option("-T,--timeout", o.timeout_s,
                 "Seconds until a call gives up; 0: the library's default")
      ->check(CLI::Range(0, 86400));
  app.add_option("-t,--nthreads", o.threads, "Ranks per process, as threads")
      ->check(CLI::Range(1, 256));
  app.add_option("-J,--output_file", o.json, "Write the results as JSON");
  app.add_option("-S,--report_timestamps", w.timestamps, "1: end every line with the time of day")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  app.add_option(kForDevices[0], w.gpus, "Accepted, without effect on a host");
  app.add_option(kForDevices[1], w.graph, "Accepted, without effect on a host");
  app.add_option(kForDevices[2], w.parallel_init, "Accepted: ranks always start side by side");
  app.add_option(kForDevices[3], w.stream_null, "Accepted, without effect on a host");
  app.add_option("--ranks", o.ranks, "Start this many local ranks, as processes")
      ->check(CLI::Range(1, 256));
  app.add_flag("--pin", o.pin, "Pin local rank r to the r-th usable CPU");
  app.add_flag("--percentiles", o.percentiles, "Add p50, p99 and max of single calls");
  app.add_flag("--bound", o.bound,
               "Add % of bound: of what memory and the links between NUMA nodes allow");
  app.add_option("--plan", o.plan, "Run the plans in these files, separated by commas");
  app.add_option("--csv", o.csv, "Write the results as CSV");
  app.add_option("--plot", o.plot, "Write a picture (SVG)");
}

using Complaint = std::optional<std::string>;

bool parse_int(const std::string& text, int* into) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *into);
  return error == std::errc{} && stop == end;
}

Complaint understand_sizes(const Words& w, Options& o) {
  const auto size = [](const char* option, const std::string& text,
                       std::size_t* into) -> Complaint {
    const auto bytes = parse_size(text);
    if (!bytes) return fmt::format("{}: '{}' is not a size; try 8, 64K, 1M or 2G", option, text);
    *into = *bytes;
    return std::nullopt;
  };
  if (auto wrong = size("--minbytes", w.min, &o.min_bytes)) return wrong;
  if (auto wrong = size("--maxbytes", w.max, &o.max_bytes)) return wrong;
  if (auto wrong = size("--stepbytes", w.step, &o.step_bytes)) return wrong;
  if (o.max_bytes < o.min_bytes)
    return fmt::format("--maxbytes {} is smaller than --minbytes {}", o.max_bytes, o.min_bytes);
  if (o.step_bytes == 0) return "--stepbytes must not be 0";
  if (o.factor <= 0 && (o.max_bytes - o.min_bytes) / o.step_bytes >= kMostSizes) {
    return fmt::format("--stepbytes {} makes {} sizes, more than {}; take a larger step, or -f 2",
                       o.step_bytes, (o.max_bytes - o.min_bytes) / o.step_bytes + 1, kMostSizes);
  }
  if (o.factor > 0 && sizes_of(o).back() < o.max_bytes && sizes_of(o).size() == kMostSizes)
    return fmt::format("--stepfactor {} makes more than {} sizes", o.factor, kMostSizes);
  return std::nullopt;
}

Complaint understand_words(const Words& w, Options& o) {
  if (w.op == "all") {
    o.ops.assign(kOps.begin(), kOps.begin() + 6);  // As nccl-tests: not the bitwise ones.
  } else if (const auto op = parse_op(w.op)) {
    o.ops = {*op};
  } else {
    return fmt::format("--op: '{}' is not one of {}", w.op, known_ops());
  }
  if (w.type == "all") {
    o.types.assign(std::begin(kTypes), std::end(kTypes));
  } else if (const auto type = parse_type(w.type)) {
    o.types = {*type};
  } else {
    return fmt::format("--datatype: '{}' is not one of {}", w.type, known_types());
  }
  if (!reduces(o.collective)) {
    o.ops = {ReduceOp::kSum};
  } else if (o.ops.size() == 1 && o.types.size() == 1 && !is_supported(o.types[0], o.ops[0])) {
    return fmt::format("--op {} goes with integers, not with --datatype {}", w.op, w.type);
  }
  if (w.check == "bits") {
    o.check = Check::kBits;
  } else if (!parse_int(w.check, &o.check_rounds) || o.check_rounds < 0 || o.check_rounds > 1000) {
    return fmt::format("--check: '{}' is neither a number of calls, 0 to 1000, nor bits", w.check);
  } else if (o.check_rounds == 0) {
    o.check = Check::kOff;
  }
  int root = -1;
  if (w.root != "all" && (!parse_int(w.root, &root) || root < -1))
    return fmt::format("--root: '{}' is neither a rank nor all", w.root);
  o.roots = {root};
  return std::nullopt;
}

Complaint understand(const Words& w, Options& o) {
  if (auto wrong = understand_sizes(w, o)) return wrong;
  if (auto wrong = understand_words(w, o)) return wrong;
  o.registered = w.local_register != 0;
  o.blocking = w.blocking != 0;
  o.report_cpu = w.report_cpu != 0;
  o.timestamps = w.timestamps != 0;
  if (o.ranks > 0 && o.threads > 1)
    return "--ranks and --nthreads exclude each other: processes or threads";
  return std::nullopt;
}

}  // namespace

std::optional<std::size_t> parse_size(const std::string& text) {
  try {
    std::size_t used = 0;
    const double value = std::stod(text, &used);
    double unit = 1;
    if (used < text.size()) {
      const char suffix = text[used++];
      if (suffix == 'k' || suffix == 'K')
        unit = 1024;
      else if (suffix == 'm' || suffix == 'M')
        unit = 1024.0 * 1024;
      else if (suffix == 'g' || suffix == 'G')
        unit = 1024.0 * 1024 * 1024;
      else
        return std::nullopt;
    }
    if (used != text.size() || !(value >= 0) || value * unit > 1e15) return std::nullopt;
    return static_cast<std::size_t>(value * unit);
  } catch (const std::exception&) {  // Not a number, or out of range.
    return std::nullopt;
  }
}

std::string type_name(DataType type) {
  switch (type) {  // Those that nccl-tests calls otherwise.
    case DataType::kFloat16: return "half";
    case DataType::kFloat32: return "float";
    case DataType::kFloat64: return "double";
    case DataType::kFloat8E4M3: return "f8e4m3";
    case DataType::kFloat8E5M2: return "f8e5m2";
    default: return std::string(to_string(type));
  }
}

std::optional<DataType> parse_type(const std::string& text) {
  for (const DataType type : kTypes) {
    if (text == type_name(type)) return type;
  }
  if (text == "fp8_e4m3") return DataType::kFloat8E4M3;
  if (text == "fp8_e5m2") return DataType::kFloat8E5M2;
  if (text == "bf16") return DataType::kBfloat16;
  if (text == "fp16") return DataType::kFloat16;
  if (text == "fp32") return DataType::kFloat32;
  if (text == "fp64") return DataType::kFloat64;
  return parse_data_type(text);
}

std::string op_name(ReduceOp op) {
  return op == ReduceOp::kPreMulSum ? "mulsum" : std::string(to_string(op));
}

std::optional<ReduceOp> parse_op(const std::string& text) {
  return text == "mulsum" ? ReduceOp::kPreMulSum : parse_reduce_op(text);
}

std::vector<std::size_t> sizes_of(const Options& options) {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = options.min_bytes;
       bytes <= options.max_bytes && sizes.size() < kMostSizes;) {
    sizes.push_back(bytes);
    const auto grown =
        static_cast<std::size_t>(std::llround(static_cast<double>(bytes) * options.factor));
    bytes = options.factor > 0 ? std::max(bytes + 1, grown) : bytes + options.step_bytes;
  }
  return sizes;
}

Options parse_options(Collective collective, int argc, char** argv, int* exit_code) {
  Options options;
  options.collective = collective;
  for (int i = 0; i < argc; ++i) options.command_line += (i == 0 ? "" : " ") + std::string(argv[i]);
  Words words;
  const std::string name = std::string(to_string(collective)) + "_perf";
  options.program = name;
  CLI::App app(
      fmt::format(
          "Measures {} on this machine, in the manner of nccl-tests, and verifies the results.",
          to_string(collective)),
      name);
  app.footer(fmt::format(
      "Examples:\n  {0} --ranks 2 -b 8 -e 64M -f 4\n  {0} --ranks 4 -b 8 -e 16M -f 2 -R 1 "
      "--bound --plot sweep.svg\n  mpirun -n 2 {0} -b 1M -e 1M -d bfloat16 -c bits",
      name));
  app.formatter(std::make_shared<HelpFormatter>());
  add_options(app, options, words);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help
      std::ostringstream out;
      *exit_code = app.exit(error, out, out);
      put_output(out.str());
    } else {
      say_error("{}: {}; --help lists the options\n", name, error.what());
      *exit_code = 2;
    }
    return options;
  }
  if (const auto wrong = understand(words, options)) {
    say_error("{}: {}\n", name, *wrong);
    *exit_code = 2;
  }
  for (const char* names : kForDevices) {
    const std::string option = std::string(names).substr(3);
    if (app.count(option) > 0) options.ignored.push_back(option);
  }
  return options;
}

}  // namespace tutti::perf
