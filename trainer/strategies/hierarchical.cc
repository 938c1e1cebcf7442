// Hierarchical data parallel: ranks are in groups, as those of one host, whose links are faster
// than those between groups. Gradients are reduced to the leader of each group, the leaders
// all-reduce, and each broadcasts the sum in its group.
//
//   s_k = sum of g_r over group k       s = sum of s_k over leaders       g = s / B everywhere
//   sent between N/G groups on each leader and step: 2 (N/G - 1)/(N/G) S; nothing by other ranks
//
// Goyal et al.: Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, 2017, section 4.
//
// With groups of a power of two the order of the sum is the canonical one, so weights have the bits
// of ddp's. The library has such a hierarchy inside its all-reduce; this one shows how a program
// makes it with `split`.
#include <optional>

#include "trainer/strategies/replica.h"

namespace tutti::trainer {
namespace {

class Hierarchical : public Replica {
 public:
  using Replica::Replica;

  Status begin(std::span<const float> weights) override {
    const int me = static_cast<int>(traffic().me()), size = options().group_ranks;
    Communicator& all = traffic().communicator();
    TUTTI_TRY(group_, all.split(me / size, me));
    leader_ = group_->rank().value == 0;
    // The others take part too, as a communicator of their own.
    TUTTI_TRY(leaders_, all.split(leader_ ? 0 : 1, me));
    return Replica::begin(weights);
  }

  Status ready(std::size_t /*unit*/) override { return ok(); }

  Status step(const StepInfo& info) override {
    Traffic group(*group_), leaders(*leaders_);
    float* data = gradients();
    const Request whole{.input = data, .output = data, .count = size(), .type = DataType::kFloat32};
    Request reduce = whole, broadcast = whole;
    reduce.collective = Collective::kReduce;
    broadcast.collective = Collective::kBroadcast;
    reduce.root = broadcast.root = Rank{0};
    TUTTI_RETURN_IF_ERROR(group.call(reduce));
    if (leader_) TUTTI_RETURN_IF_ERROR(leaders.call(whole));
    TUTTI_RETURN_IF_ERROR(group.call(broadcast));
    traffic().add(group.bytes() + leaders.bytes(),
                  group.exposed_seconds() + leaders.exposed_seconds());
    return update(info.number, info.rate, info.labels);
  }

 private:
  std::optional<Communicator> group_, leaders_;
  bool leader_ = false;
};

}  // namespace

std::unique_ptr<Strategy> make_hierarchical(const Setup& setup) {
  return std::make_unique<Hierarchical>(setup);
}

}  // namespace tutti::trainer
