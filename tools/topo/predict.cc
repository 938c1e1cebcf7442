// tutti topo predict: what this library's kernels should reach on machines with GPUs, beside what
// NCCL was measured to do there or, where nobody published that, what its own cost model says.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/json.h"
#include "cuda/comm/graph_costs.h"
#include "kernels/cuda/messages.h"
#include "perf/command_line/command_line.h"
#include "plan/builder.h"
#include "plan/passes/passes.h"
#include "tools/progress.h"
#include "tools/simulate/options.h"
#include "tools/simulate/simulate.h"
#include "tools/topo/device_choices.h"
#include "tools/topo/kernel_shape_text.h"
#include "tools/topo/topo.h"
#include "tools/words.h"
#include "topology/capture/machines.h"
#include "topology/graph/words.h"

namespace tutti::tools {
namespace {

struct Predict {
  std::vector<std::string> machines = {"hgx-h100", "dgx-a100", "pcie-4"};
  std::vector<std::string> collectives;
  std::string sizes = "8,1K,64K,1M,16M,256M";
  int lanes = 0;
  std::size_t slot_bytes = 0;
  int slots = 0;
  bool shape = false;
  bool json = false;
};

/// How long NCCL takes, and the source.
struct Nccl {
  double us = 0;
  std::string_view source;
};

/// Kernels on multicast memory have no slots: what comes first goes on first.
constexpr std::size_t kTile = std::size_t{16} << 10;

struct PublishedRow {
  std::string_view machine;
  Collective collective;
  std::size_t bytes;
  Nccl nccl;
};
constexpr PublishedRow kPublished[] = {
#define NCCL_ROW(machine, collective, bytes, us, source) \
  {machine, Collective::collective, bytes, {us, source}},
#include "tools/topo/nccl_published.def"
#undef NCCL_ROW
};

/// What NCCL's algorithms take by its own cost model (planner/machine_cost.h).
Result<Nccl> nccl_by_model(Collective collective, planner::Simulator& simulator,
                           std::size_t bytes) {
  std::vector<const planner::Protocol*> protocols;
  for (const planner::Protocol& one : planner::protocols()) protocols.push_back(&one);
  std::optional<double> best;
  for (const Algorithm* algorithm : simulator.candidates()) {
    const bool by_switch = algorithm->name == "two_shot";
    const bool sends = algorithm->name == "direct" && collective == Collective::kAllToAll;
    if (algorithm->name != "ring" && algorithm->name != "double_tree" && !sends && !by_switch)
      continue;
    const planner::Protocol* const nvls[] = {planner::find_protocol("nvls")};
    if (by_switch && !simulator.may_use(*nvls[0])) continue;
    const auto sample = by_switch ? simulator.run(*algorithm, nvls, bytes)
                                  : simulator.run(*algorithm, protocols, bytes);
    if (sample) best = std::min(best.value_or(sample->microseconds), sample->microseconds);
  }
  if (!best)
    return topology::invalid("--collective: nothing is known of NCCL's {}", to_string(collective));
  return Nccl{*best, "model"};
}

Result<Nccl> nccl_of(const std::string& machine, Collective collective,
                     planner::Simulator& simulator, std::size_t bytes) {
  for (const PublishedRow& row : kPublished) {
    if (row.machine == machine && row.collective == collective && row.bytes == bytes)
      return row.nccl;
  }
  return nccl_by_model(collective, simulator, bytes);
}

struct Prediction {
  std::size_t bytes = 0;
  TimedChoice plain;
  std::optional<TimedChoice> registered;
  std::optional<double> multicast_us;  // Registered memory.
  Nccl nccl;
};

constexpr std::string_view kMessages = "send_recv";

/// Each rank sends to the next and gets from the one before. The kernel has as many blocks for the
/// one as for the other (kernels/cuda/messages.h); here twice as many lanes do both, with half the
/// slots, which comes to the same.
plan::Plan message_plan(int ranks) {
  plan::Plan plan;
  plan.name = kMessages;
  plan.shape = {Collective::kBroadcast, ranks};
  plan.pieces = 1;
  for (int rank = 0; rank < ranks; ++rank) {
    plan::Builder builder(plan.shape, 1);
    builder.move(0, builder.input(0), builder.to((rank + 1) % ranks, Form::kResult));
    builder.move(0, builder.from((rank + ranks - 1) % ranks, Form::kResult), builder.output(0));
    plan.ranks.push_back(std::move(builder).finish());
  }
  return plan;
}

Result<std::vector<Prediction>> predict_messages(const planner::DeviceMachine& machine,
                                                 std::span<const std::size_t> sizes) {
  const plan::Plan once = message_plan(static_cast<int>(machine.device_of.size()));
  planner::SimulateOptions options;
  options.collective = Collective::kBroadcast;
  planner::Simulator nccl(machine.graph->graph, machine.graph->devices, options);
  options.slot_bytes = machine.slot_bytes;
  options.slots = std::max(1, machine.slots / 2);
  planner::Simulator ours(machine.graph->graph, machine.graph->devices, options);
  Settings settings;
  settings.lanes = static_cast<int>(machine.lanes);
  const std::uint32_t one_way =
      communicator_shape(machine.graph->graph, settings).message_blocks / 2;
  std::vector<Prediction> rows;
  for (const std::size_t bytes : sizes) {
    Prediction& row = rows.emplace_back();
    row.bytes = bytes;
    const std::uint32_t lanes =
        2 * std::min(cuda::message_lanes(bytes, machine.slot_bytes, machine.lanes), one_way);
    const auto us = [&](planner::Simulator& simulator, std::uint32_t times, const char* protocol) {
      return simulator.microseconds(plan::replicate(once, times), *planner::find_protocol(protocol),
                                    bytes);
    };
    row.plain = {.algorithm = kMessages, .us = us(ours, lanes, "slots")};
    constexpr std::uint32_t kNcclLanes = 8;
    row.nccl = {std::min(us(nccl, kNcclLanes, "simple"), us(nccl, kNcclLanes, "ll")), "model"};
  }
  return rows;
}

/// All sizes of one collective on one machine.
Result<std::vector<Prediction>> predict(const std::string& name,
                                        const planner::DeviceMachine& machine,
                                        Collective collective, std::span<const std::size_t> sizes) {
  const planner::Protocol& multimem = *planner::find_protocol("multimem");
  const plan::Mapped mapped = planner::device_maps(collective, machine);
  TUTTI_TRY(auto plain, DeviceChooser::create(machine, {.collective = collective}));
  TUTTI_TRY(auto registered,
            DeviceChooser::create(machine, {.collective = collective, .mapped = mapped}));
  planner::SimulateOptions options;  // NCCL's slots.
  options.collective = collective;
  options.contract = Contract::kRelaxed;
  planner::Simulator nccl(machine.graph->graph, machine.graph->devices, options);
  options.slot_bytes = kTile;
  options.channels = options.most_lanes = machine.lanes;
  planner::Simulator multicast(machine.graph->graph, machine.graph->devices, options);
  const Algorithm* joined =
      find_algorithm(collective, collective == Collective::kAllReduce ? "two_shot" : "direct");
  std::vector<Prediction> rows;
  for (const std::size_t bytes : sizes) {
    Prediction& row = rows.emplace_back();
    row.bytes = bytes;
    TUTTI_TRY(row.plain, plain.choose(bytes));
    TUTTI_TRY(row.registered, registered.choose(bytes));
    if (joined != nullptr && multicast.may_use(multimem)) {
      TUTTI_TRY(const auto sample, multicast.run(*joined, multimem, bytes));
      row.multicast_us = sample.microseconds;
    }
    TUTTI_TRY(row.nccl, nccl_of(name, collective, nccl, bytes));
  }
  return rows;
}

Result<std::vector<Prediction>> predicted(const std::string& name,
                                          const planner::DeviceMachine& machine,
                                          const std::string& word,
                                          std::span<const std::size_t> sizes) {
  if (word == kMessages) return predict_messages(machine, sizes);
  TUTTI_TRY(const Collective collective, collective_named(word));
  return predict(name, machine, collective, sizes);
}

constexpr char kRow[] = "{:>5} {:>7} {:<6} {:>7} {:>4} {:<19} {:>7} {:>4} {:<19} {:>7} {:>4}\n";

std::string ratio(const Prediction& row, double us) {
  return fmt::format("{:.2f}", row.nccl.us / us);
}

std::string row_text(const Prediction& row) {
  const std::optional<TimedChoice>& mapped = row.registered;
  return fmt::format(kRow, size_text(row.bytes), time_text(row.nccl.us), row.nccl.source,
                     time_text(row.plain.us), ratio(row, row.plain.us), name_of(row.plain),
                     mapped ? time_text(mapped->us) : "-", mapped ? ratio(row, mapped->us) : "-",
                     mapped ? name_of(*mapped) : "",
                     row.multicast_us ? time_text(*row.multicast_us) : "-",
                     row.multicast_us ? ratio(row, *row.multicast_us) : "-");
}

Json row_json(const std::string& machine, const std::string& collective, const Prediction& row) {
  Json entry{{"machine", machine},
             {"collective", collective},
             {"bytes", row.bytes},
             {"nccl_us", row.nccl.us},
             {"nccl_from", std::string(row.nccl.source)},
             {"plain_us", row.plain.us},
             {"plain", std::string(row.plain.algorithm)},
             {"plain_slots", cuda::to_string(row.plain.format)}};
  if (row.registered) {
    entry["mapped_us"] = row.registered->us;
    entry["mapped"] = std::string(row.registered->algorithm);
    entry["mapped_slots"] = cuda::to_string(row.registered->format);
  }
  if (row.multicast_us) entry["multicast_us"] = *row.multicast_us;
  return entry;
}

Result<planner::DeviceMachine> machine_of(const std::string& name, const Predict& options) {
  TUTTI_TRY(const auto read, topology::load_machine(name));
  auto machine = device_machine(read.graph);
  if (!machine) return topology::invalid("{}: {}", name, machine.error().what);
  if (options.lanes > 0) machine->lanes = static_cast<std::uint32_t>(options.lanes);
  if (options.slot_bytes > 0) machine->slot_bytes = options.slot_bytes;
  if (options.slots > 0) machine->slots = options.slots;
  machine->flagged = planner::flagged_rings(*machine);
  return *std::move(machine);
}

Result<int> predict(Predict options) {
  if (options.shape) {
    print_kernel_shape(options.json);
    return 0;
  }
  TUTTI_TRY(const auto sizes, sizes_named(options.sizes));
  if (options.collectives.empty())
    options.collectives = {"all_reduce", "reduce_scatter", "all_gather",
                           "broadcast",  "all_to_all",     std::string(kMessages)};
  auto rows = Json::array();
  for (const std::string& name : options.machines) {
    TUTTI_TRY(const auto machine, machine_of(name, options));
    for (const std::string& word : options.collectives) {
      TUTTI_TRY(const auto found, predicted(name, machine, word, sizes));
      for (const Prediction& row : found) rows.push_back(row_json(name, word, row));
      if (options.json) continue;
      say("{}, {} GPUs, {}: microseconds; x: times as fast as NCCL; *: packed slots; "
          "+: lines\n\n",
          name.substr(name.rfind('/') + 1), machine.device_of.size(), word);
      say(kRow, "bytes", "NCCL", "from", "plain", "x", "", "mapped", "x", "", "multi.", "x");
      for (const Prediction& row : found) say("{}", row_text(row));
      say("\n");
    }
  }
  if (options.json) say("{}\n", rows.text({.indent = 2}));
  return 0;
}

}  // namespace

void define_topo_predict(const perf::Command& app, int& exit_code) {
  auto options = std::make_shared<Predict>();
  const auto command = app.add_subcommand(
      "predict", "What kernels should reach on machines with GPUs, beside NCCL's curves");
  perf::offer(perf::add_shown(command, "MACHINES", options->machines, "Files or models of one host")
                  .type_name("FILE|MODEL"),
              model_words());
  std::vector<std::string> collectives = collective_words();
  collectives.emplace_back(kMessages);
  perf::offer(command
                  .add_option("--collective", options->collectives,
                              "Which, also send_recv: each to the next; default: six")
                  .delimiter(','),
              collectives);
  command.add_option("--sizes", options->sizes, "Message sizes, as 8,64K,1G").capture_default_str();
  command
      .add_option("--lanes", options->lanes,
                  "Lanes of a communicator; default: 16, and 32 from Hopper on")
      .check(perf::range(1, 64));
  command.add_option("--slot-bytes", options->slot_bytes, "Bytes of a slot; default: 64 KiB")
      .as_size_value()
      .check(perf::range(std::size_t{1} << 10, std::size_t{1} << 30));
  command.add_option("--slots", options->slots, "Slots of a ring; default: 4")
      .check(perf::range(1, 64));
  command.add_flag("--shape", options->shape,
                   "Instead: the kernels' lanes, slots and tiles, with the evidence for each");
  command.add_flag("--json", options->json, "For programs");
  command.footer(
      "No links between GPUs have been measured: figures of kernels are those of\n"
      "planner/kernel_phases.h.\n"
      "NCCL's are published runs, or its cost model where there are none (\"model\").\n"
      "plain: any buffers; mapped: registered memory; multi.: NVLink SHARP, sums in any order.\n"
      "x: how many times as fast as NCCL; *: over packed slots; +: over lines.\n\nExamples:\n"
      "  tutti topo predict\n"
      "  tutti topo predict hgx-h100 --collective all_reduce --sizes 8,64K,1M,256M\n"
      "  tutti topo predict hgx-h100 --lanes 32 --slot-bytes 128K\n"
      "  tutti topo predict --shape");
  command.callback([options, &exit_code] { exit_code = exit_code_of(predict(*options)); });
}

}  // namespace tutti::tools
