#include "algorithms/double_tree.h"

namespace tutti {
namespace {

// Between labels and ranks of tree 1; 0 stays 0. `by` is 1 from rank to label, -1 back.
int swap_parity(int number, int n, int by) {
  const int others = n - 1;
  if (number == 0) return 0;
  if (others % 2 == 0) return n - number;
  return (number - 1 + others + by) % others + 1;
}

}  // namespace

BinaryTree double_tree(int me, int tree, int n) {
  const auto rank_of = [&](int label) { return tree == 0 ? label : swap_parity(label, n, -1); };
  const int label = tree == 0 ? me : swap_parity(me, n, 1);
  const int bit = label & -label;
  BinaryTree place;
  if (label != 0) {
    const int above = (label ^ bit) | (2 * bit);
    place.parent = rank_of(above < n ? above : label ^ bit);
    if (bit > 1) place.children.push_back(rank_of(label - bit / 2));
  }
  // The upper half may be cut off; what is left of it has its root at the largest step that fits.
  int step = bit / 2;
  if (label == 0) {
    step = 1;
    while (2 * step < n) step *= 2;
  }
  while (step > 0 && label + step >= n) step /= 2;
  if (step > 0) place.children.push_back(rank_of(label + step));
  return place;
}

}  // namespace tutti
