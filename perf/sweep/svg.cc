#include "perf/sweep/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti::perf {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

std::string svg_head(double width, double height) {
  return fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0:.0f}' height='{1:.0f}' viewBox='0 0 "
      "{0:.0f} {1:.0f}' font-family='sans-serif'>\n<rect width='{0:.0f}' height='{1:.0f}' "
      "fill='white'/>\n",
      width, height);
}

std::string text_at(double x, double y, const char* anchor, std::string_view text, int size,
                    const char* fill) {
  return fmt::format(
      "<text x='{:.1f}' y='{:.1f}' text-anchor='{}' font-size='{}' fill='{}'>{}</text>\n", x, y,
      anchor, size, fill, escaped(text));
}

std::string line_at(double x1, double y1, double x2, double y2, std::string_view style) {
  return fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' {}/>\n", x1, y1, x2, y2,
                     style);
}

std::string rect_at(double x, double y, double width, double height, std::string_view fill,
                    std::string_view title) {
  return fmt::format(
      "<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='{}'{}\n", x, y, width,
      height, fill,
      title.empty() ? "/>" : fmt::format("><title>{}</title></rect>", escaped(title)));
}

double round_step(double high) {
  const double power = std::pow(10, std::floor(std::log10(high / 5)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (factor * power * 6 >= high) return factor * power;
  }
  return 10 * power;
}

namespace {

constexpr double kWidth = 1110, kHeight = 470, kTop = 64, kBottom = 400;
constexpr double kPanel = 400;  // Wide.

std::string quantity_text(double value, bool bytes) {
  constexpr std::array kUnits{"", "K", "M", "G", "T", "P"};
  if (!bytes) return fmt::format("{:g}", value);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.3g}{}", value, kUnits[unit]);
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
  Panel(double left, const std::vector<Curve>& lines, bool bytes, bool times)
      : lines_(lines), bytes_(bytes), times_(times) {
    double least_x = 1e300, most_x = 0, least = 1e300, most = 0;
    for (const Curve& line : lines) {
      for (const Curve::Point& point : line.points) {
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
      const Curve& line = lines_[i];
      std::string path;
      for (const Curve::Point& point : line.points) {
        if (value(point) <= 0 || (y_.log && value(point) < y_.low)) continue;
        path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x_.at(point.x),
                            y_.at(value(point)));
      }
      const char* style = line.is_bound ? "stroke='#222' stroke-width='1.5' stroke-dasharray='6 4'"
                                        : "stroke-width='2.2'";
      svg += fmt::format("<path d='{}' fill='none' {} {}/>\n", path.empty() ? "M0 0" : path, style,
                         line.is_bound ? "" : fmt::format("stroke='{}'", kColours[i]));
      for (const Curve::Point& point : line.points) {
        if (line.is_bound || line.points.size() > 40) break;
        svg += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3' fill='{}'/>\n", x_.at(point.x),
                           y_.at(value(point)), kColours[i]);
      }
    }
    return svg;
  }

 private:
  double value(const Curve::Point& point) const { return times_ ? point.us : point.bus; }

  std::string grid() const {
    std::string svg;
    const auto rule = [&](double y, const std::string& label) {
      svg += line_at(x_.from, y, x_.to, y, "stroke='#e2e2e2'");
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
      svg += line_at(x_.at(at), kTop, x_.at(at), kBottom, "stroke='#f0f0f0'");
      svg += text_at(x_.at(at), kBottom + 18, "middle", quantity_text(at, bytes_));
    }
    svg += fmt::format("<path d='M{0:.1f} {1:.1f} V{2:.1f} H{3:.1f}' fill='none' stroke='#888'/>\n",
                       x_.from, kTop, kBottom, x_.to);
    svg += text_at(x_.from, kTop - 12, "start", times_ ? "time" : "bus bandwidth, GB/s", 13);
    svg += text_at((x_.from + x_.to) / 2, kBottom + 38, "middle", bytes_ ? "bytes" : "ranks", 12);
    return svg;
  }

  const std::vector<Curve>& lines_;
  const bool bytes_, times_;
  Axis x_, y_;
  double step_ = 1;
};

}  // namespace

std::string chart(std::string_view title, const std::vector<Curve>& curves, bool over_ranks) {
  std::string svg = svg_head(kWidth, kHeight);
  svg += text_at(64, 28, "start", title, 15, "#111");
  svg += Panel(64, curves, !over_ranks, false).draw();
  svg += Panel(564, curves, !over_ranks, true).draw();
  double y = kTop + 8;
  for (std::size_t i = 0; i < curves.size(); ++i, y += 19) {
    svg += line_at(
        976, y, 996, y,
        fmt::format("stroke='{}' stroke-width='2.5'{}", curves[i].is_bound ? "#222" : kColours[i],
                    curves[i].is_bound ? " stroke-dasharray='6 4'" : ""));
    svg += text_at(1001, y + 4, "start", curves[i].name, 10);
  }
  return svg + "</svg>\n";
}

}  // namespace tutti::perf
