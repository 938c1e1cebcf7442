// The sweep as a picture: time and bus bandwidth over size, both axes logarithmic.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/output.h"
#include "perf/sweep/report.h"

namespace tutti::perf {
namespace {

constexpr double kWidth = 960, kHeight = 400, kPanel = 380, kTop = 70, kBottom = 340;

/// A logarithmic axis from data to pixels.
struct Axis {
  double low, high, from, to;
  double at(double value) const {
    return from + (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low)) *
                      (to - from);
  }
};

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 3; ++unit) bytes /= 1024;
  return fmt::format("{:.0f} {}", bytes, units[unit]);
}

std::string number_text(double value) {
  return value >= 1 ? fmt::format("{:.0f}", value) : fmt::format("{:g}", value);
}

struct Series {
  const char* label;
  const char* color;
  std::function<double(const Line&)> value;
};

std::string panel(double left, const char* title, const std::vector<Line>& lines,
                  const std::vector<Series>& series) {
  double low = 1e300, high = 0;
  for (const Line& line : lines) {
    for (const Series& s : series) {
      const double value = s.value(line);
      if (value <= 0) continue;
      low = std::min(low, value), high = std::max(high, value);
    }
  }
  if (high <= 0) return "";
  const double low_decade = std::pow(10, std::floor(std::log10(low)));
  const double high_decade = std::pow(10, std::ceil(std::log10(high * 1.0001)));
  const double first = static_cast<double>(std::max<std::size_t>(lines.front().bytes, 1));
  const double last = std::max(static_cast<double>(lines.back().bytes), first * 2);
  const Axis x{first, last, left, left + kPanel}, y{low_decade, high_decade, kBottom, kTop};
  std::string svg =
      fmt::format("<text x='{}' y='{}' class='t'>{}</text>\n", left, kTop - 14, title);
  for (double decade = low_decade; decade <= high_decade * 1.001; decade *= 10) {
    svg += fmt::format(
        "<line x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}' class='g'/><text x='{}' y='{:.1f}' "
        "class='y'>{}</text>\n",
        left, left + kPanel, y.at(decade), y.at(decade), left - 8, y.at(decade) + 4,
        number_text(decade));
  }
  const std::size_t every = std::max<std::size_t>(1, (lines.size() + 5) / 6);
  for (std::size_t i = 0; i < lines.size(); i += every) {
    const double bytes = static_cast<double>(std::max<std::size_t>(lines[i].bytes, 1));
    svg += fmt::format("<text x='{:.1f}' y='{}' class='x'>{}</text>\n", x.at(bytes), kBottom + 20,
                       bytes_text(bytes));
  }
  double legend = left + 8;
  for (const Series& s : series) {
    std::string points, dots;
    for (const Line& line : lines) {
      const double value = s.value(line);
      if (value <= 0 || line.bytes == 0) continue;
      const double px = x.at(static_cast<double>(line.bytes)), py = y.at(value);
      points += fmt::format("{:.1f},{:.1f} ", px, py);
      dots += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='2.6' fill='{}'/>", px, py, s.color);
    }
    svg += fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='2'/>{}\n",
                       points, s.color, dots);
    svg += fmt::format(
        "<rect x='{}' y='{}' width='12' height='3' fill='{}'/><text x='{}' y='{}' "
        "class='l'>{}</text>\n",
        legend, kBottom + 36, s.color, legend + 18, kBottom + 41, s.label);
    legend += 32 + 7.2 * static_cast<double>(std::string(s.label).size());
  }
  return svg;
}

}  // namespace

Status write_plot(const std::string& path, const Options& options, int ranks,
                  const std::vector<Line>& lines) {
  // One curve per picture: the first type, operation and root of the sweep.
  std::vector<Line> curve;
  for (const Line& line : lines) {
    const Shape &shape = line.shape, &first = lines.front().shape;
    if (shape.type == first.type && shape.op == first.op && shape.root == first.root)
      curve.push_back(line);
  }
  if (curve.empty()) return Error{Code::kInvalidArgument, "--plot: the sweep has no lines"};
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' height='{1}' "
      "font-family='sans-serif'>\n"
      "<style>text{{fill:#333}}.h{{font-size:17px;font-weight:bold}}.t{{font-size:13px}}.g{{stroke:"
      "#e3e3e3}}"
      ".y{{font-size:11px;text-anchor:end}}.x{{font-size:11px;text-anchor:middle}}.l{{font-size:"
      "12px}}</style>\n"
      "<rect width='{0}' height='{1}' fill='white'/>\n"
      "<text x='40' y='30' class='h'>{2}, {3} ranks, {4}{5}</text>\n",
      kWidth, kHeight, to_string(options.collective), ranks, type_name(curve.front().shape.type),
      options.registered ? ", buffers that peers can map" : ", plain buffers");
  std::vector<Series> times{
      {"out of place", "#1f6fb4", [](const Line& l) { return l.out_of_place.us; }},
      {"in place", "#e07b28", [](const Line& l) { return l.in_place.us; }}};
  if (options.bound)
    times.push_back({"bound", "#8a8a8a", [](const Line& l) { return l.bound_us; }});
  const std::vector<Series> rates{
      {"out of place", "#1f6fb4", [](const Line& l) { return l.out_of_place.busbw; }},
      {"in place", "#e07b28", [](const Line& l) { return l.in_place.busbw; }}};
  svg += panel(70, "time per call (us)", curve, times);
  svg += panel(550, "bus bandwidth (GB/s)", curve, rates);
  svg += "</svg>\n";
  return write_text(path, svg);
}

}  // namespace tutti::perf
