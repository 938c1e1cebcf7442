#include "plan/verify/wiring.h"

#include <fmt/format.h>

#include "plan/flat_map.h"

namespace tutti::plan {
namespace {

// Wires are found by key while they are counted; afterwards by the index that was left in
// LaneWiring.
void count(const Plan& plan, Wiring& wiring) {
  FlatMap index;
  for (std::uint32_t rank = 0; rank < plan.ranks.size(); ++rank) {
    auto& lanes = wiring.lanes.emplace_back();
    for (std::uint32_t lane = 0; lane < plan.ranks[rank].lanes.size(); ++lane) {
      lanes.push_back(numbered(
          plan.ranks[rank].lanes[lane], rank,
          [&](WireKind kind, std::uint32_t from, std::uint32_t to, bool is_send) {
            if (kind == WireKind::kMulticast) to = from;
            const std::uint64_t key = (std::uint64_t{static_cast<std::uint8_t>(kind)} << 60) |
                                      (std::uint64_t{lane} << 32) | (std::uint64_t{from} << 16) |
                                      to;
            const auto fresh = static_cast<std::uint32_t>(wiring.wires.size());
            const std::uint32_t found = index.find_or_insert(key, fresh);
            if (found == fresh) wiring.wires.push_back({kind, from, to, lane, 0, 0});
            if (is_send) ++wiring.wires[found].count;
            return found;
          }));
    }
  }
}

Error mismatch(const Plan& plan, const Wire& wire, std::uint32_t receiver, std::uint64_t received) {
  const char* what = wire.kind == WireKind::kSignals     ? "signal"
                     : wire.kind == WireKind::kMulticast ? "multicast slot"
                                                         : "slot";
  return {Code::kInvalidPlan,
          fmt::format(
              "plan {}: lane {}: rank {} sends {} {}{} to rank {}, which takes {}: every one sent "
              "has to be taken",
              plan.name, wire.lane, wire.from, wire.count, what, wire.count == 1 ? "" : "s",
              receiver, received)};
}

// Replaces the wires in LaneWiring by message numbers, and notes the ends.
class Numberer {
 public:
  Numberer(const Plan& plan, Wiring& wiring)
      : plan_(plan), wiring_(wiring), sent_(wiring.wires.size()), taken_(wiring.wires.size()) {}

  Status number() {
    std::uint32_t first = 0;
    for (std::uint32_t index = 0; index < wiring_.wires.size(); ++index) {
      Wire& wire = wiring_.wires[index];
      wire.first = first;
      first += wire.count;
      if (wire.kind == WireKind::kMulticast) multicasts_.push_back(index);
    }
    wiring_.messages.resize(first);
    for (std::uint32_t rank = 0; rank < plan_.ranks.size(); ++rank) {
      for (std::uint32_t lane = 0; lane < plan_.ranks[rank].lanes.size(); ++lane)
        number_lane(rank, lane);
      TUTTI_RETURN_IF_ERROR(finish_multicasts(rank));
    }
    for (std::size_t index = 0; index < wiring_.wires.size(); ++index) {
      const Wire& wire = wiring_.wires[index];
      if (wire.kind != WireKind::kMulticast && taken_[index] != wire.count)
        return mismatch(plan_, wire, wire.to, taken_[index]);
    }
    return ok();
  }

 private:
  void number_lane(std::uint32_t rank, std::uint32_t lane) {
    const Lane& steps = plan_.ranks[rank].lanes[lane];
    LaneWiring& wires = wiring_.lanes[rank][lane];
    for (std::uint32_t index = 0; index < steps.steps.size(); ++index) {
      const Step& step = steps.steps[index];
      if (step.kind != StepKind::kMove) {
        assign(wires.of_step[index], step.kind == StepKind::kSignal, {rank, lane, index});
        continue;
      }
      for (std::uint32_t at = step.first; at < step.end(); ++at) {
        if (wires.of_location[at] != kNoMessage)
          assign(wires.of_location[at], at >= step.first + step.source_count, {rank, lane, index});
      }
    }
  }

  void assign(std::uint32_t& wire_or_message, bool is_send, const End& end) {
    const std::uint32_t index = wire_or_message;
    const Wire& wire = wiring_.wires[index];
    const std::uint64_t position = is_send ? sent_[index]++ : taken_[index]++;
    // Taken, never sent: no message; the counts tell on it at the end.
    wire_or_message = position < wire.count ? wire.first + static_cast<std::uint32_t>(position) : 0;
    if (position >= wire.count) return;
    Message& message = wiring_.messages[wire_or_message];
    message.wire = index;
    (is_send ? message.sender : message.receiver) = end;
  }

  // Every rank reads each multicast ring from its start, so their counts are per reader.
  Status finish_multicasts(std::uint32_t rank) {
    for (const std::uint32_t index : multicasts_) {
      const Wire& wire = wiring_.wires[index];
      if (wire.from != rank && taken_[index] != wire.count)
        return mismatch(plan_, wire, rank, taken_[index]);
    }
    for (const std::uint32_t index : multicasts_) taken_[index] = 0;
    return ok();
  }

  const Plan& plan_;
  Wiring& wiring_;
  std::vector<std::uint64_t> sent_, taken_;
  std::vector<std::uint32_t> multicasts_;  // The multicast rings.
};

}  // namespace

Result<Wiring> wire(const Plan& plan) {
  Wiring wiring;
  count(plan, wiring);
  TUTTI_RETURN_IF_ERROR(Numberer(plan, wiring).number());
  return wiring;
}

}  // namespace tutti::plan
