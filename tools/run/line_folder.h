// File: tools/run/line_folder.h: equal lines that several ranks write at about the same time, as
// one.
//
// One mistake of the user is often an error on every rank. A line waits for up to kHoldTime; a rank
// that writes the same meanwhile joins it: "[0-2] ...". The lines of each rank keep their order. In
// lines of the log, the process and the rank make no difference: the prefix has the ranks.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"

namespace tutti::tools {

/// "[0-2,5] ".
inline std::string ranks_prefix(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text = "[";
  for (std::size_t i = 0, end = 0; i < ranks.size(); i = end) {
    for (end = i + 1; end < ranks.size() && ranks[end] == ranks[end - 1] + 1;) ++end;
    text += fmt::format("{}{}", i == 0 ? "" : ",", ranks[i]);
    if (end - i > 1) text += fmt::format("{}{}", end - i > 2 ? '-' : ',', ranks[end - 1]);
  }
  return text + "] ";
}

/// Takes what differs between ranks off the head of a line of the log (base/log.h):
/// "12:00:00.000 node1:4711 rank 3 tutti/net warning: ..." becomes {"12:00:00.000 node1 ",
/// "tutti/net warning: ..."}. Another line has no head.
inline std::pair<std::string_view, std::string_view> split_head(std::string_view line) {
  const auto skip_digits = [&](std::size_t at) {
    while (at < line.size() && line[at] >= '0' && line[at] <= '9') ++at;
    return at;
  };
  constexpr std::string_view kTime = "00:00:00.000 ", kRank = "rank ", kOurs = "tutti/";
  for (std::size_t i = 0; i < kTime.size(); ++i) {
    const bool digit = i < line.size() && line[i] >= '0' && line[i] <= '9';
    if (kTime[i] == '0' ? !digit : i >= line.size() || line[i] != kTime[i]) return {{}, line};
  }
  const std::size_t colon = line.find_first_of(": ", kTime.size());
  if (colon == std::string_view::npos || line[colon] != ':') return {{}, line};
  std::size_t at = skip_digits(colon + 1) + 1;
  if (at < line.size() && line.substr(at).starts_with(kRank)) at = skip_digits(at + 5) + 1;
  if (at >= line.size() || !line.substr(at).starts_with(kOurs)) return {{}, line};
  return {line.substr(0, colon), line.substr(at)};
}

class LineFolder {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// Nobody sees a line later than 50 ms after it was written, poll's rounding included.
  static constexpr std::chrono::milliseconds kHoldTime{40};
  /// More than this does not wait.
  static constexpr std::size_t kMostLines = 256, kMostBytes = std::size_t{1} << 16;

  /// One more rank may write: a line that all have written waits for nobody.
  void add_rank() { ++ranks_; }
  /// Adds to `out` what there is no room for.
  void add(int rank, std::string_view line, Time now, std::string& out) {
    const auto [head, text] = split_head(line);
    const std::uint64_t hash = hash_text(text);
    const auto last = last_.find(rank);
    // Before its own latest line a rank can't join: that would change the order.
    std::size_t i = last == last_.end() || last->second < gone_ ? 0 : last->second - gone_ + 1;
    while (i < held_.size() && (held_[i].hash != hash || held_[i].ranks.empty() ||
                                std::string_view(held_[i].line).substr(held_[i].text_at) != text))
      ++i;
    if (i == held_.size()) {
      held_.push_back({std::string(line), line.size() - text.size(), head.size(), hash, {}, now});
      bytes_ += line.size();
    }
    held_[i].ranks.push_back(rank);
    last_[rank] = gone_ + i;
    while (held_.size() > kMostLines || bytes_ > kMostBytes) pop(out);
  }
  /// A line of the launcher. It has no prefix, and none joins it.
  void add_own(std::string line, Time now) {
    bytes_ += line.size();
    held_.push_back({std::move(line), 0, 0, 0, {}, now});
  }

  /// Adds to `out` the lines that need not wait, or no longer.
  void release(Time now, std::string& out) {
    while (!held_.empty() && (now >= held_.front().since + kHoldTime ||
                              held_.front().ranks.size() == ranks_ || held_.front().ranks.empty()))
      pop(out);
  }
  /// All that this rank has written, and what comes before that.
  void release_of(int rank, std::string& out) {
    const auto last = last_.find(rank);
    while (last != last_.end() && last->second >= gone_) pop(out);
  }
  void release_all(std::string& out) {
    while (!held_.empty()) pop(out);
  }
  bool empty() const { return held_.empty(); }
  /// When to release next.
  std::optional<Time> next() const {
    return held_.empty() ? std::nullopt : std::optional(held_.front().since + kHoldTime);
  }

 private:
  struct Held {
    std::string line;
    std::size_t text_at;     // Where what all have in common begins.
    std::size_t head_bytes;  // What is shown of what is before that.
    std::uint64_t hash;      // The hash of that.
    std::vector<int> ranks;  // Empty: the launcher's own.
    Time since;
  };

  void pop(std::string& out) {
    const Held& held = held_.front();
    if (!held.ranks.empty()) out += ranks_prefix(held.ranks);
    if (held.ranks.size() < 2 || held.text_at == 0) {
      out += held.line;
    } else {
      out.append(held.line, 0, held.head_bytes).append(" ").append(held.line, held.text_at);
    }
    out += '\n';
    bytes_ -= held.line.size();
    held_.pop_front();
    ++gone_;
  }

  std::deque<Held> held_;
  std::map<int, std::size_t> last_;  // The latest line of each rank, counted from the first of all.
  std::size_t gone_ = 0;             // Lines that were released.
  std::size_t ranks_ = 0, bytes_ = 0;
};

}  // namespace tutti::tools
