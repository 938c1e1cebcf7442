// File: support/sample.h: a random share of a large product of cases, for builds where each is
// slow.
#pragma once

namespace tutti::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

/// Whether this case is tried. All are, but one in so many under a sanitizer, which takes ten times
/// as long and looks for mistakes that show in any of them. The release build tries them all.
template <class Random>
bool sampled(Random& random, unsigned one_in = 8) {
  return !kSanitized || random() % one_in == 0;
}

}  // namespace tutti::test
