// File: trainer/data.h: the digits, read and split.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/result.h"

namespace tutti::trainer {

inline constexpr std::size_t kPixels = 64;
inline constexpr std::size_t kClasses = 10;

/// Images of kPixels values in 0 to 1, and the digit that each shows.
struct Digits {
  std::vector<float> images;
  std::vector<std::uint8_t> labels;
  std::size_t size() const { return labels.size(); }
  const float* image(std::size_t index) const { return images.data() + index * kPixels; }
};

struct Split {
  Digits train, test;
};

/// Reads lines of 64 pixels (0 to 16) and a digit. kInvalidArgument names file, line and reason; a
/// file that ends in the middle of a line is one such reason.
Result<Digits> read_digits(const std::string& path);

/// The folder of the data, relative to the program's folder, as installed or built.
std::string default_data_path();

/// Four fifths for training, one for testing, of every digit alike; which ones depends on `seed`
/// only.
Split split(const Digits& digits, std::uint64_t seed);

}  // namespace tutti::trainer
