// tutti topo choices: what communicators of devices choose on machines, beside the fastest there.
#include <fmt/format.h>

#include "base/json.h"
#include "perf/command_line/command_line.h"
#include "tools/progress.h"
#include "tools/simulate/options.h"
#include "tools/simulate/simulate.h"
#include "tools/topo/device_choices.h"
#include "tools/topo/topo.h"
#include "tools/words.h"
#include "topology/capture/machines.h"
#include "topology/graph/words.h"
#include "topology/models/model.h"

namespace tutti::tools {
namespace {

struct Choices {
  std::vector<std::string> machines;
  std::string sizes = "8,64K,4M,1G", collective = "all_reduce", contract = "deterministic";
  double most = 1.1;
  bool json = false;
};

/// The last part of a path, in at most 24 characters.
std::string machine_text(const std::string& name) {
  const std::string last = name.substr(name.rfind('/') + 1);
  return last.size() <= 24 ? last : last.substr(0, 22) + "..";
}

constexpr char kRow[] = "{:<24} {:>5}  {:<19} {:>7}  {:<19} {:>9} {:>6}\n";

std::string row_of(const std::string& machine, const DeviceChoice& choice) {
  return fmt::format(kRow, machine_text(machine), size_text(choice.bytes), name_of(choice.chosen),
                     time_text(choice.chosen.us), name_of(choice.best), time_text(choice.best.us),
                     fmt::format("{:.2f}", choice.ratio()));
}

Json json_of(const TimedChoice& choice) {
  return {{"algorithm", std::string(choice.algorithm)},
          {"eager", choice.eager},
          {"slots", cuda::to_string(choice.format)},
          {"lanes", choice.lanes},
          {"orders", choice.orders},
          {"us", choice.us}};
}

Json json_of(const std::string& machine, const DeviceChoice& choice) {
  return {{"machine", machine},
          {"bytes", choice.bytes},
          {"chosen", json_of(choice.chosen)},
          {"best", json_of(choice.best)},
          {"estimate_us", choice.estimate_us},
          {"ratio", choice.ratio()}};
}

/// What is known once all machines have been looked at, and as they are.
class Report {
 public:
  explicit Report(bool json) : json_(json) {
    if (!json_) say(kRow, "machine", "bytes", "runtime's choice", "us", "fastest", "us", "ratio");
  }

  void leave_out(const std::string& name, const std::string& why) {
    // Errors of readers begin with the file.
    notes_ += wrapped(
        fmt::format("not compared: {}{}", why.starts_with(name) ? "" : name + ": ", why), 2);
    left_out_.push_back({{"machine", name}, {"why", why}});
  }

  void add(const std::string& name, const std::vector<DeviceChoice>& choices) {
    for (const DeviceChoice& choice : choices) {
      if (!json_) say("{}", row_of(name, choice));
      rows_.push_back(json_of(name, choice));
      if (choice.ratio() <= worst_) continue;
      worst_ = choice.ratio();
      where_ = fmt::format("{}, {}", machine_text(name), size_text(choice.bytes));
    }
  }

  /// The worst ratio; 0: no machine was compared.
  double finish() const {
    const Json all{{"rows", rows_}, {"not_compared", left_out_}, {"worst_ratio", worst_}};
    if (json_)
      say("{}\n", all.text({.indent = 2}));
    else if (worst_ > 0)
      say("\n{}worst ratio: {:.2f} ({})\n", notes_, worst_, where_);
    else
      say("\n{}", notes_);
    return worst_;
  }

 private:
  const bool json_;
  Json rows_ = Json::array(), left_out_ = rows_;
  std::string notes_, where_;
  double worst_ = 0;
};

Result<int> choices(Choices options) {
  TUTTI_TRY(const auto sizes, sizes_named(options.sizes));
  ChoiceOf what;
  TUTTI_TRY(what.collective, collective_named(options.collective));
  TUTTI_TRY(what.contract, contract_named(options.contract));
  if (options.machines.empty()) {
    for (const topology::Model* model : topology::models())
      options.machines.emplace_back(model->name);
  }
  Report report(options.json);
  bool unreadable = false;
  for (std::size_t i = 0; i < options.machines.size(); ++i) {
    const std::string& name = options.machines[i];
    show_progress(i, options.machines.size(), name);
    const auto read = topology::load_machine(name);
    const auto machine =
        read ? device_machine(read->graph) : Result<planner::DeviceMachine>(read.error());
    unreadable = unreadable || !read;
    if (!machine) {
      report.leave_out(name, machine.error().what);
      continue;
    }
    TUTTI_TRY(const auto found, compare_choices(*machine, sizes, what));
    clear_progress();
    report.add(name, found);
  }
  clear_progress();
  return report.finish() > options.most || unreadable ? 1 : 0;
}

}  // namespace

void define_topo_choices(const perf::Command& app, int& exit_code) {
  auto options = std::make_shared<Choices>();
  const auto command = app.add_subcommand(
      "choices", "What communicators of devices choose on machines, and the fastest there");
  perf::offer(
      command.add_option("MACHINES", options->machines, "Files or models; default: all models")
          .type_name("FILE|MODEL"),
      model_words());
  perf::offer(
      perf::add_shown(command, "--collective", options->collective, "Which; the root is rank 0"),
      collective_words());
  perf::offer(perf::add_shown(command, "--contract", options->contract, "deterministic or relaxed"),
              contract_words());
  command.add_option("--sizes", options->sizes, "Bytes of the message").capture_default_str();
  command.add_option("--most", options->most, "The largest ratio with exit code 0")
      .capture_default_str();
  command.add_flag("--json", options->json, "As JSON");
  command.footer(
      "A collective of float32 between all GPUs of a host. Both choices are timed by the\n"
      "simulator, out of what kernels of devices can run: plans over slots; the one-shot kernel "
      "of\n"
      "the eager path, up to 4 KiB a lane between up to 8 GPUs. *: over packed slots; +: over\n"
      "lines of 128 bytes.\n"
      "Exit code: 1 if a ratio is above --most, or a file can't be read.\n"
      "Examples:\n  tutti topo choices\n  tutti topo choices dgx1-v100 topo.xml --sizes 64K,16M\n"
      "  tutti topo choices --collective broadcast --contract relaxed");
  command.callback([options, &exit_code] { exit_code = exit_code_of(choices(*options)); });
}

}  // namespace tutti::tools
