#include "tools/svg.h"

#include <fmt/format.h>

#include <cmath>

namespace tutti::tools {

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

double round_step(double high) {
  const double power = std::pow(10, std::floor(std::log10(high / 5)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (factor * power * 6 >= high) return factor * power;
  }
  return 10 * power;
}

}  // namespace tutti::tools
