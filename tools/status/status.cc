// tutti status: what the ranks on this host do, and which rank the others wait for.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "tools/command.h"
#include "tools/status/json.h"
#include "tools/status/merge.h"
#include "tools/status/metrics.h"
#include "tools/status/trace.h"
#include "tools/status/waiting.h"

namespace tutti::tools {
namespace {

using exec::flight::Seen;
struct StatusOptions {
  std::vector<std::string> only;  // Process ids and names of jobs; empty: all.
  double stuck_s = 10;
  bool watch = false, json = false, calls = false;
  std::string trace, metrics, save;  // Files to write; empty: none.
  std::vector<std::string> merge;    // Files to read instead of looking at processes.
};

double seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

std::string cut(const std::string& text, std::size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 3) + "...";
}

/// The ranks that cost the others most, as many as a screen has room for.
std::string slow_text(const CommStatus& comm) {
  constexpr std::size_t kMost = 4;
  std::vector<std::pair<int, Lateness>> slow(comm.lateness.begin(), comm.lateness.end());
  std::erase_if(slow, [](const auto& one) { return one.second.share < 0.01; });
  if (slow.empty()) return "";
  std::ranges::sort(slow, std::greater(), [](const auto& one) { return one.second.share; });
  slow.resize(std::min(slow.size(), kMost));
  std::string text = fmt::format("  late to {} timed calls:\n", comm.compared);
  for (const auto& [rank, late] : slow)
    text += fmt::format(
        "  rank {:>4} came last to {:>3.0f} %, {:.3f} ms late (p99 {:.3f} ms): {:.0f} % of the "
        "time "
        "lost\n",
        rank, 100. * static_cast<double>(late.last) / static_cast<double>(comm.compared),
        seconds(late.median_ns) * 1e3, seconds(late.percentile_99) * 1e3, 100. * late.share);
  return text;
}

/// "rank 0 waits for 1, which waits for 2": chains of more than two ranks.
std::string chain_text(const CommStatus& comm) {
  constexpr std::size_t kMost = 8;
  if (comm.chain.size() < 3) return "";
  const std::size_t named = std::min(comm.chain.size(), kMost);
  return fmt::format("  chain of waits: {}{}\n",
                     fmt::join(comm.chain.begin(),
                               comm.chain.begin() + static_cast<std::ptrdiff_t>(named), " -> "),
                     named < comm.chain.size() ? " -> ..." : "");
}

/// How a call ended, or what it is at: "ok", "timeout", "running"; on a device "launched".
std::string_view call_state(const Seen& seen) {
  if (!seen.running()) return exec::flight::outcome_name(seen.state);
  switch (seen.state.at) {
    case exec::flight::At::kLaunched: return "launched";
    case exec::flight::At::kOnDevice: return "next";
    case exec::flight::At::kBegun: return seen.state.awaited < 0 ? "begun" : "waits";
    default: return exec::flight::outcome_name(seen.state);
  }
}

/// "0.213 ms"; of a device's call, which ended before the host saw it, "< 93.1 ms".
std::string took_text(const Seen& seen) {
  if (seen.begin_ns == 0 || seen.end_ns == 0) return "";
  const double ms = seconds(seen.end_ns - seen.begin_ns) * 1e3;
  return seen.end_after_ns == 0 ? fmt::format("{:.3f} ms", ms) : fmt::format("< {:.1f} ms", ms);
}

/// The latest calls of a rank, as many as a screen has room for.
std::string calls_text(const RankStatus& rank) {
  constexpr std::ptrdiff_t kMost = 8;
  const std::vector<Seen>& all = rank.found->track.entries;
  std::string text;
  for (auto at = all.end() - std::min<std::ptrdiff_t>(kMost, std::ssize(all)); at != all.end();
       ++at) {
    text += fmt::format("      {:>10}  {:<36}  {:<8} {:>10}  {}\n",
                        at->message() ? "message" : std::to_string(at->call),
                        cut(exec::flight::describe(*at), 36), call_state(*at), took_text(*at),
                        cut(at->plan, 24));
  }
  return text;
}

/// "node1", "node1 and node2", "node1 and 7 others".
std::string hosts_text(const CommStatus& comm) {
  std::set<std::string> hosts;
  for (const auto& [number, rank] : comm.by_rank) hosts.insert(rank.found->track.host);
  std::string text = cut(*hosts.begin(), 24);
  if (hosts.size() == 2) text += " and " + cut(*hosts.rbegin(), 24);
  if (hosts.size() > 2) text += fmt::format(" and {} others", hosts.size() - 1);
  return text;
}

std::string comm_text(const CommStatus& comm, std::int64_t now_ns, bool calls) {
  const exec::flight::SeenTrack& track = comm.any().track;
  std::string text =
      fmt::format("{}{} {} on {} by {}{}, joined {:.1f} s ago\n",
                  track.job.empty() ? "" : fmt::format("job {}: ", cut(track.job, 24)), comm.ranks,
                  comm.ranks == 1 ? "rank" : "ranks", hosts_text(comm), track.transport,
                  track.devices ? " (for devices)" : "", seconds(now_ns - track.made_ns));
  text += fmt::format("  {:>4} {:>7} {:<10} {:>8}  {:<36} {}\n", "rank", "pid", "program", "call",
                      "which is", "state");
  for (const auto& [number, rank] : comm.by_rank) {
    text += fmt::format(
        "  {:>4} {:>7} {:<10} {:>8}  {:<36} {}\n", number, rank.found->pid,
        cut(rank.found->program.empty() ? rank.found->track.host : rank.found->program, 10),
        rank.last_call == nullptr ? 0 : rank.last_call->call, cut(last_text(rank), 36),
        state_text(rank, now_ns));
    if (calls) text += calls_text(rank);
  }
  const int away = comm.ranks - static_cast<int>(comm.by_rank.size());
  if (away > 0)
    text += fmt::format("  {} more {} on other hosts, or ended\n", away, away == 1 ? "is" : "are");
  if (!comm.blame.empty()) text += fmt::format("  {};\n  {}\n", comm.blame, comm.waits);
  text += chain_text(comm);
  return text + slow_text(comm);
}

Status write_files(const StatusOptions& options, const Found& found,
                   const std::vector<CommStatus>& comms) {
  const auto write = [](const std::string& path, auto&& text_of) {
    return path.empty() ? ok() : write_text(path, text_of());
  };
  TUTTI_RETURN_IF_ERROR(write(options.trace, [&] { return trace_of(comms, found.now.ns); }));
  TUTTI_RETURN_IF_ERROR(write(options.metrics, [&] { return metrics_of(comms, found.now.ns); }));
  return write(options.save, [&] { return save(comms); });
}

/// The exit code.
Result<int> show(const StatusOptions& options) {
  Found found;
  if (options.merge.empty()) {
    found = find_tracks("/proc");
  } else {
    TUTTI_TRY(found, merge(options.merge));
  }
  std::vector<CommStatus> comms = find_waiting(found);
  keep_wanted(comms, options.only);
  std::string text;
  auto json = Json::array();
  bool stuck = false;
  for (const CommStatus& comm : comms) {
    stuck = stuck || (comm.blocker >= 0 && seconds(comm.waited_ns) > options.stuck_s);
    if (options.json)
      json.push_back(to_json(comm, found.now.ns, options.calls));
    else
      text += (text.empty() ? "" : "\n") + comm_text(comm, found.now.ns, options.calls);
  }
  if (options.json) text = json.text({.indent = 2}) + "\n";
  TUTTI_RETURN_IF_ERROR(write_files(options, found, comms));
  // What goes to standard output goes there alone.
  if (options.metrics == "-" || options.save == "-" || options.trace == "-") return stuck ? 1 : 0;
  if (options.watch) put_output("\x1b[H\x1b[2J");
  put_output(text);
  if (comms.empty() && !options.json) {
    const bool hidden = found.hidden > 0 && geteuid() != 0;
    say("no rank {}here{}\n", options.only.empty() ? "" : "of that name ",
        hidden ? "; those of other users are seen by root alone" : "");
  }
  if (comms.empty() && !options.only.empty()) return kUsage;
  return stuck ? 1 : 0;
}

int status(const StatusOptions& options) {
  if (options.watch && options.json) {
    say_error("tutti status: --watch is for people, --json for programs: give one of them\n");
    return kUsage;
  }
  auto code = [&]() -> Result<int> {
    TUTTI_RETURN_IF_ERROR(check_outputs(
        {{"--trace", options.trace}, {"--metrics", options.metrics}, {"--save", options.save}}));
    return show(options);
  }();
  while (code && options.watch && output_failure() == 0) {
    flush_output();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    code = show(options);
  }
  if (code) return *code;
  say_error("tutti status: {}\n", code.error().what);
  return kUsage;
}

}  // namespace

void define_status(const perf::Command& app, int& exit_code) {
  const auto command = app.add_subcommand(
      "status", "Show what the ranks on this host do, and which rank the others wait for");
  auto options = std::make_shared<StatusOptions>();
  command.add_option("only", options->only, "Process ids of ranks, or names of jobs; none: all")
      .type_name("PID|JOB");
  command
      .add_option("--stuck", options->stuck_s,
                  "The exit code is 1 if a rank waits for longer (default 10)")
      .type_name("SECONDS")
      .check(perf::range(0., 1e6));
  command.add_flag("--calls", options->calls, "Also the latest calls of each rank; JSON: all");
  command.add_flag("--watch", options->watch, "Again every second, until interrupted");
  command.add_flag("--json", options->json, "As JSON, for programs");
  command.add_option("--trace", options->trace, "Write the latest calls as a trace for Perfetto")
      .type_name("FILE");
  command.add_option("--metrics", options->metrics, "Write counters of all ranks, for Prometheus")
      .type_name("FILE");
  command.add_option("--save", options->save, "Write all that was found, for --merge")
      .type_name("FILE");
  command
      .add_option("--merge", options->merge,
                  "Read what --save wrote on several hosts, or TUTTI_FLIGHT's files")
      .type_name("FILE...");
  command.footer(
      "Examples:\n"
      "  tutti status                   all jobs of this user on this host\n"
      "  tutti status demo --watch      the jobs that TUTTI_JOB calls demo\n"
      "  tutti status 4711 --calls      the communicators of a process, and their latest calls\n"
      "  tutti status --trace calls.json   then open it in ui.perfetto.dev or chrome://tracing\n"
      "  tutti status --save a.json     on each host, then: tutti status --merge a.json b.json\n"
      "  tutti status --stuck 60 || ... for scripts: 0 nobody waits that long, 1 a rank does,\n"
      "                                 2 no such process or job");
  command.callback([options, &exit_code] { exit_code = status(*options); });
}

}  // namespace tutti::tools
