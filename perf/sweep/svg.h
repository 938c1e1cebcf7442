// File: sweep/svg.h: the few words of SVG that pictures are written in, their colours, and the
// picture of measured or simulated curves.
#pragma once
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::perf {

// Okabe and Ito: told apart by the colour-blind too.
inline constexpr std::array<const char*, 8> kColours{"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                     "#E69F00", "#56B4E9", "#6b4c9a", "#555555"};

/// For texts in XML.
std::string escaped(std::string_view text);
/// The head of a picture on white.
std::string svg_head(double width, double height);
/// A text; `anchor` is start, middle or end.
std::string text_at(double x, double y, const char* anchor, std::string_view text, int size = 12,
                    const char* fill = "#444");
/// A line; `style` are attributes.
std::string line_at(double x1, double y1, double x2, double y2, std::string_view style);
/// A box; `title` is shown when it is pointed at.
std::string rect_at(double x, double y, double width, double height, std::string_view fill,
                    std::string_view title = "");
/// 1, 2 or 5 times a power of ten, so that `high` takes about five of them.
double round_step(double high);

/// Times and bus bandwidths over bytes or ranks.
struct Curve {
  struct Point {
    double x = 0, us = 0, bus = 0;
  };
  std::string name;
  std::vector<Point> points;
  bool is_bound = false;  // Then it is dashed, and has no colour of its own.
};
/// Bus bandwidth on the left, time on the right, both over bytes or over ranks. At most as many
/// curves as there are colours, and a bound, which is the last.
std::string chart(std::string_view title, const std::vector<Curve>& curves, bool over_ranks);

}  // namespace tutti::perf
