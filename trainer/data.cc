#include "trainer/data.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <random>
#include <system_error>

namespace tutti::trainer {
namespace {

constexpr std::size_t kMostLines = 1'000'000;
constexpr std::size_t kLongestLine = 1024;

Error bad_line(const std::string& path, std::size_t line, const std::string& reason) {
  return {Code::kInvalidArgument, path + ":" + std::to_string(line) + ": " + reason};
}

/// One line into `digits`; empty, or what is wrong with it.
std::string read_line(const std::string& line, Samples& digits) {
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
      digits.inputs.push_back(static_cast<float>(value) / 16.0F);
    }
    at = next + 1;
  }
  return "";
}

/// Why it is not read; empty: it is. A folder can be opened, and looks like an empty file.
std::string unreadable(const std::string& path, const std::ifstream& opened) {
  int number = opened ? 0 : errno;
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) number = EISDIR;
  return number == 0 ? "" : std::generic_category().message(number);
}

void append(const Samples& from, std::size_t index, Samples& to) {
  to.inputs.insert(to.inputs.end(), from.input(index), from.input(index) + from.inputs_each);
  to.labels.insert(to.labels.end(), from.label(index), from.label(index) + from.labels_each);
}

}  // namespace

Result<Samples> read_digits(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  if (const std::string why = unreadable(path, file); !why.empty())
    return Error{Code::kInvalidArgument, path + ": " + why};
  Samples digits;
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

Result<Samples> read_text(const std::string& path) {
  constexpr std::size_t kLeastText = 1024, kMostText = std::size_t{64} << 20;
  const auto refuse = [&](const std::string& why) {
    return Error{Code::kInvalidArgument, path + ": " + why};
  };
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (const std::string why = unreadable(path, file); !why.empty()) return refuse(why);
  std::string text;
  for (char c = 0; text.size() <= kMostText && file.get(c);) text += c;
  if (text.size() < kLeastText || text.size() > kMostText)
    return refuse("a text has 1 KB to 64 MB; this one has " + std::to_string(text.size()) +
                  " bytes");
  std::array<int, 256> symbol{};
  for (const char c : text) symbol[static_cast<unsigned char>(c)] = 1;
  int symbols = 0;
  for (int& number : symbol) number = number != 0 ? symbols++ : 0;
  if (symbols > 255) return refuse("it has more than 255 different characters");
  Samples samples{.inputs_each = kWindow,
                  .labels_each = kWindow,
                  .classes = static_cast<std::size_t>(symbols),
                  .inputs = {},
                  .labels = {}};
  const std::size_t windows = (text.size() - 1) / kWindow;
  for (std::size_t i = 0; i < windows * kWindow; ++i) {
    const auto at = [&](std::size_t place) {
      return symbol[static_cast<unsigned char>(text[place])];
    };
    samples.inputs.push_back(static_cast<float>(at(i)));
    samples.labels.push_back(static_cast<std::uint8_t>(at(i + 1)));
  }
  return samples;
}

std::string data_path(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path bin = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::string path;
  for (const char* folder : {TUTTI_DATA_FOLDERS}) {
    path = (bin / folder / name).lexically_normal().string();
    if (fs::exists(path, error)) return path;
  }
  return path;
}

std::string default_data_path() { return data_path("digits.csv"); }
std::string default_text_path() { return data_path("charters.txt"); }

Split split(const Samples& samples, std::uint64_t seed) {
  Split parts;
  for (Samples* part : {&parts.train, &parts.test}) {
    part->inputs_each = samples.inputs_each;
    part->labels_each = samples.labels_each;
    part->classes = samples.classes;
  }
  std::mt19937_64 random(seed);
  std::vector<std::size_t> train, test;
  const bool stratified = samples.labels_each == 1;
  for (std::size_t label = 0; label < (stratified ? samples.classes : 1); ++label) {
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (!stratified || samples.labels[i] == label) chosen.push_back(i);
    }
    std::shuffle(chosen.begin(), chosen.end(), random);
    const auto cut = chosen.begin() + static_cast<std::ptrdiff_t>(chosen.size() / 5);
    test.insert(test.end(), chosen.begin(), cut);
    train.insert(train.end(), cut, chosen.end());
  }
  for (const std::size_t index : train) append(samples, index, parts.train);
  for (const std::size_t index : test) append(samples, index, parts.test);
  return parts;
}

}  // namespace tutti::trainer
