// File: algorithms/pairs.h: the rounds in which each number meets all others, one at a time.
//
// As in a tournament: in round r the numbers whose sum is r, modulo an odd m, meet. If n is odd, m
// is n, and in each round one number meets none. If n is even, m is n-1, and that one meets the
// number n-1. (The circle method, T. P. Kirkman 1847.) Both sides of a pair know each other in
// every round; so each can hand over all that the other gets before it takes what it gives, and a
// buffer may be used for both.
#pragma once
#include "algorithms/ranks.h"

namespace tutti {

/// Rounds that it takes n numbers to meet: n-1, or n if n is odd.
constexpr int meeting_rounds(int n) { return n - 1 + n % 2; }

/// The number that `number` of n meets in a round; itself if none.
constexpr int meets(int number, int round, int n) {
  const int m = meeting_rounds(n), last = n - 1;
  // Twice `alone` is the round modulo m: it is the one that would meet itself.
  const int alone = wrap(round * ((m + 1) / 2), m);
  if (n % 2 == 0 && number == last) return alone;
  if (n % 2 == 0 && number == alone) return last;
  return wrap(round - number, m);
}

}  // namespace tutti
