// Times of plans of so many ranks that their events can't be simulated: one rank's plan stands for
// all.
#include <algorithm>
#include <map>
#include <utility>

#include "plan/chunks.h"
#include "plan/estimate/estimate.h"
#include "planner/select.h"

namespace tutti::planner {
namespace {

/// How many ranks use each resource, if all send to the rank that is half of all ranks away.
std::map<std::uint32_t, double> sharers(const plan::CostModel& model, int ranks) {
  std::map<std::uint32_t, double> of;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const plan::Use& use : model.link(Rank{rank}, Rank{(rank + ranks / 2) % ranks}).uses)
      of[use.resource] += 1;
    if (model.compute) of[model.compute(Rank{rank}).resource] += 1;
  }
  return of;
}

/// How long a rank's messages keep it, its links and each resource busy.
class Load {
 public:
  Load(const plan::CostModel& model, Rank rank) : model_(model), rank_(rank) {}

  void send(Rank to, double bytes) {
    const plan::Path path = model_.link(rank_, to);
    own_us_ += model_.step_us;
    if (path.own.gigabytes_per_second > 0) own_us_ += bytes / (1e3 * path.own.gigabytes_per_second);
    for (const plan::Use& use : path.uses)
      add(use, bytes, model_.resources[use.resource].message_us);
    waits_ = true;
  }
  /// What a lane receives in a row has been under way together; and so have contributions, which
  /// all ranks send at once, whatever is sent between them.
  void receive(Rank from, Form form) {
    const bool waits =
        form == Form::kContribution ? std::exchange(waits_for_contributions_, false) : waits_;
    if (waits) own_us_ += model_.link(from, rank_).own.latency_us;
    waits_ = false;
  }
  void move(double bytes) {
    if (model_.compute)
      add(model_.compute(rank_), bytes, 0);
    else
      own_us_ += bytes / (1e3 * model_.reduce_gigabytes_per_second);
  }
  double microseconds(int ranks) const {
    const auto shared_by = sharers(model_, ranks);
    double longest = 0;
    for (const auto& [resource, us] : resource_us_) {
      const auto found = shared_by.find(resource);
      longest = std::max(longest, us * (found == shared_by.end() ? 1 : found->second));
    }
    return own_us_ + longest;
  }

 private:
  void add(const plan::Use& use, double bytes, double message_us) {
    const double rate = model_.resources[use.resource].gigabytes_per_second;
    resource_us_[use.resource] += message_us + (rate > 0 ? bytes * use.share / (1e3 * rate) : 0);
  }

  const plan::CostModel& model_;
  const Rank rank_;
  double own_us_ = 0;
  bool waits_ = true, waits_for_contributions_ = true;  // For a latency, once the rank receives.
  std::map<std::uint32_t, double> resource_us_;
};

double time_of(Rank busy, const Algorithm& algorithm, const Request& request,
               const plan::CostModel& model) {
  const plan::Shape& shape = request.shape;
  const plan::RankPlan plan = build(algorithm, shape, busy);
  const auto chunks = std::max(plan::input_blocks(shape), plan::output_blocks(shape)) *
                      std::max(1U, algorithm.pieces(shape));
  const double chunk_bytes = static_cast<double>(request.bytes) / chunks;
  Load load(model, busy);
  for (const plan::Lane& lane : plan.lanes) {
    for (const plan::Step& step : lane.steps) {
      if (step.kind != plan::StepKind::kMove) continue;
      load.move((step.source_count + step.target_count) * chunk_bytes);
      for (const plan::Location& at : lane.sources(step))
        if (at.place == plan::Place::kSlot) load.receive(Rank{at.peer}, at.form);
      for (const plan::Location& at : lane.targets(step))
        if (at.place == plan::Place::kSlot) load.send(Rank{at.peer}, chunk_bytes);
    }
  }
  return load.microseconds(shape.rank_count);
}

}  // namespace

double rough_us(const Algorithm& algorithm, const Request& request, const plan::CostModel& model) {
  const plan::Shape& shape = request.shape;
  if (has_root(shape.collective)) return time_of(Rank{shape.root}, algorithm, request, model);
  if (!is_scan(shape.collective))
    return time_of(Rank{shape.rank_count / 2}, algorithm, request, model);
  // The first rank has most to send, the last one most to add up.
  return std::max(time_of(Rank{0}, algorithm, request, model),
                  time_of(Rank{shape.rank_count - 1}, algorithm, request, model));
}

}  // namespace tutti::planner
