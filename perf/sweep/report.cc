#include "perf/sweep/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <ctime>
#include <sstream>
#include <utility>

#include "base/json.h"
#include "base/output.h"
#include "base/shown_time.h"

namespace tutti::perf {
namespace {

bool shows_progress = false;  // The line is one of show_progress. Rank 0's thread alone.

/// A time in at most 7 characters, as nccl-tests prints it.
std::string time_text(double us) {
  if (us < 100) return fmt::format("{:7.2f}", us);
  if (us < 10'000) return fmt::format("{:7.1f}", us);
  return fmt::format("{:7.0f}", us);
}

std::string timing_text(const Timing& timing) {
  const std::string wrong = timing.wrong < 0 ? "N/A" : fmt::format("{}", timing.wrong);
  return fmt::format("  {}  {:6.2f}  {:6.2f}  {:>6}", time_text(timing.us), timing.algbw,
                     timing.busbw, wrong);
}

std::string op_column(const Shape& shape) {
  return reduces(shape.collective) ? op_name(shape.op) : "none";
}
int root_column(const Shape& shape) { return has_root(shape.collective) ? shape.root : -1; }

Json to_json(const Timing& timing) {
  Json json{{"time_us", timing.us}, {"algbw_gbps", timing.algbw}, {"busbw_gbps", timing.busbw}};
  if (timing.wrong >= 0) json["wrong"] = timing.wrong;
  if (timing.max_us > 0)
    json["percentiles_us"] = {
        {"p50", timing.p50_us}, {"p99", timing.p99_us}, {"max", timing.max_us}};
  return json;
}

/// The two rows of the header: the columns of nccl-tests, ours after them.
void print_columns(const Options& options) {
  struct Column {
    const char *title, *unit;
    int width;
  };
  std::vector<Column> columns{{"size", "(B)", 9},
                              {"count", "(elements)", 12},
                              {"type", "", 8},
                              {"redop", "", 6},
                              {"root", "", 6}};
  const auto add = [&](std::initializer_list<Column> more) { columns.insert(columns.end(), more); };
  for (int placement = 0; placement < 2; ++placement) {
    add({{options.report_cpu != 0 ? "cputime" : "time", "(us)", 7},
         {"algbw", "(GB/s)", 6},
         {"busbw", "(GB/s)", 6},
         {"#wrong", "", 6}});
  }
  if (options.bound) add({{"%bound", "", 6}});
  if (options.percentiles) add({{"p50", "(us)", 7}, {"p99", "(us)", 7}, {"max", "(us)", 7}});
  if (options.timestamps != 0) add({{"timestamp", "", 19}});
  std::string titles = "#", units = "#";
  for (const Column& column : columns) {
    titles += fmt::format("  {:>{}}", column.title, column.width);
    units += fmt::format("  {:>{}}", column.unit, column.width);
  }
  say("#\n# {:54}{:^33}{:^33}\n{}\n{}\n", "", "out-of-place", "in-place", titles, units);
}

}  // namespace

void print_header(const Options& options, const Communicator& comm, const LinksBound& links,
                  std::size_t left_out) {
  const std::string step = options.factor > 0 ? fmt::format("{}(factor)", options.factor)
                                              : fmt::format("{}(bytes)", options.step_bytes);
  say("# Collective test starting: {}_perf\n", to_string(options.collective));
  say("# nThread {} nRanks {} minBytes {} maxBytes {} step: {} warmup iters: {} iters: {} agg "
      "iters: {} "
      "validation: {} registered: {}\n#\n",
      options.threads, comm.rank_count(), options.min_bytes, options.max_bytes, step,
      options.warmup, options.iterations > 0 ? fmt::format("{}", options.iterations) : "auto",
      options.aggregate, options.check == Check::kOff ? 0 : options.check_rounds,
      options.registered ? 1 : 0);
  std::istringstream description(comm.describe());
  for (std::string row; std::getline(description, row) && !row.starts_with("plans");)
    say("# {}\n", row);
  if (!options.busy.empty()) say("# this machine is busy: {}\n", options.busy);
  if (!options.ignored.empty())
    say("# without effect on a host: {}\n", fmt::join(options.ignored, " "));
  if (options.bound)
    say("# %bound of what no library beats: inputs read and outputs written once, at the rate of\n"
        "#   copies that all ranks make at once in buffers of that size; and what crosses between\n"
        "#   NUMA nodes ({})\n",
        links.words);
  if (left_out > 0)
    say("# left out: {} size{} without an element for each rank\n", left_out,
        left_out == 1 ? "" : "s");
  print_columns(options);
  flush_output();  // The first line may take a while.
}

void print_line(const Options& options, const Line& line) {
  const Shape& shape = line.shape;
  clear_progress();
  std::string text;
  text += fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", line.bytes, shape.count,
                      type_name(shape.type), op_column(shape), root_column(shape));
  text += timing_text(line.out_of_place) + timing_text(line.in_place);
  if (options.bound) {
    const double percent = line.percent_of_bound();
    const bool shown = is_shown(line.bound_us) && percent >= 0.05;  // Else it would be 0.0.
    text += fmt::format("  {:>6}", shown ? fmt::format("{:.1f}", percent) : "-");
  }
  if (options.percentiles) {
    const Timing& t = line.out_of_place;
    text +=
        fmt::format("  {}  {}  {}", time_text(t.p50_us), time_text(t.p99_us), time_text(t.max_us));
  }
  if (options.timestamps != 0)
    text += fmt::format("  {:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr)));
  say("{}\n", text);
  flush_output();
}

void print_footer(const Options& options, const std::vector<Line>& lines,
                  std::optional<std::size_t> sizes) {
  clear_progress();
  long long wrong = 0;
  double busbw = 0, error = 0, allowed = 0;
  for (const Line& line : lines) {
    wrong += std::max(line.out_of_place.wrong, 0LL) + std::max(line.in_place.wrong, 0LL);
    for (const Timing& timing : {line.out_of_place, line.in_place}) {
      error = std::max(error, timing.error);
      allowed = std::max(allowed, timing.allowed_error);
    }
    busbw += line.out_of_place.busbw + line.in_place.busbw;
  }
  if (options.check == Check::kOff)
    say("# Out of bounds values : not checked\n");
  else
    say("# Out of bounds values : {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED");
  if (!options.wire.is_plain())
    say("# Values travel as {}; largest error {:g}, at most {:g}\n", to_string(options.wire), error,
        allowed);
  say("# Avg bus bandwidth    : {:g}\n#\n",
      lines.empty() ? 0 : busbw / 2 / static_cast<double>(lines.size()));
  const std::string end =
      sizes ? fmt::format("interrupted after {} of {} sizes", lines.size(), *sizes) : "concluded";
  say("# Collective test {}: {}_perf\n", end, to_string(options.collective));
  flush_output();
}

void show_progress(std::size_t bytes, std::size_t done, std::size_t all) {
  if (isatty(STDOUT_FILENO) == 0) return;
  shows_progress = true;
  say("\r\033[K# measuring {} B ({} of {})", bytes, done + 1, all);
  flush_output();
}

void clear_progress() {
  if (std::exchange(shows_progress, false)) say("\r\033[K");
}

Status write_csv(const std::string& path, const std::vector<Line>& lines) {
  std::string text =
      "bytes,count,type,redop,root,time_us,algbw,busbw,wrong,in_place_time_us,in_place_algbw,"
      "in_place_busbw,in_place_wrong,percent_of_bound,p50_us,p99_us,max_us\n";
  for (const Line& line : lines) {
    const Timing &o = line.out_of_place, &i = line.in_place;
    text += fmt::format(
        "{},{},{},{},{},{:.4f},{:.4f},{:.4f},{},{:.4f},{:.4f},{:.4f},{},{:.2f},{:.4f},{:.4f},{:.4f}"
        "\n",
        line.bytes, line.shape.count, type_name(line.shape.type), op_column(line.shape),
        root_column(line.shape), o.us, o.algbw, o.busbw, o.wrong, i.us, i.algbw, i.busbw, i.wrong,
        line.percent_of_bound(), o.p50_us, o.p99_us, o.max_us);
  }
  return write_text(path, text);
}

Status write_json(const std::string& path, const Options& options, int ranks,
                  const std::vector<Line>& lines, bool interrupted) {
  Json json{{"version", 1},
            {"tutti", TUTTI_VERSION},
            {"command", options.command_line},
            {"collective", to_string(options.collective)},
            {"ranks", ranks},
            {"registered", options.registered},
            {"interrupted", interrupted},
            {"results", Json::array()}};
  for (const Line& line : lines) {
    Json row{{"bytes", line.bytes},
             {"count", line.shape.count},
             {"type", type_name(line.shape.type)},
             {"redop", op_column(line.shape)},
             {"root", root_column(line.shape)},
             {"out_of_place", to_json(line.out_of_place)},
             {"in_place", to_json(line.in_place)}};
    if (line.bound_us > 0)
      row["bound_us"] = line.bound_us, row["percent_of_bound"] = line.percent_of_bound(),
      row["bound_by"] = line.bound_by;
    json["results"].push_back(std::move(row));
  }
  return write_text(path, json.text({.indent = 2, .sorted = true}) + "\n");
}

}  // namespace tutti::perf
