// tutti tune: measures which way is best here, and writes it down for programs to use.
#include "tools/tune/tune.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "algorithms/algorithm.h"
#include "base/cpus.h"
#include "base/output.h"
#include "base/settings/settings_table.h"
#include "comm/state.h"
#include "perf/command_line/command_line.h"
#include "perf/sweep/options.h"
#include "perf/sweep/ranks.h"
#include "planner/weights.h"
#include "tools/command.h"
#include "tools/progress.h"
#include "tools/simulate/options.h"
#include "tools/tune/changes.h"
#include "tools/words.h"

namespace tutti::tools {
namespace {

struct TuneCommand {
  std::vector<int> ranks;
  std::vector<std::string> collectives;
  std::string output, most = "4M";
  bool quick = false, threads = false, force = false;
};

/// Says what went wrong.
int tune_exit_code(const Result<int>& code) {
  if (code) return *code;
  say_error("tutti tune: {}\n", code.error().to_string());
  return code.error().code == Code::kInvalidArgument ? kUsage : 1;
}

/// "packet to 4K", "one_shot to 64K", "two_shot".
std::vector<std::string> in_words(const std::vector<planner::Range>& ranges) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const std::string name = way_text(ranges[i].ways.front());
    const bool last = i + 1 == ranges.size();
    if (!last && way_text(ranges[i + 1].ways.front()) == name) continue;
    parts.push_back(name + (last ? "" : " to " + size_text(ranges[i].up_to)));
  }
  return parts;
}

/// A line for plain buffers and one for mapped ones, of each collective about which there are
/// `words`. Whether there was any.
template <class Words>
bool print_lines(const Words& words) {
  bool any = false;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    std::string_view name = to_string(collective);
    for (const bool mapped : {false, true}) {
      const std::vector<std::string> parts = words(collective, mapped);
      if (parts.empty()) continue;
      say("  {:<14} {:<6}  {}\n", name, mapped ? "mapped" : "plain", in_lines(parts, 25));
      name = "";
      any = true;
    }
  }
  return any;
}

void print(const planner::TuningTable& table, const std::vector<LinkFigure>& figures,
           const std::vector<int>& weights) {
  const planner::TuningKey& key = table.key;
  const std::vector<int>& hosts = key.hosts;
  say("{} ranks on {}{} CPUs, {}: adds at {:.1f} GB/s\n", key.rank_count,
      hosts.empty() ? "" : fmt::format("{} hosts, ", planner::ranks_on(hosts).size()),
      key.usable_cpus, key.transport, table.costs.reduce_gigabytes_per_second);
  for (const LinkFigure& figure : figures) {
    say("  {:<14} {:<23} {:>8.2f} us {:>8.3g} GB/s\n", figure.transport,
        "between " + figure.between, figure.cost.latency_us, figure.cost.gigabytes_per_second);
  }
  for (const planner::HostRate& rate : table.rates)
    say("  {:<14} {:<35} {:>8.3g} GB/s\n", "", rate.name, rate.gigabytes_per_second);
  if (!weights.empty()) say("  {:<14} {}\n", "weights", fmt::join(weights, ","));
  print_lines(
      [&](Collective collective, bool mapped) { return in_words(table.of(collective, mapped)); });
}

/// What the table changes, where the file has one for the same ranks.
void print_changes(const std::vector<planner::TuningTable>& tables,
                   const planner::TuningTable& table, const std::string& path) {
  const planner::TuningTable* const old = planner::find_table(tables, table.key);
  if (old == nullptr) {
    say("{} has no table for these ranks yet\n", path);
    return;
  }
  say("changes of {}:\n", path);
  const bool any = print_lines([&](Collective collective, bool mapped) {
    return changes(old->of(collective, mapped), table.of(collective, mapped));
  });
  if (!any) say("  none: all sizes keep their algorithms\n");
}

/// Ways are measured with the weights that users of the table will have. Those that are set stay.
Status tune_weighted(Communicator& comm, const std::vector<int>& weights,
                     const TuneOptions& options, const TuneProgress& progress,
                     planner::TuningTable& table, perf::Noise& noise) {
  Settings settings = Insides::of(comm).settings;
  if (weights.empty() || !settings.weights.empty())
    return tune_ways(comm, options, progress, table, noise);
  settings.weights = weights;
  TUTTI_TRY(auto state,
            make_state({comm.rank(), comm.rank_count(), settings}, exchange_over(comm)));
  Communicator weighted = Insides::made_of(std::move(state));
  return tune_ways(weighted, options, progress, table, noise);
}

/// Makes the folder of the default file. That of --output must exist, as it may be misspelt.
void make_folder_of(const std::string& path) {
  std::error_code ignored;  // check_outputs reports the error.
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
}

Status write(std::vector<planner::TuningTable> tables, planner::TuningTable table,
             const std::string& path) {
  planner::put_table(tables, std::move(table));
  if (tables.size() > planner::kMostTables) tables.erase(tables.begin());
  return write_file(path, planner::tuning_text(tables));
}

/// Rank 0 adds the table to the file. It writes none from a busy machine, unless `force`, because
/// all programs here follow it.
Result<int> tune_rank(Communicator& comm, const TuneOptions& options, const std::string& path,
                      bool force) {
  const bool first = comm.rank().value == 0;
  std::vector<LinkFigure> figures;
  perf::Noise noise;
  TUTTI_TRY(auto table, tune_links(comm, figures, noise));
  const std::vector<int> weights =
      planner::weights_for(planner::Hosts{table.key.hosts, table.network, table.rates});
  const auto progress = [&](std::size_t done, std::size_t all, Collective collective, bool mapped,
                            std::size_t bytes) {
    if (!first) return;
    show_progress(done, all,
                  fmt::format("{} ranks: {} {} {}", comm.rank_count(), to_string(collective),
                              mapped ? "mapped" : "plain", size_text(bytes)));
  };
  Status measured = tune_weighted(comm, weights, options, progress, table, noise);
  if (first) clear_progress();
  TUTTI_RETURN_IF_ERROR(std::move(measured));
  if (!first) return 0;
  print(table, figures, weights);
  std::vector<planner::TuningTable> tables;
  if (auto old = read_tuning_file(path)) tables = *std::move(old);  // Else it is written anew.
  print_changes(tables, table, path);
  const int ours = ranks_here(comm);  // They end now, but still count as running.
  const std::string load = perf::busy_now(ours), verdict = noise.verdict();
  if (const std::string busy = load + (load.empty() || verdict.empty() ? "" : ", and ") + verdict;
      !busy.empty()) {
    say_error("tutti tune: this machine was busy: {}; {}\n", busy,
              force ? "the table may be wrong, and is written as --force says"
                    : "nothing was written (--force writes)");
    if (!force) return 1;
  }
  TUTTI_RETURN_IF_ERROR(write(std::move(tables), std::move(table), path));
  say("written to {}\n", path);
  return 0;
}

/// Lanes for everything that may be measured, between hosts too if they are `launched`; no table.
void adjust(Settings& settings, int ranks, bool launched) {
  settings.tuning = "off";
  settings.contract = Contract::kRelaxed;
  settings.lanes = 0;
  settings.algorithm.clear();
  // A forced algorithm has the lanes that it needs; each call says its own.
  std::size_t most = 0;
  for (const Algorithm* algorithm : algorithms()) {
    const plan::Shape shape{algorithm->collective, ranks, 0};
    if (!algorithm->applies(shape)) continue;
    const std::size_t lanes = build(*algorithm, shape, Rank{0}).lanes.size();
    if (lanes <= most) continue;
    most = lanes;
    const std::size_t repeated = launched ? std::max<std::size_t>(1, kMostTunedLanes / lanes) : 1;
    settings.algorithm =
        fmt::format("{}={}:{}", to_string(algorithm->collective), algorithm->name, repeated);
  }
}

Result<TuneOptions> understand(const TuneCommand& command) {
  TuneOptions options;
  for (const std::string& name : command.collectives) {
    TUTTI_TRY(const Collective collective, collective_named(name));
    options.collectives.push_back(collective);
  }
  for (int i = 0; i < kCollectiveCount && command.collectives.empty(); ++i)
    options.collectives.push_back(static_cast<Collective>(i));
  const auto most = perf::parse_size(command.most);
  if (!most || *most < options.least_bytes || *most > (std::size_t{1} << 30))
    return invalid("--max-bytes: '{}' is no size from 64 to 1G", command.most);
  options.most_bytes = *most;
  if (command.quick) {
    options.rounds = 3;
    options.round_us = 200;
    options.factor = 16;
  }
  return options;
}

/// Before a measurement: whether it can be written, and the machine is quiet; else the measurement
/// would be useless, and takes long. The exit code, or 0 to go on.
Result<int> look_around(const TuneCommand& command, const std::string& path, int ranks_here) {
  if (path.empty())
    return invalid("neither XDG_CACHE_HOME nor HOME says where to write; use --output FILE");
  if (command.output.empty()) make_folder_of(path);
  TUTTI_RETURN_IF_ERROR(check_outputs({{"--output", path}}));
  const std::string busy = perf::busy_now(ranks_here);
  if (busy.empty()) return 0;
  say_error("tutti tune: this machine is busy: {}; stop the other work (--force goes on)\n", busy);
  return command.force ? 0 : 1;
}

Result<int> run_tune(const TuneCommand& command) {
  TUTTI_TRY(const TuneOptions options, understand(command));
  const std::string path = command.output.empty() ? default_tuning_file() : command.output;
  TUTTI_TRY(const auto launch, detect_launch());
  if (launch.rank.value == 0) {
    TUTTI_TRY(const int code, look_around(command, path, launch.local_rank_count));
    if (code != 0) return code;
  }
  // A process that a launcher started is one of the ranks; otherwise the ranks are started here.
  const bool launched = !launch.launcher.empty();
  std::vector<int> counts = command.ranks;
  if (counts.empty()) counts.push_back(launched ? launch.rank_count : std::max(2, usable_cpus()));
  for (const int ranks : counts) {
    perf::Options sweep;
    sweep.program = "tutti tune";
    if (command.threads)
      sweep.threads = ranks;
    else if (!launched || !command.ranks.empty())
      sweep.ranks = ranks;
    const int code = perf::run_ranks(
        sweep,
        [&](Communicator& comm) {
          return tune_exit_code(tune_rank(comm, options, path, command.force));
        },
        [&](Settings& settings) { adjust(settings, ranks, launched); });
    if (code != 0) return code;
  }
  return 0;
}

}  // namespace

void define_tune(const perf::Command& app, int& exit_code) {
  auto command = std::make_shared<TuneCommand>();
  const auto tune =
      app.add_subcommand("tune", "Measure which algorithm is best here, for programs to use");
  tune.add_option("-n,--ranks", command->ranks,
                  "Rank counts, one table for each; as many as there are CPUs if left out")
      .type_name("COUNT")
      .check(perf::range(2, 256).description(""));
  perf::offer(tune.add_option("--collective", command->collectives, "Only these").type_name("NAME"),
              collective_words());
  perf::add_shown(tune, "--max-bytes", command->most, "The largest message; larger ones go like it")
      .type_name("SIZE");
  tune.add_flag("--threads", command->threads, "Ranks are threads of one process");
  tune.add_flag("--quick", command->quick, "Fewer sizes and rounds: seconds, and less certain");
  tune.add_flag("--force", command->force, "Measure on a busy machine, too, and write the table");
  tune.add_option("-o,--output", command->output,
                  "Write the tables here; a file's other tables are kept")
      .type_name("FILE");
  tune.footer(
      "Ranks are processes on this host, or those of a launcher, on as many hosts as it has: then "
      "every\nrank runs this, and rank 0 writes the table. Tables go to tutti/tuning.json in "
      "$XDG_CACHE_HOME or\n~/.cache, where programs find them by themselves, or wherever "
      "TUTTI_TUNING says. A table holds for\nthese machines, this version, transport, number of "
      "ranks, hosts and CPUs; programs that have others\ngo on as if there were none. Leave the "
      "machines alone while they are measured: where other work\ndisturbs them, nothing is "
      "written.\n"
      "Examples:\n"
      "  tutti tune\n"
      "  tutti tune -n 2 4 8\n"
      "  tutti tune -n 4 --collective all_reduce --max-bytes 64M\n"
      "  tutti run --hosts node1:4,node2:4 -- tutti tune\n"
      "  tutti tune --output here.json && TUTTI_TUNING=here.json tutti run -n 2 -- ./program");
  tune.callback([command, &exit_code] { exit_code = tune_exit_code(run_tune(*command)); });
}

}  // namespace tutti::tools
