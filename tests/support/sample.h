// File: support/sample.h: a random share of a large product of cases, for builds and machines where
// each is slow.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace tutti::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

/// The usual share: every case, but one in so many under a sanitizer, which takes ten times as long
/// and looks for mistakes that show in any of them.
constexpr unsigned share(unsigned sanitized = 8) { return kSanitized ? sanitized : 1; }

/// Cases in groups, such as the algorithms. One in so many of each group runs, rounded up: no group
/// is left out, however the dice fall. Which ones depends on the seed alone.
class Sample {
 public:
  explicit Sample(unsigned one_in = share()) : one_in_(one_in) {}
  /// If all cases run, runs this one at once; else `run` picks. So `body` must own copies of what
  /// it needs.
  void add(const std::string& group, std::function<void()> body) {
    if (one_in_ <= 1)
      body();
    else
      groups_[group].push_back(std::move(body));
  }
  template <class Random>
  void run(Random& random) {
    for (auto& [group, bodies] : groups_) {
      std::shuffle(bodies.begin(), bodies.end(), random);
      bodies.resize((bodies.size() + one_in_ - 1) / one_in_);
      for (const auto& body : bodies) body();
    }
    groups_.clear();
  }

 private:
  unsigned one_in_;
  std::map<std::string, std::vector<std::function<void()>>> groups_;
};

}  // namespace tutti::test
