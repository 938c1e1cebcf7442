// A time that an algorithm can't be below, without its simulation.
//
// The simulated plan sends what the plan of each rank says, so the resources on the ways out of one
// rank have at least its bytes to carry, whatever the others do. On any rank order a lane has its
// share of each piece; pieces are whole cache lines, so a rank may send a line less for each lane.
#include <algorithm>

#include "plan/chunks.h"
#include "plan/estimate/timeline.h"
#include "planner/simulate/simulate.h"

namespace tutti::planner {
namespace {

/// Microseconds that resources work for a rank which sends one element of each chunk.
class Loads {
 public:
  Loads(const plan::CostModel& model, DataType type)
      : model_(model), type_(type), us_(model.resources.size()) {}

  /// What the rank's plan sends by lanes on this order, which carry a part of every chunk.
  void add(const plan::RankPlan& plan, const std::vector<Rank>& order, std::size_t rank,
           double part) {
    for (const plan::Lane& lane : plan.lanes) {
      for (const plan::Step& step : lane.steps) {
        if (step.kind != plan::StepKind::kMove) continue;
        for (std::uint32_t i = step.first + step.source_count; i < step.end(); ++i) {
          const plan::Location& at = lane.locations[i];
          if (at.place == plan::Place::kSlot && order[rank] != order[at.peer])
            send(order[rank], order[at.peer], part * size(at));
        }
      }
    }
  }
  double most() const { return us_.empty() ? 0 : *std::max_element(us_.begin(), us_.end()); }

 private:
  double size(const plan::Location& at) const {
    return static_cast<double>(element_bytes(type_, at.form));
  }
  void send(Rank from, Rank to, double bytes) {
    const plan::Path path = model_.link(from, to);
    for (const plan::Use& use : path.uses) {
      const plan::Resource& at = model_.resources[use.resource];
      // A switch that joins messages carries fewer bytes than are sent.
      if (at.gigabytes_per_second <= 0 || at.joins != plan::Resource::Joins::kNothing) continue;
      us_[use.resource] += bytes * use.share / at.gigabytes_per_second * 1e-3;
    }
  }

  const plan::CostModel& model_;
  const DataType type_;
  std::vector<double> us_;
};

}  // namespace

/// The least over all shapes and rank orders of microseconds an element of a chunk, and chunks.
Simulator::Least Simulator::least_of(const Algorithm& algorithm, const Protocol& protocol) {
  const plan::CostModel model = machine_.model(protocol);
  std::optional<Least> least;
  for (const plan::Shape* listed : shapes_of(algorithm)) {
    plan::Shape shape = *listed;
    shape.trees = {};  // As when it is laid out.
    if (!algorithm.applies(shape)) shape.trees = listed->trees;
    const auto rank = static_cast<std::size_t>(shape.rank_count / 2);
    const plan::RankPlan plan = build(algorithm, shape, Rank{static_cast<std::int32_t>(rank)});
    for (const auto& orders : orders_) {
      Loads loads(model, options_.type);
      for (const std::vector<Rank>& order : orders)
        loads.add(plan, order, rank, 1.0 / static_cast<double>(orders.size()));
      const Least found{loads.most(), algorithm.pieces(shape), orders.size() * options_.channels};
      if (!least || found.element_us / found.pieces < least->element_us / least->pieces)
        least = found;
    }
  }
  return least.value_or(Least{});
}

double Simulator::least_us(const Algorithm& algorithm, const Protocol& protocol,
                           std::size_t bytes) {
  const auto known = leasts_.find({&algorithm, &protocol});
  const Least sent =
      known != leasts_.end()
          ? known->second
          : leasts_.emplace(std::pair(&algorithm, &protocol), least_of(algorithm, protocol))
                .first->second;
  const std::size_t grain = std::max<std::size_t>(1, plan::kCacheLine / size_of(options_.type));
  const std::size_t blocks = std::max(plan::input_blocks(shape()), plan::output_blocks(shape()));
  const std::size_t lines = bytes / size_of(options_.type) / blocks / grain / sent.pieces;
  const std::size_t lost = sent.lanes + 1;
  const auto elements = static_cast<double>(lines > lost ? (lines - lost) * grain : 0);
  return std::max(least(protocol, bytes), protocol.base_us + sent.element_us * elements);
}

}  // namespace tutti::planner
