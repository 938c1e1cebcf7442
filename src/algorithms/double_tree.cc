#include "algorithms/double_tree.h"

#include "algorithms/ranks.h"

namespace tutti {
namespace {

// Between labels and numbers of tree 1; 0 stays 0. `by` is 1 from number to label, -1 back.
int swap_parity(int number, int n, int by) {
  const int others = n - 1;
  if (number == 0) return 0;
  if (others % 2 == 0) return n - number;
  return (number - 1 + others + by) % others + 1;
}

int parent_of(int label, int n) {
  const int bit = label & -label;
  const int above = (label ^ bit) | (2 * bit);
  return above < n ? above : label ^ bit;
}

}  // namespace

TreePlace double_tree(Rank me, int tree, int n, int root) {
  const auto rank_of = [&](int label) {
    return wrap(root + (tree == 0 ? label : swap_parity(label, n, -1)), n);
  };
  const auto child = [&](int label) { return TreePlace::Child{rank_of(label), label % 2 == 1}; };
  const int number = wrap(me.value - root, n);
  const int label = tree == 0 ? number : swap_parity(number, n, 1);
  const int bit = label & -label;
  TreePlace place;
  if (label != 0) place.parent = rank_of(parent_of(label, n));
  for (int above = label; above != 0; above = parent_of(above, n)) ++place.depth;
  if (bit > 1) place.children.push_back(child(label - bit / 2));
  // The upper half may be cut off; what is left of it has its root at the largest step that fits.
  int step = bit / 2;
  if (label == 0) {
    step = 1;
    while (2 * step < n) step *= 2;
  }
  while (step > 0 && label + step >= n) step /= 2;
  if (step > 0) place.children.push_back(child(label + step));
  return place;
}

}  // namespace tutti
