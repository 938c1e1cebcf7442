#include <fmt/format.h>

#include "base/json.h"
#include "base/shown_time.h"
#include "tools/simulate/simulate.h"
#include "tools/topo/topo.h"

namespace tutti::tools {
namespace {

using planner::Sample;

constexpr std::size_t kMostColumns = 5;  // Algorithms side by side in 100 columns.

}  // namespace

std::string size_text(std::size_t bytes) {
  constexpr const char* kUnits[] = {"", "K", "M", "G", "T"};
  std::size_t unit = 0;
  while (bytes >= 1024 && bytes % 1024 == 0 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{}{}", bytes, kUnits[unit]);
}

std::string amount_text(std::size_t bytes) {
  const std::string text = size_text(bytes);
  if (text.back() >= '0' && text.back() <= '9') return text + (bytes == 1 ? " byte" : " bytes");
  return fmt::format("{} {}iB", text.substr(0, text.size() - 1), text.back());
}

std::string time_text(double us) {
  return us < 1000  ? fmt::format("{:.2f}", us)
         : us < 1e6 ? fmt::format("{:.0f}", us)
                    : fmt::format("{:.4g}", us);
}

namespace {

std::string percent_of_bound(const SimulatedRow& row) {
  if (row.bound_us <= 0) return "?";
  if (!is_shown(row.bound_us)) return "-";
  return fmt::format("{:.1f}", 100 * row.bound_us / row.fastest().microseconds);
}

std::string cut(const std::string& text, std::size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 2) + "..";
}

// Whether the algorithms stand side by side.
bool in_columns(const SimulatedCurve& curve) {
  return curve.compares && curve.algorithms.size() <= kMostColumns;
}

}  // namespace

std::string table_header(const SimulatedCurve& curve) {
  std::string text = wrapped(curve.title + "; times in us, GB/s as in nccl-tests", 2) + "\n";
  text += fmt::format("{}{:>6}", curve.several_ranks ? " ranks " : "", "bytes");
  if (in_columns(curve)) {
    for (const std::string& name : curve.algorithms) text += fmt::format(" {:>10}", cut(name, 10));
    return text + fmt::format(" {:>8} {:>8} {:>7}\n", "bound", "busbw", "% bound");
  }
  return text + fmt::format(" {:>8} {:>8} {:>8} {:>8} {:>7}  {:<24} {}\n", "time", "bound", "algbw",
                            "busbw", "% bound", "algorithm, protocol", "busiest");
}

std::string table_row(const SimulatedCurve& curve, const SimulatedRow& row) {
  const Sample& best = row.fastest();
  std::string text = curve.several_ranks ? fmt::format("{:>6} ", row.ranks) : "";
  text += fmt::format("{:>6}", size_text(row.bytes));
  const std::string bound = row.bound_us <= 0        ? "?"
                            : is_shown(row.bound_us) ? time_text(row.bound_us)
                                                     : "-";
  const double bus = row.bus_bandwidth(curve.collective, best.microseconds);
  if (in_columns(curve)) {
    for (std::size_t i = 0; i < row.samples.size(); ++i) {
      const auto& sample = row.samples[i];
      text += fmt::format(" {:>9}{}", sample ? time_text(sample->microseconds) : "-",
                          i == row.best ? '*' : ' ');
    }
    return text + fmt::format(" {:>8} {:>8} {:>7}\n", bound, rate_text(bus), percent_of_bound(row));
  }
  const std::string what = fmt::format("{}, {}", best.algorithm->name, best.protocol->name);
  return text + fmt::format(" {:>8} {:>8} {:>8} {:>8} {:>7}  {:<24} {:>3.0f} %\n",
                            time_text(best.microseconds), bound,
                            rate_text(bus / planner::bus_factor(curve.collective, row.ranks)),
                            rate_text(bus), percent_of_bound(row), cut(what, 24),
                            100 * best.bottleneck_share());
}

std::string table_footer(const SimulatedCurve& curve) {
  std::string text;
  const Sample& last = curve.rows.back().fastest();
  if (!last.busy.empty())
    text += "\n" + wrapped(fmt::format("busiest in the last row: {}, {:.0f} % of the time",
                                       last.busy[0].name, 100 * last.bottleneck_share()),
                           2);
  if (last.simulated_ranks < static_cast<std::size_t>(curve.rows.back().ranks))
    text += wrapped(
        fmt::format("the last row simulates {} ranks, as the others behave like one of these",
                    last.simulated_ranks),
        2);
  for (const std::string& note : curve.notes) text += wrapped(note, 2);
  return text;
}

std::string to_json(const SimulatedCurve& curve) {
  Json json{{"collective", std::string(to_string(curve.collective))},
            {"machine", curve.machine},
            {"notes", curve.notes}};
  auto& rows = json["rows"] = Json::array();
  for (const SimulatedRow& row : curve.rows) {
    Json entry{{"ranks", row.ranks}, {"bytes", row.bytes}};
    if (row.bound_us > 0) entry["bound_us"] = row.bound_us;
    entry["best"] = curve.algorithms.size() > row.best ? curve.algorithms[row.best] : "";
    auto& samples = entry["algorithms"] = Json::array();
    for (const auto& sample : row.samples) {
      if (!sample) continue;
      samples.push_back({{"algorithm", std::string(sample->algorithm->name)},
                         {"protocol", std::string(sample->protocol->name)},
                         {"us", sample->microseconds},
                         {"busbw", row.bus_bandwidth(curve.collective, sample->microseconds)},
                         {"lanes", sample->lanes},
                         {"simulated_ranks", sample->simulated_ranks},
                         {"busiest", sample->busy.empty() ? "" : sample->busy[0].name},
                         {"busy", sample->bottleneck_share()}});
    }
    rows.push_back(std::move(entry));
  }
  return json.text({.indent = 2}) + "\n";
}

std::string to_csv(const SimulatedCurve& curve) {
  std::string text = "ranks,bytes,algorithm,protocol,us,algbw,busbw,bound_us\n";
  for (const SimulatedRow& row : curve.rows) {
    for (const auto& sample : row.samples) {
      if (!sample) continue;
      const double bus = row.bus_bandwidth(curve.collective, sample->microseconds);
      text +=
          fmt::format("{},{},{},{},{:.4f},{:.4f},{:.4f},{:.4f}\n", row.ranks, row.bytes,
                      sample->algorithm->name, sample->protocol->name, sample->microseconds,
                      bus / planner::bus_factor(curve.collective, row.ranks), bus, row.bound_us);
    }
  }
  return text;
}

}  // namespace tutti::tools
