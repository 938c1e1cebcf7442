// File: topology/graph/words.h: texts from outside taken apart, and lists put together for people.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/result.h"

namespace tutti::topology {

/// One line of ASCII, whatever strangers wrote into it.
inline std::string printable(std::string text) {
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

/// kInvalidArgument with a formatted text, of one line.
template <class... Args>
Error invalid(fmt::format_string<Args...> text, Args&&... args) {
  return {
      Code::kInvalidArgument, printable(fmt::format(text, std::forward<Args>(args)...)), {}, {}};
}

/// The number that the whole text is, in base 10 or `base`; none if it is anything else.
template <class Number, class... Base>
std::optional<Number> parse_number(std::string_view text, Base... base) {
  Number value{};
  const char* const last = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), last, value, base...);
  if (code != std::errc() || stop != last) return std::nullopt;
  return value;
}

/// Without white space at its ends.
inline std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

/// The parts between separators, of which each may be empty.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t end = 0; end != std::string_view::npos;) {
    end = text.find(separator);
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return parts;
}

/// The words between blanks, or between any of these characters.
inline std::vector<std::string_view> words(std::string_view text, std::string_view blanks = " ") {
  std::vector<std::string_view> found;
  for (std::size_t at = 0; (at = text.find_first_not_of(blanks, at)) != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(blanks, at), text.size());
    found.push_back(text.substr(at, end - at));
    at = end;
  }
  return found;
}

/// Adds an item to a list of them.
inline void append(std::string& list, std::string_view item, std::string_view separator = ", ") {
  if (!list.empty()) list += separator;
  list += item;
}

/// What `text_of` says of each, in a list.
template <class Range, class TextOf>
std::string list_of(const Range& range, TextOf text_of, std::string_view separator = ", ") {
  std::string list;
  for (const auto& item : range) append(list, text_of(item), separator);
  return list;
}

}  // namespace tutti::topology
