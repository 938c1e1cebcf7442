// File: trainer/data.h: what is learnt: digits and a text, read and split.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/result.h"

namespace tutti::trainer {

inline constexpr std::size_t kPixels = 64;
inline constexpr std::size_t kClasses = 10;
/// Characters of a text that a sample has.
inline constexpr std::size_t kWindow = 32;

/// Inputs, and what each is: an image of pixels in 0 to 1 and its digit, or a piece of a text as
/// numbers of characters and, for each of them, the next one.
struct Samples {
  std::size_t inputs_each = kPixels, labels_each = 1, classes = kClasses;
  std::vector<float> inputs;
  std::vector<std::uint8_t> labels;
  std::size_t size() const { return labels.size() / labels_each; }
  const float* input(std::size_t index) const { return inputs.data() + index * inputs_each; }
  const std::uint8_t* label(std::size_t index) const { return labels.data() + index * labels_each; }
};

struct Split {
  Samples train, test;
};

/// Reads lines of 64 pixels (0 to 16) and a digit. kInvalidArgument names file, line and reason; a
/// file that ends in the middle of a line is one such reason.
Result<Samples> read_digits(const std::string& path);

/// Reads a text of 1 KB to 64 MB as windows of kWindow characters. kInvalidArgument names the file
/// and the reason; more than 255 different characters are one.
Result<Samples> read_text(const std::string& path);

/// A file of the trainer's data, relative to the program's folder, as installed or built.
std::string data_path(const std::string& name);
std::string default_data_path();
std::string default_text_path();

/// Four fifths for training, one for testing. With one label for each sample, of every label alike.
/// Which ones depends on `seed` only.
Split split(const Samples& samples, std::uint64_t seed);

}  // namespace tutti::trainer
