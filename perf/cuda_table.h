// File: perf/cuda_table.h: a table of measurements, and the main function of programs that make
// one.
//
// A row is printed, and written to the file, as soon as it is known: what was measured stays,
// whatever comes next. A measurement that fails is a row that says why, and the others are made all
// the same.
#pragma once
#include <fmt/format.h>

#include <functional>
#include <string>

#include "base/json.h"
#include "base/output.h"
#include "perf/command_line/command_line.h"

namespace tutti::timing {

struct Options {
  std::size_t bytes = std::size_t{256} << 20;
  int rounds = 9;
  int replays = 200;
  std::string json;
};

/// One line of the table. `share` is of what its column says, 1 is all; below 0: there is none.
struct Row {
  std::string what;
  double microseconds = 0;
  double gigabytes = 0;  // A second.
  double share = -1;
  double goal = -1;    // Upper limit of the share, or, without one, of the microseconds.
  std::string note{};  // Instead of figures: why there are none.
  double spread = -1;  // The spread of the microseconds over the rounds; in the file only.
};

/// The meaning of shares: the column's title, and their name in the file.
struct ShareOf {
  const char* title;
  const char* name;
};

class Table {
 public:
  Table(const Options& options, ShareOf share) : options_(options), share_(share) {
    fmt::print("{:<72} {:>10} {:>8} {:>9} {:>15}\n", "what", "us", "GB/s", share.title, "goal");
    std::fflush(stdout);
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  void add(const Row& row) {
    print(row);
    rows_.push_back(as_json(row));
    if (options_.json.empty()) return;
    const Json all{{"bytes", options_.bytes}, {"rounds", options_.rounds}, {"rows", rows_}};
    if (const Status written =
            write_file(options_.json, all.text({.indent = 2, .sorted = true}) + "\n");
        !written) {
      fmt::print(stderr, "{}\n", written.error().what);
      failed_ = true;
    }
  }
  /// `make` adds its rows itself, or says why it can't; false then.
  bool measure(const std::string& what, const std::function<Status()>& make) {
    const Status made = make();
    if (made) return true;
    failed_ = true;
    add({.what = what, .note = made.error().to_string()});
    return false;
  }
  /// Something could not be measured, or written.
  bool failed() const { return failed_; }

 private:
  static void print(const Row& row) {
    std::string rate, share, goal;
    const auto judged = [](bool met) { return met ? "met" : "missed"; };
    if (row.gigabytes > 0) rate = fmt::format("{:.1f}", row.gigabytes);
    if (row.share >= 0) share = fmt::format("{:.1f} %", row.share * 100);
    if (row.goal >= 0 && row.share >= 0)
      goal = fmt::format("{:.1f} %: {}", row.goal * 100, judged(row.share >= row.goal));
    else if (row.goal >= 0)
      goal = fmt::format("{:.1f} us: {}", row.goal, judged(row.microseconds <= row.goal));
    if (row.note.empty())
      fmt::print("{:<72} {:>10.2f} {:>8} {:>9} {:>15}\n", row.what, row.microseconds, rate, share,
                 goal);
    else
      fmt::print("{:<72} {}\n", row.what, row.note);
    std::fflush(stdout);
  }

  Json as_json(const Row& row) const {
    Json entry = {{"what", row.what}};
    if (!row.note.empty())
      entry["note"] = row.note;
    else
      entry["microseconds"] = row.microseconds;
    if (row.gigabytes > 0) entry["gigabytes_per_second"] = row.gigabytes;
    if (row.share >= 0) entry[share_.name] = row.share;
    if (row.goal >= 0) entry["goal"] = row.goal;
    if (row.spread >= 0) entry["spread"] = row.spread;
    return entry;
  }

  const Options& options_;
  const ShareOf share_;
  Json rows_ = Json::array();
  bool failed_ = false;
};

/// The body of main: `app` has the options that only this program has.
inline int run_program(perf::CommandLine& app, int count, char** words, ShareOf share,
                       const std::function<void(const Options& options, Table& table)>& measure) {
  Options options;
  const auto whole = [](const std::string& text) {
    const std::size_t bytes = std::stoull(text);
    return bytes >= 1024 && bytes % 1024 == 0 ? "" : "takes a multiple of 1024";
  };
  app.add_option("--bytes", options.bytes, "of each source, target, and rank's buffer")
      .as_size_value()
      .check({whole, ""});
  app.add_option("--rounds", options.rounds, "of each measurement").check(perf::range(1, 1000));
  app.add_option("--replays", options.replays, "calls in a graph").check(perf::range(1, 500));
  app.add_option("--json", options.json, "file to write the figures to, too");
  if (const auto code = app.parse_or_print(count, words)) return *code;
  Table table(options, share);
  measure(options, table);
  return table.failed() ? 1 : 0;
}

}  // namespace tutti::timing
