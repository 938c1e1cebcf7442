// tutti explain without a model or a file: ranks on this machine, or those that a launcher started,
// on as many hosts as it has, as the library itself chooses for them, from the same settings and
// tuning tables.
#include <fmt/format.h>

#include <algorithm>

#include "base/cpus.h"
#include "base/json.h"
#include "base/output.h"
#include "comm/state.h"
#include "plan/names.h"
#include "plan/text/text.h"
#include "planner/explain.h"
#include "tools/explain/explain.h"
#include "tools/simulate/options.h"
#include "tools/simulate/simulate.h"
#include "transport/region.h"
#include "tutti/detail/wire_codec.h"

namespace tutti::tools {
namespace {

constexpr int kMostEstimatedRanks = 256;  // On one host; more would take long to estimate.
constexpr std::string_view kTransport = "shared_memory";

/// About ranks on this machine.
struct Question {
  planner::SimulateOptions what;
  std::size_t bytes;
  int ranks;
  const Shown& shown;
  Wire wire = {};  // As TUTTI_WIRE says.
};

std::string where(const planner::PlannerInputs& inputs) {
  const std::size_t hosts = planner::ranks_on(inputs.hosts.of).size();
  return hosts == 0 ? "this machine" : fmt::format("{} hosts", hosts);
}

std::string title(const Question& question, const planner::PlannerInputs& inputs) {
  return fmt::format(
      "{} of {} of {}{} between {} ranks on {}, {} usable CPU{}, {} buffers, contract {}",
      to_string(question.what.collective), amount_text(question.bytes),
      to_string(question.what.type),
      question.wire.is_plain() ? "" : " as " + to_string(question.wire), question.ranks,
      where(inputs), inputs.usable_cpus, inputs.usable_cpus == 1 ? "" : "s",
      question.shown.mapped ? "mapped" : "plain", plan::to_string(question.what.contract));
}

std::string to_json(const Question& question, const planner::PlannerInputs& inputs,
                    const planner::CallExplanation& explanation) {
  Json json{{"collective", std::string(to_string(question.what.collective))},
            {"machine", where(inputs)},
            {"ranks", question.ranks},
            {"usable_cpus", inputs.usable_cpus},
            {"bytes", question.bytes},
            {"type", std::string(to_string(question.what.type))},
            {"mapped", question.shown.mapped},
            {"bound_us", explanation.bound_us},
            {"bound", explanation.bound_words}};
  auto& ways = json["candidates"] = Json::array();
  for (const planner::ExplainedWay& way : explanation.ways) {
    const planner::Candidate& candidate = way.candidate;
    Json entry{{"algorithm", std::string(candidate.name())},
               {"lanes", candidate.lanes},
               {"refused", !candidate.refused.empty()}};
    if (candidate.refused.empty()) entry["evidence"] = std::string(to_string(candidate.evidence));
    if (candidate.microseconds > 0) entry["us"] = candidate.microseconds;
    if (!way.why.empty()) entry["why"] = way.why;
    ways.push_back(std::move(entry));
  }
  json["chosen"] = std::string(explanation.ways.front().candidate.name());
  if (!explanation.links_from.empty()) json["links_from"] = explanation.links_from;
  if (!explanation.weights_words.empty()) json["weights"] = explanation.weights_words;
  json["to_be_faster"] = explanation.to_be_faster;
  return json.text({.indent = 2}) + "\n";
}

Status draw(const Question& question, const planner::Request& request,
            const planner::PlannerInputs& inputs, const planner::Candidate& taken,
            double bound_us) {
  if (taken.eager)
    return invalid("--svg: an eager call has no plan to draw; each rank writes once and reads all");
  plan::Recording recording;
  const auto us = planner::simulate_us(*taken.algorithm, request, inputs, &recording);
  if (!us) return invalid("--svg: the plan has too many steps; choose fewer ranks");
  TUTTI_TRY(const auto* made,
            planner::prepare(planner::recipe_of(*taken.algorithm, request, inputs, 1)));
  const double factor = planner::bus_factor(question.what.collective, question.ranks);
  return write_text(
      question.shown.svg,
      to_svg({.title = title(question, inputs),
              .words = fmt::format(
                  "{}: {} us by estimate, bus bandwidth {} GB/s", taken.name(), time_text(*us),
                  rate_text(static_cast<double>(question.bytes) / *us * 1e-3 * factor)),
              .plan = made->plan,
              .recording = recording,
              .start_us = 0,
              .bound_us = bound_us}));
}

Status print_plan(const Question& question, const planner::Request& request,
                  const planner::PlannerInputs& inputs, const planner::Candidate& taken) {
  if (question.shown.rank >= question.ranks)
    return invalid("--rank {}: there are ranks 0 to {}", question.shown.rank, question.ranks - 1);
  if (taken.eager)
    return invalid("--plan: an eager call has no plan; each rank writes once and reads all");
  TUTTI_TRY(const auto* made,
            planner::prepare(planner::recipe_of(*taken.algorithm, request, inputs, taken.lanes)));
  say("\n{}", question.shown.rank < 0 ? plan::to_text(made->plan)
                                      : plan::to_text(made->plan, Rank{question.shown.rank}));
  return ok();
}

Status answer(Question question, const PlanSelector& selector) {
  const planner::PlannerInputs& inputs = selector.inputs();
  if (question.shown.mapped && !planner::some_share_memory(inputs.hosts.of))
    return invalid("--mapped: no two of these ranks share a host");
  const planner::SimulateOptions& what = question.what;
  const bool takes_wire =
      what.collective == Collective::kAllReduce && what.type == DataType::kFloat32;
  if (takes_wire) question.wire = selector.settings().wire;
  planner::Request request{.shape = selector.shape_of(what.collective, what.root, what.contract),
                           .bytes = question.bytes,
                           .mapped = question.shown.mapped,
                           .contract = what.contract,
                           .wire = question.wire};
  if (!question.wire.is_plain()) {  // Peers' buffers are not accessed.
    request.bytes = kernels::encoded_bytes(question.wire.format, request.bytes / sizeof(float));
    request.mapped = false;
  }
  TUTTI_TRY(const auto explanation, planner::explain(request, inputs));
  const planner::Candidate& taken = explanation.ways.front().candidate;
  if (!taken.eager)  // Proves what is called chosen, as a communicator does before it runs it.
    TUTTI_RETURN_IF_ERROR(
        planner::prepare(planner::recipe_of(*taken.algorithm, request, inputs, taken.lanes)));
  if (question.shown.json)
    say("{}", to_json(question, inputs, explanation));
  else
    say("{}", planner::to_text(explanation, request, title(question, inputs)));
  if (question.shown.plan || question.shown.rank >= 0)
    TUTTI_RETURN_IF_ERROR(print_plan(question, request, inputs, taken));
  if (question.shown.svg.empty()) return ok();
  return draw(question, request, inputs, taken, explanation.bound_us);
}

Status check_ranks(const Question& question) {
  if (question.ranks < 2 || question.ranks > kMostEstimatedRanks)
    return invalid("--ranks {}: choose 2 to {}", question.ranks, kMostEstimatedRanks);
  if (question.what.root < 0 || question.what.root >= question.ranks)
    return invalid("--root {}: there are ranks 0 to {}", question.what.root, question.ranks - 1);
  return ok();
}

/// One of the ranks that a launcher started: they meet, and rank 0 answers.
Status explain_launched(Question question, const LaunchInfo& launch, const Settings& settings) {
  if (question.ranks != 0 && question.ranks != launch.rank_count) {
    return invalid("--ranks: {} says how many there are, {}; leave it out", launch.launcher,
                   launch.rank_count);
  }
  question.ranks = launch.rank_count;
  TUTTI_RETURN_IF_ERROR(check_ranks(question));
  TUTTI_TRY(const auto rendezvous, launch_rendezvous(launch, Deadline::after(settings.timeout)));
  TUTTI_TRY(auto comm, Communicator::create(*rendezvous, launch.rank, launch.rank_count, settings));
  Status answered = ok();
  if (launch.rank.value == 0) answered = answer(question, *Insides::of(comm).selector);
  TUTTI_RETURN_IF_ERROR(comm.barrier());  // A rank that leaves earlier is reported as missing.
  return answered;
}

}  // namespace

Status explain_host(const planner::SimulateOptions& what, std::size_t bytes, int ranks,
                    const Shown& shown) {
  Question question{what, bytes, ranks, shown};
  TUTTI_TRY(auto settings, Settings::from_environment());
  settings.contract = question.what.contract;
  settings.trace.clear();  // The file may have the trace of the job that is asked about.
  TUTTI_TRY(const auto launch, detect_launch());
  if (launch.rank_count > 1) return explain_launched(question, launch, settings);
  const int cpus = usable_cpus();
  if (question.ranks == 0) question.ranks = std::max(2, cpus);
  TUTTI_RETURN_IF_ERROR(check_ranks(question));
  TUTTI_TRY(auto tuning, find_tuning(settings));
  TUTTI_TRY(auto plans, planner::PlanFiles::load(settings.plan, settings.contract));
  PlanSelector selector(settings, std::make_shared<const planner::PlanFiles>(std::move(plans)),
                        question.ranks, cpus, std::make_shared<const Tuning>(std::move(tuning)),
                        std::string(kTransport), {});
  RegionConfig config = Region::default_config(question.ranks);
  TUTTI_TRY(config.lanes, planner::lanes_needed(question.ranks, settings, selector.inputs()));
  selector.set(config);
  return answer(question, selector);
}

}  // namespace tutti::tools
