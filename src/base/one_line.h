// File: base/one_line.h: text from a peer or a program, for the one line of an error.
#pragma once
#include <string>

namespace tutti {

/// Line breaks and other control characters become "?"; the rest, UTF-8 too, stays.
inline std::string one_line(std::string text) {
  for (char& c : text) c = static_cast<unsigned char>(c) < ' ' || c == 0x7f ? '?' : c;
  return text;
}

}  // namespace tutti
