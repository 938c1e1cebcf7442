// Direct: each rank sends straight to the rank that needs the data. One round, the least latency
// there is; and the bandwidth optimum, but for broadcast and reduce.
//
// Sums are made in rank order: the canonical one. A broadcast is one store for all where the
// channel can multicast. All-to-all in place too: a block has gone into its slot before the peer's
// block takes its place.
//
// Reduce-scatter and all-gather are parts (parts.h): two-shot consists of them too (two_shot.cc).
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"

namespace tutti {
namespace {

void build_broadcast(plan::Builder& plan, Rank me) {
  const int root = plan.shape().root;
  if (me.value != root) return pass_on(plan, 0, root);
  pass_on(plan, 0, -1, ranks_after(root, plan.shape().rank_count));
}

void build_reduce(plan::Builder& plan, Rank me) {
  const int root = plan.shape().root;
  if (me.value != root) return plan.move(0, plan.input(0), plan.to(root, Form::kContribution));
  plan.move(0, contributions(plan, me, 0), plan.output(0));
}

void build_gather(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  const auto mine = chunk_of(me.value);
  if (me.value != root) return plan.move(mine, plan.input(0), plan.to(root, Form::kResult));
  plan.move(mine, plan.input(0), plan.output(mine));
  for (const int peer : ranks_after(root, n)) pass_on(plan, chunk_of(peer), peer);
}

void build_scatter(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  const auto mine = chunk_of(me.value);
  if (me.value != root) return plan.move(mine, plan.from(root, Form::kResult), plan.output(0));
  for (const int peer : ranks_after(root, n))
    plan.move(chunk_of(peer), plan.input(chunk_of(peer)), plan.to(peer, Form::kResult));
  plan.move(mine, plan.input(mine), plan.output(0));
}

void build_all_to_all(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count;
  const auto mine = chunk_of(me.value);
  plan.move(block_of(me.value, me.value, n), plan.input(mine), plan.output(mine));
  for (const int peer : ranks_after(me.value, n)) {
    plan.move(block_of(me.value, peer, n), plan.input(chunk_of(peer)),
              plan.to(peer, Form::kResult));
  }
  for (const int peer : ranks_before(me.value, n)) {
    plan.move(block_of(peer, me.value, n), plan.from(peer, Form::kResult),
              plan.output(chunk_of(peer)));
  }
}

}  // namespace

void direct_reduce_part(plan::Builder& plan, Rank me, plan::Location result) {
  for (const int peer : ranks_after(me.value, plan.shape().rank_count))
    plan.move(chunk_of(peer), plan.input(chunk_of(peer)), plan.to(peer, Form::kContribution));
  plan.move(chunk_of(me.value), contributions(plan, me, chunk_of(me.value)), result);
}

void direct_gather_part(plan::Builder& plan, Rank me, plan::Location own) {
  const int n = plan.shape().rank_count;
  share(plan, chunk_of(me.value), own, ranks_after(me.value, n));
  for (const int peer : ranks_before(me.value, n)) pass_on(plan, chunk_of(peer), peer);
}

constinit const Algorithm direct_reduce_scatter(
    "direct", Collective::kReduceScatter, reduce_scatter_of<direct_reduce_part>,
    {.rounds = "1", .bytes = "(n-1)/n M", .peers = "n-1"},
    {.even = true, .good_for = "all ranks reach each other"});

constinit const Algorithm direct_all_gather(
    "direct", Collective::kAllGather, all_gather_of<direct_gather_part>,
    {.rounds = "1", .bytes = "(n-1)/n M", .peers = "n-1"},
    {.even = true, .good_for = "all ranks reach each other; one multicast slot per rank"});

constinit const Algorithm direct_broadcast("direct", Collective::kBroadcast, build_broadcast,
                                           {.rounds = "1", .bytes = "(n-1) M", .peers = "n-1"},
                                           {.good_for = "smallest messages; multicast"});

constinit const Algorithm direct_reduce("direct", Collective::kReduce, build_reduce,
                                        {.rounds = "1", .bytes = "M", .peers = "n-1"},
                                        {.good_for = "smallest messages"});

constinit const Algorithm direct_gather("direct", Collective::kGather, build_gather,
                                        {.rounds = "1", .bytes = "M/n", .peers = "n-1"},
                                        {.good_for = "all ranks reach the root"});

constinit const Algorithm direct_scatter("direct", Collective::kScatter, build_scatter,
                                         {.rounds = "1", .bytes = "(n-1)/n M", .peers = "n-1"},
                                         {.good_for = "the root reaches everyone"});

constinit const Algorithm direct_all_to_all(
    "direct", Collective::kAllToAll, build_all_to_all,
    {.rounds = "1", .bytes = "(n-1)/n M", .peers = "n-1"},
    {.even = true, .good_for = "all ranks reach each other; in place by way of slots"});

}  // namespace tutti
