#include "trainer/data.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <random>

namespace tutti::trainer {
namespace {

constexpr std::size_t kMostLines = 1'000'000;
constexpr std::size_t kLongestLine = 1024;

Error bad_line(const std::string& path, std::size_t line, const std::string& reason) {
  return {Code::kInvalidArgument, path + ":" + std::to_string(line) + ": " + reason};
}

/// One line into `digits`; empty, or what is wrong with it.
std::string read_line(const std::string& line, Digits& digits) {
  if (line.size() > kLongestLine) return "the line is too long";
  const char* at = line.data();
  const char* const end = line.data() + line.size();
  for (std::size_t field = 0; field <= kPixels; ++field) {
    int value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc()) {
      return "field " + std::to_string(field + 1) + " of 65 is missing or no number";
    }
    const bool last = field == kPixels;
    if (value < 0 || value > (last ? 9 : 16)) {
      return (last ? "the digit is " : "a pixel is ") + std::to_string(value);
    }
    if (last ? next != end : (next == end || *next != ',')) {
      return last ? "something follows the digit"
                  : "only " + std::to_string(field + 1) + " of 65 fields";
    }
    if (last) {
      digits.labels.push_back(static_cast<std::uint8_t>(value));
    } else {
      digits.images.push_back(static_cast<float>(value) / 16.0F);
    }
    at = next + 1;
  }
  return "";
}

void append(const Digits& from, std::size_t index, Digits& to) {
  to.images.insert(to.images.end(), from.image(index), from.image(index) + kPixels);
  to.labels.push_back(from.labels[index]);
}

}  // namespace

Result<Digits> read_digits(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Error{Code::kInvalidArgument, path + ": no such file, or it can't be read"};
  Digits digits;
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    if (++number > kMostLines) return bad_line(path, number, "more lines than the trainer takes");
    const bool cut = file.eof();  // The last line has no end.
    const std::string reason = read_line(line, digits);
    if (!reason.empty()) {
      return bad_line(path, number, reason + (cut ? " (is the file cut short?)" : ""));
    }
  }
  if (digits.size() < 100) {
    return bad_line(path, number,
                    "only " + std::to_string(digits.size()) +
                        " images; at least 100 are needed (is the file cut short?)");
  }
  return digits;
}

std::string default_data_path() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path bin = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::string path;
  for (const char* folder : {TUTTI_DATA_FOLDERS}) {
    path = (bin / folder / "digits.csv").lexically_normal().string();
    if (fs::exists(path, error)) return path;
  }
  return path;
}

Split split(const Digits& digits, std::uint64_t seed) {
  Split parts;
  std::mt19937_64 random(seed);
  std::vector<std::size_t> train, test;
  for (std::size_t digit = 0; digit < kClasses; ++digit) {
    std::vector<std::size_t> of_digit;
    for (std::size_t i = 0; i < digits.size(); ++i) {
      if (digits.labels[i] == digit) of_digit.push_back(i);
    }
    std::shuffle(of_digit.begin(), of_digit.end(), random);
    const auto cut = of_digit.begin() + static_cast<std::ptrdiff_t>(of_digit.size() / 5);
    test.insert(test.end(), of_digit.begin(), cut);
    train.insert(train.end(), cut, of_digit.end());
  }
  for (const std::size_t index : train) append(digits, index, parts.train);
  for (const std::size_t index : test) append(digits, index, parts.test);
  return parts;
}

}  // namespace tutti::trainer
