// The parts by recursive halving and doubling, for any number of ranks. Chunk c is added up along
// the nearest tree of rank c (nearest_tree.h), and handed out along the same tree. If n is a power
// of two these are the exchanges with rank ^ 1, rank ^ 2, rank ^ 4, ... that the names tell of.
//
// A rank handles chunk c in phase me ^ c. Up the tree the phase falls, so the reduce part goes
// through the phases downwards and the gather part upwards: each chunk is passed on as soon as it
// is here, in one step, and one scratch chunk is enough. All ranks send and receive in every phase.
//
// One slot per channel: two ranks exchange chunks at one level of the tree only, where the chunk's
// bits down from that level are given; so two chunks on a channel differ in higher bits. The
// receiver's phase for the first has these in common with the sender's: it comes before the
// sender's phase for the second.
#include <vector>

#include "algorithms/nearest_tree.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {

void halving_reduce_part(plan::Builder& plan, Rank me, plan::Location result) {
  const int n = plan.shape().rank_count;
  for (int phase = (1 << level_count(n)) - 1; phase >= 0; --phase) {
    const int root = me.value ^ phase;
    if (root < n) reduce_to(plan, me.value, root, chunk_of(root), {result});
  }
}

void doubling_gather_part(plan::Builder& plan, Rank me, plan::Location own) {
  const int n = plan.shape().rank_count;
  for (int phase = 0; phase < 1 << level_count(n); ++phase) {
    const int root = me.value ^ phase;
    if (root >= n) continue;
    const NearestTree tree = nearest_tree(me.value, root, n);
    std::vector<plan::Location> targets;
    for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child)
      targets.push_back(plan.to(child->rank, Form::kResult));  // The farthest has most to do.
    if (phase == 0) {
      share(plan, me, own, std::move(targets));
      continue;
    }
    const plan::Location source = plan.from(tree.parent, Form::kResult);
    targets.insert(targets.begin(), plan.output(chunk_of(root)));
    plan.move(chunk_of(root), std::span(&source, 1), targets);
  }
}

}  // namespace tutti
