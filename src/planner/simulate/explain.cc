#include "planner/simulate/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/times_text.h"
#include "planner/machine_trees.h"
#include "topology/graph/words.h"

namespace tutti::planner {
namespace {

constexpr double kAlike = 0.005;    // Two times differ by less: no reason to prefer one.
constexpr double kWorthIt = 0.01;   // Share of a time saved: worth another contract.
constexpr double kMore = 1.05;      // Times as many bytes: worth a word.
constexpr double kNearBound = 0.9;  // The bound's share of a time: no algorithm gains much.
constexpr double kBusy = 0.8;       // Share of the time: a resource holds a plan up.

std::string us_text(double us) {
  return us < 10     ? fmt::format("{:.2f} us", us)
         : us < 1000 ? fmt::format("{:.1f} us", us)
         : us < 1e6  ? fmt::format("{:.2f} ms", us * 1e-3)
                     : fmt::format("{:.2f} s", us * 1e-6);
}

// The terms of a time. While the busiest resource works, latency is hidden, so what it works
// is never counted as latency.
struct Parts {
  double start = 0, latency = 0, rest = 0;
  explicit Parts(const Sample& sample) : start(sample.protocol->base_us) {
    const double moving = sample.microseconds - start;
    const double busiest = sample.busy.empty() ? 0 : sample.busy[0].us;
    rest = std::min(moving, std::max(moving - sample.latency_us, busiest));
    latency = moving - rest;
  }
};

std::string messages_text(std::size_t messages) {
  return fmt::format("{} message{} in a row", messages, messages == 1 ? "" : "s");
}

// Behind by what bytes need: more of them, or links that wait.
std::string behind_in_bytes(const Sample& sample, const Sample& best) {
  if (sample.busy.empty()) return "waits more";
  const Busy& top = sample.busy[0];
  const double share = sample.bottleneck_share();
  const auto same = std::find_if(best.busy.begin(), best.busy.end(),
                                 [&](const Busy& other) { return other.kind == top.kind; });
  if (same == best.busy.end() && share >= kBusy / 2)
    return fmt::format("goes over {}, {:.0f} % busy; the best does not", top.name, 100 * share);
  // The same bytes keep a link busy for longer where a protocol sends more than data.
  const double bytes = same == best.busy.end() ? 0
                                               : top.us * sample.protocol->efficiency /
                                                     (same->us * best.protocol->efficiency);
  if (bytes >= kMore && share >= kBusy / 2)
    return fmt::format("{} {}x the bytes {} {}, {:.0f} % busy",
                       top.kind == "memory" ? "moves" : "sends", times_text(bytes),
                       top.kind == "memory" ? "in" : "over", top.name, 100 * share);
  if (sample.protocol->efficiency < best.protocol->efficiency)
    return fmt::format("{} gets {:.0f} % of a link's rate to data", sample.protocol->name,
                       100 * sample.protocol->efficiency);
  return fmt::format("links wait: {} is busy for {:.0f} % of the time", top.name, 100 * share);
}

std::string behind(const Sample& sample, const Sample& best) {
  if (sample.microseconds <= best.microseconds * (1 + kAlike)) return "as fast as the best";
  const Parts own(sample), other(best);
  const double start = own.start - other.start, latency = own.latency - other.latency,
               rest = own.rest - other.rest;
  if (latency >= start && latency >= rest)
    return fmt::format("latency: {}, {} not hidden (best: {}, {})", messages_text(sample.messages),
                       us_text(own.latency), best.messages, us_text(other.latency));
  if (start >= rest)
    return fmt::format("{} takes {} to start, {} {}", sample.protocol->name, us_text(own.start),
                       best.protocol->name, us_text(other.start));
  return behind_in_bytes(sample, best);
}

// The fastest of some protocols, whatever the contract; none of them: no sample.
Contender contender(Simulator& simulator, const Algorithm& algorithm,
                    std::span<const Protocol* const> protocols, std::size_t bytes) {
  auto sample = simulator.run(algorithm, protocols, bytes, Contract::kRelaxed);
  if (!sample) return {&algorithm, std::nullopt, true, std::move(sample.error().what)};
  return {&algorithm, *std::move(sample), false, {}};
}

std::string does_not_apply(const plan::Shape& shape) {
  const auto& groups = shape.groups.sizes;
  return fmt::format(
      "does not apply to {} ranks{}{}{}", shape.rank_count,
      groups.empty() ? "" : fmt::format(" in groups of {}", groups.front()),
      shape.weights.empty() ? " with links that are alike" : "",
      shape.rank_count > kMostPacked ? fmt::format(" (trees: up to {})", kMostPacked) : "");
}

class Explainer {
 public:
  Explainer(Simulator& simulator, std::span<const Protocol* const> protocols, std::size_t bytes)
      : simulator_(simulator), bytes_(bytes) {
    for (const Protocol* protocol : protocols) {
      if (!simulator.machine().has(*protocol)) continue;
      has_.push_back(protocol);
      (simulator.may_use(*protocol) ? usable_ : forbidden_).push_back(protocol);
    }
  }

  void add(const Algorithm& algorithm) {
    const auto shapes = simulator_.shapes_of(algorithm);
    if (shapes.empty()) {
      refused_.push_back({&algorithm, std::nullopt, true, does_not_apply(simulator_.shape())});
      return;
    }
    if (simulator_.options().contract == Contract::kDeterministic &&
        algorithm.contract(*shapes[0]) == Contract::kRelaxed) {
      refuse(contender(simulator_, algorithm, has_, bytes_),
             "its results are not canonical (relaxed)");
      return;
    }
    double own = std::numeric_limits<double>::infinity();
    if (!usable_.empty()) {
      auto made = contender(simulator_, algorithm, usable_, bytes_);
      if (made.sample) own = made.sample->microseconds;
      (made.sample ? chosen_ : refused_).push_back(std::move(made));
    }
    if (forbidden_.empty()) return;
    // A second line only if it says something: that it would be faster.
    auto joined = contender(simulator_, algorithm, forbidden_, bytes_);
    if (joined.sample && joined.sample->microseconds < own)
      refuse(std::move(joined), "switches add up in an order of their own (relaxed)");
  }

  Result<Explanation> finish() {
    if (chosen_.empty()) return nothing();
    const auto faster = [](const Contender& a, const Contender& b) {
      const double never = 1e300;
      return (a.sample ? a.sample->microseconds : never) <
             (b.sample ? b.sample->microseconds : never);
    };
    std::stable_sort(chosen_.begin(), chosen_.end(), faster);
    std::stable_sort(refused_.begin(), refused_.end(), faster);
    for (std::size_t i = 1; i < chosen_.size(); ++i)
      chosen_[i].why = behind(*chosen_[i].sample, *chosen_[0].sample);
    Explanation all;
    all.bound_joins = std::any_of(usable_.begin(), usable_.end(),
                                  [](const Protocol* at) { return at->joins_in_switch; });
    const auto bound = simulator_.bound_us(bytes_, all.bound_joins);
    const auto words = simulator_.bound_words(all.bound_joins);
    if (bound) all.bound_us = *bound;
    all.bound_words = words ? *words : words.error().what;
    all.assumed = simulator_.machine().assumed();
    all.consists_of = consists_of(*chosen_[0].sample);
    all.to_be_faster = to_be_faster(*chosen_[0].sample, all.bound_us);
    all.contenders = std::move(chosen_);
    all.contenders.insert(all.contenders.end(), refused_.begin(), refused_.end());
    return all;
  }

 private:
  void refuse(Contender made, const char* why) {
    made.refused = true;
    if (made.sample) made.why = why;
    refused_.push_back(std::move(made));
  }

  Error nothing() const {
    if (usable_.empty()) {
      return {Code::kInvalidArgument,
              "explain: the machine has none of these protocols, or the contract forbids them; "
              "there are " +
                  protocol_names()};
    }
    if (refused_.empty())
      return {Code::kUnsupported, "explain: there is no algorithm for this collective"};
    return topology::invalid("explain: nothing may be chosen: {}: {}", refused_[0].algorithm->name,
                             refused_[0].why);
  }

  static std::string consists_of(const Sample& best) {
    const Parts parts(best);
    std::string text = fmt::format("{} of starting up, {} of latency ({}), {} of moving bytes",
                                   us_text(parts.start), us_text(parts.latency),
                                   messages_text(best.messages), us_text(parts.rest));
    if (!best.busy.empty())
      text += fmt::format("; busiest: {}, {:.0f} % of the time", best.busy[0].name,
                          100 * best.bottleneck_share());
    return text;
  }

  std::string to_be_faster(const Sample& best, double bound_us) const {
    std::string text;
    if (!refused_.empty() && refused_[0].sample &&
        refused_[0].sample->microseconds < best.microseconds * (1 - kWorthIt)) {
      const Sample& other = *refused_[0].sample;
      text = fmt::format("The relaxed contract would allow {} over {}: {}, {} times as fast. ",
                         other.algorithm->name, other.protocol->name, us_text(other.microseconds),
                         times_text(best.microseconds / other.microseconds));
    }
    const Parts parts(best);
    const double waits = (parts.start + parts.latency) / best.microseconds;
    if (bound_us >= kNearBound * best.microseconds)
      return text + fmt::format(
                        "No algorithm can be more than {:.1f} % faster: the cut would have "
                        "to be wider.",
                        100 * (best.microseconds / bound_us - 1));
    if (waits >= 0.5)
      return text + fmt::format(
                        "{:.0f} % of the time is starting up and latency: larger or fewer "
                        "calls, or hops that cost less.",
                        100 * waits);
    if (best.busy.empty()) return text;
    const Busy& top = best.busy[0];
    if (best.bottleneck_share() < kBusy)
      return text + fmt::format(
                        "Links wait: even {} is idle for {:.0f} % of the time; more lanes, "
                        "or tiles that fill the pipeline sooner.",
                        top.name, 100 * (1 - best.bottleneck_share()));
    if (bound_us <= 0) return text + fmt::format("{} would have to carry less.", top.name);
    const double times = top.us * best.protocol->efficiency / bound_us;
    if (times >= kMore)
      return text + fmt::format(
                        "{} carries {} times what the bound needs: an algorithm that "
                        "sends less over it.",
                        top.name, times_text(times));
    if (best.protocol->efficiency < kNearBound)
      return text + fmt::format("{} gets {:.0f} % of {} to data: a protocol that gets more.",
                                best.protocol->name, 100 * best.protocol->efficiency, top.name);
    return text + fmt::format(
                      "{} carries no more than it has to: what is left is starting up, "
                      "latency and the ends of the pipeline.",
                      top.name);
  }

  Simulator& simulator_;
  const std::size_t bytes_;
  std::vector<const Protocol*> has_, usable_, forbidden_;
  std::vector<Contender> chosen_, refused_;
};

}  // namespace

Result<Explanation> explain(Simulator& simulator, std::span<const Algorithm* const> chosen,
                            std::span<const Protocol* const> chosen_protocols, std::size_t bytes) {
  std::vector<const Protocol*> with(chosen_protocols.begin(), chosen_protocols.end());
  if (with.empty()) {
    for (const Protocol& protocol : protocols()) with.push_back(&protocol);
  }
  Explainer explainer(simulator, with, bytes);
  for (const Algorithm* algorithm : chosen.empty() ? algorithms() : chosen) {
    if (algorithm->collective == simulator.options().collective) explainer.add(*algorithm);
  }
  return explainer.finish();
}

}  // namespace tutti::planner
