#include "tools/simulate/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/nearest.h"
#include "perf/command_line/command_line.h"
#include "perf/sweep/options.h"
#include "tools/words.h"
#include "topology/graph/words.h"
#include "topology/join/repeat.h"

namespace tutti::tools {
namespace {

constexpr std::size_t kMostRows = 1000;
constexpr int kMostSimulatedRanks = 16384;
constexpr double kMostBytes = 1e15;

/// "8", "8,64K", "8:16G" or "8:16G:4": one, some, or from the first by a factor up to the last.
Result<std::vector<double>> parse_range(const std::string& option, const std::string& text,
                                        double factor, double most) {
  const auto wrong = [&] {
    const bool ranks = option == "--ranks";
    return topology::invalid(
        "{}: '{}' is no range; try {}", option, text,
        ranks ? "8 or 8:1024 or 8:1024:4 or 8,64" : "64K or 8:16G or 8:16G:4 or 8,64K");
  };
  const char separator = text.find(':') == std::string::npos ? ',' : ':';
  std::vector<double> parts;
  for (const std::string_view part : topology::split(text, separator)) {
    const auto value = perf::parse_size(std::string(part));
    if (!value) return wrong();
    if (*value < 1 || static_cast<double>(*value) > most)
      return topology::invalid("{}: {} is not from 1 to {:.0f}", option, part, most);
    parts.push_back(static_cast<double>(*value));
  }
  if (separator == ',') return parts;
  if (parts.size() > 3) return wrong();
  if (parts.size() == 3) factor = parts[2];
  if (factor < 2 || parts[1] < parts[0]) return wrong();
  std::vector<double> range;
  for (double value = parts[0]; value <= parts[1]; value *= factor) range.push_back(value);
  return range;
}

}  // namespace

Result<Contract> contract_named(const std::string& name) {
  if (name == "deterministic") return Contract::kDeterministic;
  if (name == "relaxed") return Contract::kRelaxed;
  return topology::invalid("--contract: '{}' is neither deterministic nor relaxed", name);
}

Result<Collective> collective_named(const std::string& name) {
  if (const auto found = parse_collective(name)) return *found;
  return topology::invalid("{}", unknown_collective(name));
}

Result<const Algorithm*> algorithm_named(Collective collective, const std::string& name) {
  if (const Algorithm* found = find_algorithm(collective, name)) return found;
  std::vector<std::string_view> known;
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->collective == collective) known.push_back(algorithm->name);
  }
  const std::string what = fmt::format("{} algorithm", to_string(collective));
  return topology::invalid("--algorithm: {}", unknown_of(what, name, known));
}

Result<SimulateJob> understand(const SimulateWords& words) {
  SimulateJob job;
  TUTTI_TRY(job.simulate.collective, collective_named(words.collective));
  const auto type = perf::parse_type(words.type);
  if (!type) {
    const auto known = type_words();
    return topology::invalid(
        "--type: {}", perf::unknown_type(words.type, fmt::format("{}", fmt::join(known, ", "))));
  }
  job.simulate.type = *type;
  TUTTI_TRY(job.simulate.contract, contract_named(words.contract));
  job.simulate.root = words.root;
  for (const std::string& name : words.algorithms) {
    TUTTI_TRY(const Algorithm* found, algorithm_named(job.simulate.collective, name));
    job.algorithms.push_back(found);
  }
  for (const std::string& name : words.protocols) {
    const planner::Protocol* found = planner::find_protocol(name);
    if (found == nullptr) {
      const auto all = protocol_words();
      const std::vector<std::string_view> known(all.begin(), all.end());
      return topology::invalid("--protocol: {}", unknown_of("protocol", name, known));
    }
    job.protocols.push_back(found);
  }
  if (job.protocols.empty()) {
    for (const planner::Protocol& protocol : planner::protocols())
      job.protocols.push_back(&protocol);
  }
  TUTTI_TRY(job.bytes, parse_range("--bytes", words.bytes, 4, kMostBytes));
  for (const double bytes : job.bytes) {
    if (static_cast<std::size_t>(bytes) % size_of(*type) != 0)
      return topology::invalid("--bytes: {:.0f} bytes are no whole number of {}, of {} bytes each",
                               bytes, words.type, size_of(*type));
  }
  if (!words.ranks.empty()) {
    TUTTI_TRY(job.ranks, parse_range("--ranks", words.ranks, 2, kMostSimulatedRanks));
  }
  if (job.bytes.size() * std::max<std::size_t>(1, job.ranks.size()) > kMostRows)
    return topology::invalid("--bytes and --ranks make {} rows; choose at most {}",
                             job.bytes.size() * job.ranks.size(), kMostRows);
  return job;
}

Result<RankedMachine> machine_for(const GraphSource& source, int ranks, int root) {
  TUTTI_TRY(auto machine, load(source));
  const auto has = static_cast<int>(topology::default_endpoints(machine.graph).size());
  if (ranks > has) {
    const bool is_file = source.model.empty();
    const bool sized = is_file ? machine.graph.all(topology::NodeKind::kHost).size() > 1
                               : source.model.find(':') != std::string::npos;
    if (has == 0 || sized)
      return topology::invalid(
          "--ranks {}: the machine has {}; choose fewer{}", ranks, has,
          is_file ? ", or a file of one host, which grows" : ", or leave out the model's size");
    const int times = (ranks + has - 1) / has;
    if (is_file) {
      TUTTI_TRY(machine.graph, topology::repeated(machine.graph, times));
    } else {
      GraphSource larger = source;
      larger.model += fmt::format(":{}", times);
      TUTTI_TRY(machine, load(larger));
    }
  }
  RankedMachine ranked{std::move(machine.graph), {}};
  ranked.ranks = topology::default_endpoints(ranked.graph);
  if (ranks > 0) ranked.ranks.resize(static_cast<std::size_t>(ranks));
  if (ranked.ranks.size() < 2)
    return topology::invalid("{} rank{}: a collective needs at least 2", ranked.ranks.size(),
                             ranked.ranks.size() == 1 ? "" : "s");
  if (root < 0 || static_cast<std::size_t>(root) >= ranked.ranks.size())
    return topology::invalid("--root {}: there are ranks 0 to {}", root, ranked.ranks.size() - 1);
  return ranked;
}

std::string name_of(const GraphSource& source) {
  return !source.model.empty() ? source.model : !source.from.empty() ? source.from : "this machine";
}

std::string name_of(const GraphSource& source, const topology::Graph& graph) {
  const bool says = !source.model.empty() || !graph.all(topology::NodeKind::kGpu).empty();
  return name_of(source) + (says ? "" : " (no GPU: ranks on its NUMA nodes)");
}

void add_simulate_options(const perf::Command& command, SimulateWords& words) {
  perf::offer(perf::add_shown(command, "COLLECTIVE", words.collective, collective_names()),
              collective_words());
  add_source_options(command, words.source);
  perf::offer(command.add_option("--algorithm", words.algorithms, "Only these").delimiter(','),
              algorithm_words());
  perf::offer(
      command
          .add_option("--protocol", words.protocols, "Only these of " + planner::protocol_names())
          .delimiter(','),
      protocol_words());
  perf::offer(perf::add_shown(command, "--contract", words.contract, "deterministic or relaxed"),
              contract_words());
  perf::offer(perf::add_shown(command, "--type", words.type, "Data type: float32, bf16, ..."),
              type_words());
  command.add_option("--root", words.root, "Root of those that have one").capture_default_str();
}

}  // namespace tutti::tools
