// File: base/times_text.h: how many times as long or as fast, as people read it.
#pragma once
#include <fmt/format.h>

#include <string>

namespace tutti {

/// Two digits, and no power of ten: "1.5", "12", "2,200".
inline std::string times_text(double times) {
  std::string text = fmt::format("{:.2g}", times);
  if (text.find('e') == std::string::npos) return text;
  text = fmt::format("{:.0f}", std::stod(text));
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

}  // namespace tutti
