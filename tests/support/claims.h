// File: support/claims.h: evaluates the claims of an algorithm (algorithms/algorithm.h) for a
// shape.
//
// A claim is one or more bounds, "; " between them. The first one whose condition holds counts; if
// none does, nothing is claimed of that shape.
//   "2(n-1)/n M"                              just that
//   "<= 2k"                                   at most; and reached
//   "< 3n/2"                                  less, but more than half of it
//   "~ (n-1)/n M"                             just that if n is a power of two; else up to k-1
//                                             chunks more, and reached
//   "n a power of two: k; other n: <= n-1"    with conditions
// "Reached" and "half" have to come true for some shape between any two powers of two.
#pragma once
#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/ranks.h"
#include "plan/plan.h"
#include "support/trees.h"

namespace tutti::test {

/// What the letters of a formula stand for. docs/algorithms.md explains them.
using Letters = std::map<std::string, double, std::less<>>;

inline Letters letters_of(const plan::Shape& shape) {
  const int n = shape.rank_count;
  Letters is{{"n", n}, {"k", level_count(n)}, {"M", 1}, {"l", shape.groups.sizes.size()}};
  double hops = 0, peers = 0;
  int below = 1;
  std::vector<int> sizes = shape.groups.sizes;
  if (!sizes.empty()) is["g"] = sizes.front(), is["G"] = sizes.back();
  sizes.push_back(n);
  for (const int size : sizes) {
    const int parts = (size + below - 1) / below;
    if (below > 1) hops += level_count(parts);
    peers += parts - 1;
    below = size;
  }
  is["h"] = hops;
  is["p"] = peers;
  double weights = 0, heaviest = 0;
  for (const int weight : shape.weights) {
    weights += weight;
    heaviest = std::max(heaviest, 1.0 * weight);
  }
  is["x"] = weights > 0 ? heaviest / weights : 0;
  double deepest = 0, shares = 0;
  std::vector<double> edges(static_cast<std::size_t>(n));
  for (const plan::SpanningTree& tree : shape.trees) {
    deepest = std::max(deepest, 1.0 * depth_of(tree));
    shares += tree.weight;
    for (std::size_t rank = 0; rank < edges.size(); ++rank) {
      const auto parent = static_cast<std::size_t>(tree.parents[rank]);
      if (parent == rank) continue;
      edges[parent] += tree.weight;
      if (!has_root(shape.collective)) edges[rank] += tree.weight;
    }
  }
  is["d"] = deepest;
  is["c"] = shares > 0 ? *std::max_element(edges.begin(), edges.end()) / shares : 0;
  return is;
}

/// "3(n-1)/2 + ceil(log2(n))": + - * /, brackets, products without a sign, ceil floor log2 min max.
class Formula {
 public:
  Formula(std::string_view text, const Letters& letters) : rest_(text), letters_(letters) {}
  double value() {
    const double result = sum();
    if (!rest_.empty()) fail();
    return result;
  }

 private:
  [[noreturn]] void fail() const {
    throw std::invalid_argument("a claim can't be read at '" + std::string(rest_) + "'");
  }
  char next() {
    while (!rest_.empty() && rest_[0] == ' ') rest_.remove_prefix(1);
    return rest_.empty() ? '\0' : rest_[0];
  }
  bool take(char sign) {
    if (next() != sign) return false;
    rest_.remove_prefix(1);
    return true;
  }
  double sum() {
    double result = product();
    for (;;) {
      if (take('+'))
        result += product();
      else if (take('-'))
        result -= product();
      else
        return result;
    }
  }
  double product() {
    double result = factor();
    for (;;) {
      if (take('*') || next() == '(' || std::isalnum(static_cast<unsigned char>(next())) != 0)
        result *= factor();
      else if (take('/'))
        result /= factor();
      else
        return result;
    }
  }
  std::string word(int (*belongs)(int)) {
    std::size_t end = 0;
    while (end < rest_.size() && belongs(static_cast<unsigned char>(rest_[end])) != 0) ++end;
    const std::string found(rest_.substr(0, end));
    rest_.remove_prefix(end);
    return found;
  }
  double factor() {
    if (take('(')) return closed(sum());
    if (std::isdigit(static_cast<unsigned char>(next())) != 0) return std::stod(word(std::isdigit));
    if (std::isalpha(static_cast<unsigned char>(next())) == 0) fail();
    const std::string name = word(std::isalnum);
    if (const auto letter = letters_.find(name); letter != letters_.end()) return letter->second;
    if (!take('(')) fail();
    const double first = sum();
    if (name == "ceil") return closed(std::ceil(first));
    if (name == "floor") return closed(std::floor(first));
    if (name == "log2") return closed(std::log2(first));
    if (!take(',')) fail();
    const double second = sum();
    if (name == "min") return closed(std::min(first, second));
    if (name == "max") return closed(std::max(first, second));
    fail();
  }
  double closed(double value) {
    if (!take(')')) fail();
    return value;
  }

  std::string_view rest_;
  const Letters& letters_;
};

/// One claim of one algorithm, held against what plans really cost.
class ClaimCheck {
 public:
  ClaimCheck(std::string what, std::string_view claim) : what_(std::move(what)) {
    while (!claim.empty()) {
      const std::size_t end = std::min(claim.find("; "), claim.size());
      add(claim.substr(0, end));
      claim.remove_prefix(std::min(end + 2, claim.size()));
    }
  }

  /// Empty if the claim holds. `cost` comes in units of `chunk`.
  std::string complaint(const plan::Shape& shape, const Letters& letters, double cost,
                        double chunk) {
    for (Bound& bound : bounds_) {
      if (!holds(bound.condition, shape, letters)) continue;
      double claimed = Formula(bound.formula, letters).value();
      if (bound.sign == Sign::kAbout) claimed += (level_count(shape.rank_count) - 1) * chunk;
      const bool just = std::abs(cost - claimed) < 1e-9, below = cost < claimed - 1e-9;
      const bool is_reached = bound.sign == Sign::kBelow ? cost > claimed / 2 : just;
      bool& reached = bound.reached[level_count(shape.rank_count)];
      reached = reached || is_reached;
      // Two to four ranks need fewer of many things than a formula for all n says.
      const bool may_be_less = bound.sign != Sign::kJust || shape.rank_count <= 4;
      const bool fits = bound.sign == Sign::kBelow ? below : just || (may_be_less && below);
      if (fits) return {};
      return what_ + " claimed: " + std::string(bound.text) + ", that is " +
             std::to_string(claimed) + "; found: " + std::to_string(cost);
    }
    return {};
  }

  /// Empty if each bound was reached, as this claims.
  std::string too_modest(int most_ranks) const {
    for (const Bound& bound : bounds_) {
      for (const auto& [level, reached] : bound.reached) {
        if (level > 2 && 1 << level <= most_ranks && !reached)
          return what_ + " claimed: " + std::string(bound.text) + "; no plan for " +
                 std::to_string((1 << (level - 1)) + 1) + " to " + std::to_string(1 << level) +
                 " ranks comes to that: the claim is too modest";
      }
    }
    return {};
  }

 private:
  enum class Sign : std::uint8_t { kJust, kMost, kBelow, kAbout };
  struct Bound {
    std::string_view text, condition, formula;
    Sign sign = Sign::kJust;
    std::map<int, bool> reached;  // By level_count(n).
  };

  void add(std::string_view text) {
    Bound bound{.text = text, .condition = {}, .formula = text, .reached = {}};
    if (const std::size_t colon = text.find(": "); colon != std::string_view::npos) {
      bound.condition = text.substr(0, colon);
      bound.formula = text.substr(colon + 2);
    }
    const auto starts = [&](std::string_view sign, Sign means) {
      if (bound.formula.substr(0, sign.size()) != sign) return false;
      bound.formula.remove_prefix(sign.size());
      bound.sign = means;
      return true;
    };
    if (starts("~ ", Sign::kJust)) {
      bounds_.push_back(bound);
      bounds_.back().condition = "n a power of two";
      bound.sign = Sign::kAbout;
    } else if (!starts("<= ", Sign::kMost)) {
      starts("< ", Sign::kBelow);
    }
    bounds_.push_back(bound);
  }

  static bool holds(std::string_view condition, const plan::Shape& shape, const Letters& letters) {
    const int n = shape.rank_count;
    if (condition.empty() || condition == "other n") return true;
    if (condition == "n a multiple of g")
      return !shape.groups.sizes.empty() && n % shape.groups.sizes.front() == 0;
    if (condition == "s = G") return letters.find("s")->second == letters.find("G")->second;
    constexpr std::string_view kPower = "n a power of two", kUpTo = " up to ";
    if (condition.substr(0, kPower.size()) != kPower)
      throw std::invalid_argument("no condition of claims: " + std::string(condition));
    const std::string_view rest = condition.substr(kPower.size());
    const int most = rest.empty() ? n : std::stoi(std::string(rest.substr(kUpTo.size())));
    return n <= most && (n & (n - 1)) == 0;
  }

  std::string what_;
  std::vector<Bound> bounds_;
};

}  // namespace tutti::test
