// The curve as a picture: bus bandwidth on the left, time on the right, both over bytes or, if only
// ranks differ, over ranks. A line for each algorithm, or for each rank count the fastest; the
// bound is dashed.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "tools/simulate/simulate.h"
#include "tools/svg.h"

namespace tutti::tools {
namespace {

constexpr double kWidth = 1110, kHeight = 470, kTop = 64, kBottom = 400;
constexpr double kPanel = 400;  // Wide.
constexpr std::size_t kMostLines = 8;
static_assert(kMostLines == kColours.size());

struct Point {
  double x = 0, us = 0, bus = 0;
};
struct Line {
  std::string name;
  std::vector<Point> points;
  bool is_bound = false;
};

std::string quantity_text(double value, bool bytes) {
  constexpr std::array kUnits{"", "K", "M", "G", "T", "P"};
  if (!bytes) return fmt::format("{:g}", value);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.3g}{}", value, kUnits[unit]);
}

bool over_ranks(const SimulatedCurve& curve) {
  bool ranks = false, bytes = false;
  for (const SimulatedRow& row : curve.rows) {
    ranks = ranks || row.ranks != curve.rows[0].ranks;
    bytes = bytes || row.bytes != curve.rows[0].bytes;
  }
  return ranks && !bytes;
}

std::vector<Line> lines_of(const SimulatedCurve& curve) {
  const bool x_ranks = over_ranks(curve);
  std::vector<Line> lines;
  Line bound{"bound", {}, true};
  const auto point = [&](const SimulatedRow& row, double us) {
    return Point{x_ranks ? static_cast<double>(row.ranks) : static_cast<double>(row.bytes), us,
                 row.bus_bandwidth(curve.collective, us)};
  };
  const auto add = [&](const std::string& name, const Point& at) {
    for (Line& line : lines) {
      if (line.name == name) return line.points.push_back(at);
    }
    lines.push_back({name, {at}});
  };
  const bool several = curve.rows.front().ranks != curve.rows.back().ranks;
  for (const SimulatedRow& row : curve.rows) {
    if (several && !x_ranks) {  // A line for each rank count.
      add(fmt::format("{} ranks", row.ranks), point(row, row.fastest().microseconds));
      continue;
    }
    for (const auto& sample : row.samples) {
      if (sample) add(std::string(sample->algorithm->name), point(row, sample->microseconds));
    }
    if (row.bound_us > 0) bound.points.push_back(point(row, row.bound_us));
  }
  // The best first; of more than there are colours the rest is left out.
  std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
    return a.points.back().bus > b.points.back().bus;
  });
  if (lines.size() > kMostLines) lines.resize(kMostLines);
  if (!bound.points.empty()) lines.push_back(std::move(bound));
  return lines;
}

// From values to places along one side.
struct Axis {
  bool log = true;
  double low = 0, high = 1, from = 0, to = 1;
  double at(double value) const {
    const double share =
        log ? (std::log2(value) - std::log2(low)) / (std::log2(high) - std::log2(low))
            : (value - low) / (high - low);
    return from + std::clamp(share, 0.0, 1.0) * (to - from);
  }
};

class Panel {
 public:
  Panel(double left, const std::vector<Line>& lines, bool bytes, bool times)
      : lines_(lines), bytes_(bytes), times_(times) {
    double least_x = 1e300, most_x = 0, least = 1e300, most = 0;
    for (const Line& line : lines) {
      for (const Point& point : line.points) {
        least_x = std::min(least_x, point.x);
        most_x = std::max(most_x, point.x);
        most = std::max(most, value(point));
        if (!line.is_bound) least = std::min(least, value(point));
      }
    }
    x_ = {true, least_x, std::max(most_x, 2 * least_x), left, left + kPanel};
    if (times) {
      y_ = {true, std::pow(10, std::floor(std::log10(least))),
            std::pow(10, std::ceil(std::log10(most))), kBottom, kTop};
      if (y_.high <= y_.low) y_.high = 10 * y_.low;
    } else {
      step_ = round_step(std::max(most, 1e-3));
      y_ = {false, 0, std::ceil(most / step_ * 1.02) * step_, kBottom, kTop};
    }
  }

  std::string draw() const {
    std::string svg = grid();
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const Line& line = lines_[i];
      std::string path;
      for (const Point& point : line.points) {
        if (value(point) <= 0 || (y_.log && value(point) < y_.low)) continue;
        path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x_.at(point.x),
                            y_.at(value(point)));
      }
      const char* style = line.is_bound ? "stroke='#222' stroke-width='1.5' stroke-dasharray='6 4'"
                                        : "stroke-width='2.2'";
      svg += fmt::format("<path d='{}' fill='none' {} {}/>\n", path.empty() ? "M0 0" : path, style,
                         line.is_bound ? "" : fmt::format("stroke='{}'", kColours[i]));
      for (const Point& point : line.points) {
        if (line.is_bound || line.points.size() > 40) break;
        svg += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3' fill='{}'/>\n", x_.at(point.x),
                           y_.at(value(point)), kColours[i]);
      }
    }
    return svg;
  }

 private:
  double value(const Point& point) const { return times_ ? point.us : point.bus; }

  std::string grid() const {
    std::string svg;
    const auto rule = [&](double y, const std::string& label) {
      svg +=
          fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='#e2e2e2'/>\n",
                      x_.from, y, x_.to, y);
      svg += text_at(x_.from - 8, y + 4, "end", label);
    };
    if (y_.log) {
      for (double at = y_.low; at <= y_.high * 1.001; at *= 10)
        rule(y_.at(at), at < 1e3   ? fmt::format("{:g} us", at)
                        : at < 1e6 ? fmt::format("{:g} ms", at / 1e3)
                                   : fmt::format("{:g} s", at / 1e6));
    } else {
      for (double at = 0; at <= y_.high * 1.001; at += step_)
        rule(y_.at(at), fmt::format("{:g}", at));
    }
    // Powers of two, as far apart as their labels need.
    const double doublings = std::log2(x_.high / x_.low);
    const double stride = std::exp2(std::max(1.0, std::ceil(doublings / 8)));
    for (double at = x_.low; at <= x_.high * 1.001; at *= stride) {
      svg += fmt::format(
          "<line x1='{0:.1f}' y1='{1:.1f}' x2='{0:.1f}' y2='{2:.1f}' stroke='#f0f0f0'/>\n",
          x_.at(at), kTop, kBottom);
      svg += text_at(x_.at(at), kBottom + 18, "middle", quantity_text(at, bytes_));
    }
    svg += fmt::format("<path d='M{0:.1f} {1:.1f} V{2:.1f} H{3:.1f}' fill='none' stroke='#888'/>\n",
                       x_.from, kTop, kBottom, x_.to);
    svg += text_at(x_.from, kTop - 12, "start", times_ ? "time" : "bus bandwidth, GB/s", 13);
    svg += text_at((x_.from + x_.to) / 2, kBottom + 38, "middle", bytes_ ? "bytes" : "ranks", 12);
    return svg;
  }

  const std::vector<Line>& lines_;
  const bool bytes_, times_;
  Axis x_, y_;
  double step_ = 1;
};

}  // namespace

std::string to_svg(const SimulatedCurve& curve) {
  const std::vector<Line> lines = lines_of(curve);
  const bool bytes = !over_ranks(curve);
  std::string svg = svg_head(kWidth, kHeight);
  svg += text_at(64, 28, "start", curve.title, 15, "#111");
  svg += Panel(64, lines, bytes, false).draw();
  svg += Panel(564, lines, bytes, true).draw();
  double y = kTop + 8;
  for (std::size_t i = 0; i < lines.size(); ++i, y += 19) {
    svg += fmt::format(
        "<line x1='976' y1='{0:.1f}' x2='996' y2='{0:.1f}' stroke='{1}' stroke-width='2.5'{2}/>\n",
        y, lines[i].is_bound ? "#222" : kColours[i],
        lines[i].is_bound ? " stroke-dasharray='6 4'" : "");
    svg += text_at(1001, y + 4, "start", lines[i].name, 10);
  }
  return svg + "</svg>\n";
}

}  // namespace tutti::tools
