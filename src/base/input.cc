#include "base/input.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

namespace tutti {

Result<std::string> read_whole(const std::string& path, std::size_t most) {
  const auto failed = [&](std::string_view what) {
    return Error{Code::kSystem, fmt::format("{}: {}", path, what)};
  };
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const bool here = path == "-";
  const std::unique_ptr<std::FILE, decltype(close)> opened(
      here ? nullptr : std::fopen(path.c_str(), "rb"), close);
  std::FILE* const file = here ? stdin : opened.get();
  if (file == nullptr) return failed(std::strerror(errno));
  std::string text;
  std::array<char, 16384> piece;
  while (const std::size_t got = std::fread(piece.data(), 1, piece.size(), file)) {
    if (text.size() + got > most) return failed(fmt::format("longer than {} MiB", most >> 20));
    text.append(piece.data(), got);
  }
  if (std::ferror(file) != 0) return failed(std::strerror(errno));
  return text;
}

}  // namespace tutti
