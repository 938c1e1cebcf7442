#include "base/nearest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/one_line.h"
#include "tutti/types.h"

namespace tutti {
namespace {

constexpr std::size_t kMostShown = 64;  // Characters; a word may be anything.

/// Not std::tolower, which depends on the locale.
constexpr char small(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool begins_with(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() && edit_distance(text.substr(0, prefix.size()), prefix) == 0;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const char x = small(a[i - 1]), y = small(b[j - 1]);
      row[j] = std::min({last[j - 1] + (x == y ? 0 : 1), last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && x == small(b[j - 2]) && y == small(a[i - 2]))
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> words) {
  constexpr std::size_t kMostEdits = 3, kLeastPrefix = 3;
  std::string_view best;
  std::size_t least = kMostEdits + 1;
  for (const std::string_view other : words) {
    const std::size_t longer = std::max(word.size(), other.size());
    if (longer > kMostShown) continue;
    const std::size_t edits = edit_distance(word, other);
    if (edits >= least || edits > longer / 3) continue;
    best = other;
    least = edits;
  }
  if (!best.empty() || word.size() < kLeastPrefix) return best;
  const auto begins = [&](std::string_view other) { return begins_with(other, word); };
  const auto first = std::ranges::find_if(words, begins);
  if (first == words.end() || std::any_of(first + 1, words.end(), begins)) return {};
  return *first;
}

std::string unknown_word(std::string_view what, std::string_view word,
                         std::span<const std::string_view> words) {
  const std::string shown = word.size() > kMostShown
                                ? std::string(word.substr(0, kMostShown)) + "..."
                                : std::string(word);
  std::string text = fmt::format("unknown {} '{}'", what, one_line(shown));
  const std::string_view near = nearest(word, words);
  return near.empty() ? text : fmt::format("{}; did you mean '{}'?", text, near);
}

std::string unknown_of(std::string_view what, std::string_view word,
                       std::span<const std::string_view> words) {
  return followed_by(unknown_word(what, word, words),
                     fmt::format("there are {}", fmt::join(words, ", ")));
}

std::string followed_by(std::string text, std::string_view rest) {
  const bool is_question = text.ends_with('?');
  text += is_question ? " " : "; ";
  const std::size_t begin = text.size();
  text += rest;
  if (is_question && begin < text.size() && text[begin] >= 'a' && text[begin] <= 'z')
    text[begin] = static_cast<char>(text[begin] - 'a' + 'A');
  return text;
}

std::string unknown_collective(std::string_view name) {
  std::vector<std::string_view> known;
  for (int i = 0; i < kCollectiveCount; ++i) known.push_back(to_string(static_cast<Collective>(i)));
  return unknown_of("collective", name, known);
}

}  // namespace tutti
