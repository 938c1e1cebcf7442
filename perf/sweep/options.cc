#include "perf/sweep/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/nearest.h"
#include "base/output.h"
#include "perf/command_line/command_line.h"

namespace tutti::perf {
namespace {

constexpr DataType kTypes[] = {
#define TUTTI_DATA_TYPE(enumerator, ...) DataType::enumerator,
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
};
using enum ReduceOp;
constexpr ReduceOp kOps[] = {kSum, kProd, kMin, kMax, kAvg, kPreMulSum, kAnd, kOr, kXor};

/// Types by name: first what nccl-tests calls otherwise than we do.
constexpr std::pair<std::string_view, DataType> kTypeNames[] = {
    {"half", DataType::kFloat16},        {"float", DataType::kFloat32},
    {"double", DataType::kFloat64},      {"f8e4m3", DataType::kFloat8E4M3},
    {"f8e5m2", DataType::kFloat8E5M2},   {"bfloat16", DataType::kBfloat16},
    {"fp8_e4m3", DataType::kFloat8E4M3}, {"fp8_e5m2", DataType::kFloat8E5M2},
    {"bf16", DataType::kBfloat16},       {"fp16", DataType::kFloat16},
    {"fp32", DataType::kFloat32},        {"fp64", DataType::kFloat64}};

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

std::string unknown_op(const std::string& text) {
  std::vector<std::string> names{"all"};
  for (const ReduceOp op : kOps) names.push_back(op_name(op));
  const std::vector<std::string_view> known(names.begin(), names.end());
  return followed_by(unknown_word("operation", text, known), "there are " + known_ops());
}

/// Options of nccl-tests that have no use on a host.
constexpr const char* kParallel = "-p,--parallel_init";
constexpr const char* kForDevices[] = {"-g,--ngpus", "-G,--cudagraph", kParallel,
                                       "-y,--stream_null"};

struct Words {  // Options that are words, until they are understood.
  std::string min = "32M", max = "32M", step = "1M", op = "sum", type = "float", check = "1";
  std::string root = "0", wire = "plain";
  int local_register = 0, for_devices = 0;
};

void add_options(const Command& app, Options& o, Words& w) {
  constexpr int kMost = 1 << 30;
  add_shown(app, "-b,--minbytes", w.min, "Smallest size, with K, M or G");
  add_shown(app, "-e,--maxbytes", w.max, "Largest size");
  add_shown(app, "-i,--stepbytes", w.step, "Step from size to size");
  app.add_option("-f,--stepfactor", o.factor, "Factor from size to size, instead of a step")
      .check(range(1.0001, 1e9));
  add_number(app, "-n,--iters", o.iterations,
             "Calls per measurement; 0: what fits 10 ms, at least 20", 0, kMost);
  add_number(app, "-N,--run_cycles", o.cycles, "Times to run the whole sweep; 0: for ever", 0,
             kMost);
  add_number(app, "-w,--warmup_iters", o.warmup, "Calls before the clock starts", 0, kMost);
  add_number(app, "-m,--agg_iters", o.aggregate, "Calls that are grouped into one", 1, 1024);
  add_shown(app, "-c,--check", w.check,
            "Calls to verify, 0 for none; or bits: one, against the canonical reference");
  add_shown(app, "-o,--op", w.op, "Reduction: " + known_ops());
  add_shown(app, "-d,--datatype", w.type, "Type: " + known_types());
  add_shown(app, "-r,--root", w.root, "Root of a broadcast; -1 or all: all in turn");
  add_number(app, "-z,--blocking", o.blocking, "1: blocking calls, 0: asynchronous ones", 0, 1);
  add_number(app, "-a,--average", o.average,
             "Time of a call: 0 rank 0's, 1 average, 2 minimum, 3 maximum", 0, 3);
  add_number(app, "-C,--report_cputime", o.report_cpu, "1: report CPU time instead of latency", 0,
             1);
  add_number(app, "-R,--local_register", w.local_register,
             "0: plain buffers, 1 or 2: buffers that peers can map", 0, 2);
  app.add_option("-T,--timeout", o.timeout_s,
                 "Seconds until a call gives up; 0: the library's default")
      .check(range(0, 86400));
  app.add_option("-t,--nthreads", o.threads, "Ranks per process, as threads").check(range(1, 256));
  app.add_option("-J,--output_file", o.json, "Write the results as JSON");
  add_number(app, "-S,--report_timestamps", o.timestamps, "1: end every line with the time of day",
             0, 1);
  for (const char* const names : kForDevices) {
    app.add_option(names, w.for_devices,
                   names == kParallel ? "Accepted: ranks always start side by side"
                                      : "Accepted, without effect on a host");
  }
  app.add_option("--ranks", o.ranks, "Start this many local ranks, as processes")
      .check(range(1, 256));
  app.add_flag("--pin", o.pin, "Pin local rank r to the r-th usable CPU");
  app.add_flag("--percentiles", o.percentiles, "Add p50, p99 and max of single calls");
  app.add_flag("--bound", o.bound,
               "Add % of bound: of what memory and the links between NUMA nodes allow");
  add_shown(app, "--wire", w.wire,
            "How values travel: float16, bfloat16, int8, float8; :nearest, :stochastic behind it");
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
  for (const auto& [option, text, into] : {std::tuple{"--minbytes", &w.min, &o.min_bytes},
                                           {"--maxbytes", &w.max, &o.max_bytes},
                                           {"--stepbytes", &w.step, &o.step_bytes}}) {
    const auto bytes = parse_size(*text);
    if (!bytes) return fmt::format("{}: '{}' is not a size; try 8, 64K, 1M or 2G", option, *text);
    *into = *bytes;
  }
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
    o.ops.assign(kOps, kOps + 6);  // As nccl-tests: not the bitwise ones.
  } else if (const auto op = parse_op(w.op)) {
    o.ops = {*op};
  } else {
    return "--op: " + unknown_op(w.op);
  }
  if (w.type == "all") {
    o.types.assign(std::begin(kTypes), std::end(kTypes));
  } else if (const auto type = parse_type(w.type)) {
    o.types = {*type};
  } else {
    return "--datatype: " + unknown_type(w.type, known_types());
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
  const auto wire = parse_wire(w.wire);
  if (!wire) return fmt::format("--wire: there is no wire {}", w.wire);
  o.wire = *wire;
  if (!wire->is_plain() && (w.type != "float" || o.check == Check::kBits))
    return "--wire goes with --datatype float, and not with --check bits";
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
  if (o.ranks > 0 && o.threads > 1)
    return "--ranks and --nthreads exclude each other: processes or threads";
  return std::nullopt;
}

}  // namespace

std::optional<std::size_t> parse_size(const std::string& text) {
  constexpr std::string_view kUnits = "kKmMgG";
  const char* const end = text.data() + text.size();
  double value = 0;
  auto [at, error] = std::from_chars(text.data(), end, value);
  if (const auto unit = at != end ? kUnits.find(*at) : kUnits.npos; unit != kUnits.npos) {
    value = std::ldexp(value, 10 * (static_cast<int>(unit) / 2 + 1));
    ++at;
  }
  if (error != std::errc{} || at != end || !(value >= 0 && value <= 1e15)) return std::nullopt;
  return static_cast<std::size_t>(value);
}

std::string type_name(DataType type) {
  const auto found =
      std::ranges::find(kTypeNames, type, [](const auto& one) { return one.second; });
  return std::string(found != std::end(kTypeNames) ? found->first : to_string(type));
}

std::optional<DataType> parse_type(const std::string& text) {
  const auto found = std::ranges::find(kTypeNames, text, [](const auto& one) { return one.first; });
  return found != std::end(kTypeNames) ? found->second : parse_data_type(text);
}

std::string unknown_type(const std::string& text, const std::string& list) {
  std::vector<std::string_view> known{"all"};
  for (const DataType type : kTypes) known.push_back(to_string(type));
  for (const auto& [name, type] : kTypeNames) known.push_back(name);
  return followed_by(unknown_word("data type", text, known), "there are " + list);
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
  CommandLine app(
      fmt::format(
          "Measures {} on this machine, in the manner of nccl-tests, and verifies the results.",
          to_string(collective)),
      name);
  app.footer(fmt::format(
      "Examples:\n  {0} --ranks 2 -b 8 -e 64M -f 4\n  {0} --ranks 4 -b 8 -e 16M -f 2 -R 1 "
      "--bound --plot sweep.svg\n  mpirun -n 2 {0} -b 1M -e 1M -d bfloat16 -c bits\n"
      "Ctrl-C ends a sweep with the sizes that it has measured, in its files too; the exit code is "
      "130.",
      name));
  app.fold_help();
  add_options(app, options, words);
  if (const auto ending = app.parse(argc, argv)) {
    const bool is_help = ending->exit_code == 0;
    if (is_help)
      put_output(ending->text);
    else
      say_error("{}: {}\n", name, followed_by(ending->text, "see " + name + " --help"));
    *exit_code = is_help ? 0 : 2;
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
