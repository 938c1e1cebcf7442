#include "plan/text/lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace tutti::plan {
namespace {

constexpr std::size_t kColumns = 100;
/// Where there are more ranks, those that follow each other are folded.
constexpr std::size_t kMostSpelled = 16;

/// By rank, those that get data of it.
using Successors = std::vector<std::set<int>>;

Successors successors_in(const Plan& plan, std::size_t lane) {
  Successors next(plan.ranks.size());
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    if (lane >= plan.ranks[rank].lanes.size()) continue;
    const Lane& steps = plan.ranks[rank].lanes[lane];
    const int me = static_cast<int>(rank);
    for (const Step& step : steps.steps) {
      if (step.kind != StepKind::kMove) continue;
      for (const Location& at : steps.sources(step)) {
        if (at.place == Place::kSlot || at.place == Place::kMulticast || is_of_peer(at))
          next[at.peer].insert(me);
      }
      for (const Location& at : steps.targets(step)) {
        if (at.place == Place::kSlot || is_of_peer(at)) next[rank].insert(at.peer);
      }
    }
  }
  for (std::size_t rank = 0; rank < next.size(); ++rank) next[rank].erase(static_cast<int>(rank));
  return next;
}

std::vector<int> order_in(const Successors& next) {
  std::vector<bool> is_next(next.size());
  for (const std::set<int>& of_rank : next) {
    if (of_rank.size() > 1) return {};
    for (const int rank : of_rank) is_next[static_cast<std::size_t>(rank)] = true;
  }
  // A chain begins where nothing comes from.
  const auto start = std::find(is_next.begin(), is_next.end(), false);
  int at = start == is_next.end() ? 0 : static_cast<int>(start - is_next.begin());
  std::vector<int> order;
  std::vector<bool> passed(next.size());
  while (!passed[static_cast<std::size_t>(at)]) {
    passed[static_cast<std::size_t>(at)] = true;
    order.push_back(at);
    const std::set<int>& of_rank = next[static_cast<std::size_t>(at)];
    if (!of_rank.empty()) at = *of_rank.begin();
  }
  return order.size() == next.size() && order.size() > 1 ? order : std::vector<int>{};
}

/// "0-7", "0-3,8".
std::string numbers(const std::vector<std::size_t>& lanes) {
  std::string text;
  for (std::size_t i = 0; i < lanes.size();) {
    std::size_t end = i + 1;
    while (end < lanes.size() && lanes[end] == lanes[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", lanes[i]);
    if (end - i > 1) text += fmt::format("-{}", lanes[end - 1]);
    i = end;
  }
  return text;
}

/// "0 1 2 3"; of many ranks "0-31 40 39".
std::vector<std::string> words_of(const std::vector<int>& order) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i + 1;
    while (order.size() > kMostSpelled && end < order.size() && order[end] == order[end - 1] + 1)
      ++end;
    words.push_back(end - i > 1 ? fmt::format("{}-{}", order[i], order[end - 1])
                                : std::to_string(order[i]));
    i = end;
  }
  return words;
}

std::vector<std::string> words_of(const Successors& next, const LanePlace& place) {
  std::vector<std::string> words = words_of(order_in(next));
  if (words.empty()) {
    std::size_t most = 0;
    for (const std::set<int>& of_rank : next) most = std::max(most, of_rank.size());
    if (most == 0) return {};
    words = {"each", "rank", "to", "up", "to", std::to_string(most), most == 1 ? "peer" : "peers"};
  }
  const auto host = [&](int rank) { return place.hosts[static_cast<std::size_t>(rank)]; };
  const auto& own = next[static_cast<std::size_t>(place.me)];
  const bool leaves = !place.hosts.empty() && std::any_of(own.begin(), own.end(), [&](int rank) {
    return host(rank) != host(place.me);
  });
  if (!leaves || place.nics.empty()) return words;
  words.back() += ",";
  for (const char* word : {"to", "other", "hosts", "by"}) words.emplace_back(word);
  words.emplace_back(place.nics);
  return words;
}

}  // namespace

std::vector<int> order_of(const Plan& plan, std::size_t lane) {
  return order_in(successors_in(plan, lane));
}

std::string lanes_in_words(const Plan& plan, const LanePlace& place, std::string_view indent) {
  std::size_t lanes = 0;
  for (const RankPlan& rank : plan.ranks) lanes = std::max(lanes, rank.lanes.size());
  std::vector<std::pair<std::vector<std::string>, std::vector<std::size_t>>> groups;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    auto words = words_of(successors_in(plan, lane), place);
    if (words.empty()) continue;
    const auto known = std::find_if(groups.begin(), groups.end(),
                                    [&](const auto& group) { return group.first == words; });
    if (known != groups.end())
      known->second.push_back(lane);
    else
      groups.push_back({words, {lane}});
  }
  std::string text;
  for (const auto& [words, members] : groups) {
    std::string line =
        fmt::format("{}lane{} {}:", indent, members.size() > 1 ? "s" : "", numbers(members));
    for (const std::string& word : words) {
      if (line.size() + 1 + word.size() > kColumns) {
        text += line + "\n";
        line = std::string(indent) + " ";
      }
      line += " " + word;
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace tutti::plan
