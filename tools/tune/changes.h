// File: tools/tune/changes.h: what a new tuning table changes, in words.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "planner/tuning_table.h"

namespace tutti::tools {

inline std::string size_text(std::size_t bytes) {
  if (bytes >= (std::size_t{1} << 20)) return fmt::format("{}M", bytes >> 20);
  return bytes >= 1024 ? fmt::format("{}K", bytes >> 10) : fmt::format("{}", bytes);
}

/// "ring", with repeated lanes "ring:2".
inline std::string way_text(const planner::Way& way) {
  return way.lanes == 1 ? way.name : fmt::format("{}:{}", way.name, way.lanes);
}

/// The parts with commas between them, broken into lines that begin at the column `indent`.
inline std::string in_lines(const std::vector<std::string>& parts, std::size_t indent) {
  constexpr std::size_t kColumns = 100;
  std::string text;
  std::size_t column = indent;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string words = parts[i] + (i + 1 < parts.size() ? "," : "");
    if (column + 1 + words.size() > kColumns) {
      text += fmt::format("\n{:{}}", "", indent);
      column = indent;
    }
    const bool first = column == indent;
    text += (first ? "" : " ") + words;
    column += words.size() + (first ? 0 : 1);
  }
  return text;
}

/// The way that messages of that size go. Larger ones than were measured go like the largest.
inline std::string way_at(const std::vector<planner::Range>& ranges, std::size_t bytes) {
  if (ranges.empty()) return "not in the table";
  const auto range = std::find_if(ranges.begin(), ranges.end() - 1,
                                  [&](const planner::Range& one) { return bytes <= one.up_to; });
  return way_text(range->ways.front());
}

/// "packet -> pat to 64", "ring -> one_shot over 4K to 64K", "ring -> two_shot over 1M": which
/// sizes get another algorithm. Empty: none does.
inline std::vector<std::string> changes(const std::vector<planner::Range>& old,
                                        const std::vector<planner::Range>& now) {
  std::vector<std::size_t> ends;
  for (const auto* ranges : {&old, &now}) {
    for (std::size_t i = 0; i + 1 < ranges->size(); ++i) ends.push_back((*ranges)[i].up_to);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  const auto change_at = [&](std::size_t bytes) {
    const std::string was = way_at(old, bytes), is = way_at(now, bytes);
    return was == is ? std::string() : was + " -> " + is;
  };
  std::vector<std::string> parts;
  std::size_t begin = 0;  // Sizes above this have one change.
  for (std::size_t i = 0; i <= ends.size(); ++i) {
    const bool last = i == ends.size();
    const std::string change = change_at(last ? SIZE_MAX : ends[i]);
    if (!last && change == change_at(i + 1 < ends.size() ? ends[i + 1] : SIZE_MAX)) continue;
    if (!change.empty())
      parts.push_back(change + (begin == 0 ? "" : " over " + size_text(begin)) +
                      (last ? "" : " to " + size_text(ends[i])));
    if (!last) begin = ends[i];
  }
  return parts;
}

}  // namespace tutti::tools
