// tutti report: a machine as one page of HTML, to be sent to a colleague, or served with what runs
// on it.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <ctime>
#include <filesystem>

#include "base/folder.h"
#include "base/input.h"
#include "base/json.h"
#include "perf/sweep/svg.h"
#include "tools/progress.h"
#include "tools/report/live.h"
#include "tools/report/page.h"
#include "tools/report/said.h"
#include "tools/status/json.h"
#include "tools/topo/topo.h"
#include "topology/render/render.h"

namespace tutti::tools {
namespace {

struct Report {
  GraphSource source;
  std::string output = "machine.html";
  std::vector<std::string> sweeps;
  int ranks = 0;
  bool live = false;
  int port = 0;                   // For `live`; 0: any that is free.
  std::vector<std::string> only;  // Process ids and names of jobs that `live` shows; empty: all.
};

constexpr std::array<std::size_t, 5> kSizes{8, 64 << 10, 1 << 20, 16 << 20, 256 << 20};
constexpr std::size_t kDrawn = 64 << 20;  // Bytes of the call whose course is drawn.

std::vector<std::string> with_source(std::vector<std::string> words, const GraphSource& source) {
  if (!source.model.empty()) words.insert(words.end(), {"--model", source.model});
  if (!source.from.empty()) words.insert(words.end(), {"--from", source.from});
  return words;
}

/// The line of a command that failed, without the name of the command before it.
std::string reason(const Said& said) {
  const std::string line = said.errors.substr(0, said.errors.find('\n'));
  const auto colon = line.find(": ");
  return colon == std::string::npos ? line : line.substr(colon + 2);
}

Json parsed(const Said& said) { return Json::parse(said.output).value_or(nullptr); }

std::string title_of(const GraphSource& source) {
  if (!source.model.empty()) return source.model;
  if (!source.from.empty()) return source.from.substr(source.from.rfind('/') + 1);
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

Result<topology::Findings> findings_of(const Report& options) {
  TUTTI_TRY(const Said said, said_by(with_source({"topo", "check", "--json"}, options.source)));
  const Json list = parsed(said);
  if (!list.is_array()) return Error{Code::kSystem, "tutti topo check: " + reason(said)};
  topology::Findings findings;
  for (const Json& one : list) {
    topology::Finding finding;
    const std::string severity = one.value("severity", "note");
    finding.severity = severity == "error"     ? topology::Severity::kError
                       : severity == "warning" ? topology::Severity::kWarning
                                               : topology::Severity::kNote;
    finding.where = one.value("where", "");
    finding.what = one.value("what", "");
    finding.evidence = one.value("evidence", "");
    finding.remedy = one.value("remedy", "");
    finding.loss = one.value("loss", 0.0);
    findings.push_back(std::move(finding));
  }
  return findings;
}

Status add_bounds(const Report& options, Page& page) {
  TUTTI_TRY(const Said said, said_by(with_source({"topo", "bound", "--json"}, options.source)));
  const Json list = parsed(said);
  if (!list.is_array()) {
    page.no_bounds = "There is none: " + reason(said);
    return ok();
  }
  for (const Json& one : list)
    page.bounds.push_back({one.value("collective", ""), one.value("cut", ""),
                           one.value("algbw", 0.0), one.value("busbw", 0.0),
                           one.value("exact", false)});
  return ok();
}

std::vector<std::string> question(const Report& options, std::size_t bytes) {
  std::vector<std::string> words{"explain", "all_reduce", "--bytes", std::to_string(bytes)};
  if (options.ranks > 0) words.insert(words.end(), {"--ranks", std::to_string(options.ranks)});
  return with_source(std::move(words), options.source);
}

Status add_choices(const Report& options, Page& page) {
  for (const std::size_t bytes : kSizes) {
    std::vector<std::string> words = question(options, bytes);
    words.emplace_back("--json");
    TUTTI_TRY(const Said said, said_by(words));
    const Json answer = parsed(said);
    if (!answer.is_object() || !answer.contains("candidates") || answer["candidates"].empty()) {
      page.no_choices = "There are none: " + reason(said);
      return ok();
    }
    const Json& first = answer["candidates"][0];
    std::string way = first.value("algorithm", "");
    if (first.contains("protocol")) way += " over " + first.value("protocol", "");
    if (first.value("lanes", 1) > 1) way += fmt::format(" in {} lanes", first.value("lanes", 1));
    page.choices.push_back({bytes, way, first.value("us", 0.0), answer.value("bound_us", 0.0)});
  }
  return ok();
}

/// The course of one call, drawn; none if explain draws none.
Status add_timeline(const Report& options, Page& page) {
  TUTTI_TRY(const std::string folder, make_temporary_folder("tutti-report"));
  const std::filesystem::path file = std::filesystem::path(folder) / "timeline.svg";
  std::vector<std::string> words = question(options, kDrawn);
  words.insert(words.end(), {"--svg", file.string()});
  auto said = said_by(words);
  if (auto drawn = read_whole(file.string())) page.timeline = *std::move(drawn);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return said ? ok() : Status(std::move(said.error()));
}

/// Reads members, and remembers whether one was of another type than its default.
struct Members {
  bool odd = false;

  template <class Value>
  auto operator()(const Json& from, const char* name, Value otherwise) {
    const Json* found = from.find(name);
    const Json wanted = otherwise;
    odd = odd || !from.is_object() ||
          (found != nullptr &&
           (found->is_number() != wanted.is_number() || found->is_string() != wanted.is_string() ||
            found->is_boolean() != wanted.is_boolean()));
    return from.value(name, otherwise);
  }
};

/// A sweep as `-J` of the perf commands writes it.
Result<Sweep> sweep_of(const Json& all, const std::string& path) {
  Members read;
  perf::Curve apart{"out of place", {}}, in_place{"in place", {}}, bound{"bound", {}, true};
  for (const Json& line : all["results"]) {
    const double bytes = read(line, "bytes", 0.0), bound_us = read(line, "bound_us", 0.0);
    const auto add = [&](perf::Curve& curve, const char* which) {
      const Json* timing = line.find(which);
      if (timing == nullptr) return std::pair{0.0, 0.0};
      const double us = read(*timing, "time_us", 0.0), bus = read(*timing, "busbw_gbps", 0.0);
      if (bytes > 0 && us > 0) curve.points.push_back({bytes, us, bus});
      return std::pair{us, bus};
    };
    const auto [us, bus] = add(apart, "out_of_place");
    add(in_place, "in_place");
    if (bytes > 0 && bound_us > 0) bound.points.push_back({bytes, bound_us, bus * us / bound_us});
  }
  if (apart.points.empty()) return invalid("--sweep {}: it has no times", path);
  std::vector<perf::Curve> curves{std::move(apart)};
  if (!in_place.points.empty()) curves.push_back(std::move(in_place));
  if (!bound.points.empty()) curves.push_back(std::move(bound));
  const std::string title =
      fmt::format("{}, {} ranks, {}", read(all, "collective", "?"), read(all, "ranks", 0),
                  read(all, "registered", false) ? "buffers that peers can map" : "plain buffers");
  const std::string command = read(all, "command", "");
  if (read.odd)
    return invalid("--sweep {}: its results are not such as all_reduce_perf -J FILE writes", path);
  return Sweep{perf::chart(title, curves, false), path, command};
}

Result<Sweep> read_sweep(const std::string& path) {
  const auto text = read_whole(path);
  if (!text) return invalid("--sweep {}", text.error().what);
  const Json all = Json::parse(*text).value_or(nullptr);
  if (!all["results"].is_array())
    return invalid("--sweep {}: no results are in it; all_reduce_perf -J FILE writes some", path);
  return sweep_of(all, path);
}

/// What the machine is, without what runs on it.
Result<std::string> make_page(const Report& options) {
  if (options.source.from == "-") return invalid("--from -: it is read several times; give a file");
  Page page;
  page.live = options.live;
  for (const std::string& path : options.sweeps) {
    TUTTI_TRY(Sweep sweep, read_sweep(path));
    page.sweeps.push_back(std::move(sweep));
  }
  const auto step = [](std::size_t number, std::string_view what) {
    show_progress(number, 6, what);
  };
  step(0, "the machine");
  TUTTI_TRY(const auto machine, load(options.source));
  const std::string title = title_of(options.source);
  page.title = "Machine report: " + title;
  const std::time_t now = std::time(nullptr);
  page.facts = {{"written", fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(now))},
                {"by", "tutti " TUTTI_VERSION},
                {"of", options.source.model.empty()
                           ? options.source.from.empty() ? "this machine" : options.source.from
                           : "the model " + options.source.model}};
  page.picture = topology::to_svg(machine.graph, title);
  step(1, "what is wrong");
  TUTTI_TRY(page.findings, findings_of(options));
  step(2, "bounds");
  TUTTI_RETURN_IF_ERROR(add_bounds(options, page));
  step(3, "choices");
  TUTTI_RETURN_IF_ERROR(add_choices(options, page));
  step(4, "the course of a call");
  TUTTI_RETURN_IF_ERROR(add_timeline(options, page));
  step(5, "versions and settings");
  TUTTI_TRY(const Said about, said_by({"info"}));
  page.about = about.output;
  clear_progress();
  return to_html(page, machine.graph);
}

/// What the ranks of this host do now, as live.js reads it.
std::string status_now(const std::vector<std::string>& only) {
  const Found found = find_tracks("/proc");
  std::vector<CommStatus> comms = find_waiting(found);
  keep_wanted(comms, only);
  Json all{{"at_ns", found.now.ns}, {"communicators", Json::array()}};
  for (const CommStatus& comm : comms)
    all["communicators"].push_back(to_json(comm, found.now.ns, false));
  // Names of programs and jobs may be anything.
  return all.text({.ascii = true});
}

Result<int> serve(const Report& options) {
  TUTTI_TRY(const std::string html, make_page(options));
  const LiveParts parts{html, [&] { return status_now(options.only); }};
  TUTTI_RETURN_IF_ERROR(serve_live(parts, options.port, [](const std::string& address) {
    say("{}\nOpen it in a browser of this host. Ctrl-C ends it.\n", address);
    flush_output();
  }));
  say("\n");  // Behind the terminal's ^C.
  return 0;
}

Result<int> report(const Report& options) {
  if (options.live) return serve(options);
  TUTTI_RETURN_IF_ERROR(check_outputs({{"--output", options.output}}));
  TUTTI_TRY(const std::string html, make_page(options));
  TUTTI_RETURN_IF_ERROR(write_text(options.output, html));
  if (options.output != "-")
    say("{}: {} KiB; open it in a browser, or send it\n", options.output, html.size() / 1024);
  return 0;
}

}  // namespace

void define_report(const perf::Command& app, int& exit_code) {
  auto options = std::make_shared<Report>();
  const auto command =
      app.add_subcommand("report", "A machine as one page of HTML, to be sent to a colleague");
  const auto output = command.add_option("-o,--output", options->output, "The page (machine.html)");
  output.type_name("FILE");
  add_source_options(command, options->source);
  command.add_option("--ranks", options->ranks, "So many ranks choose; default: all GPUs, or CPUs")
      .check(perf::range(1, 4096));
  command
      .add_option("--sweep", options->sweeps,
                  "What a sweep measured: all_reduce_perf --bound -J FILE; again for each file")
      .type_name("FILE");
  const auto live = command.add_flag("--live", options->live,
                                     "Serve the page on 127.0.0.1, with what the ranks here do");
  live.excludes(output);
  command.add_option("--port", options->port, "Port of --live; default: any that is free")
      .check(perf::range(0, 65535))
      .needs(live);
  command.add_option("--only", options->only, "Show only these processes or jobs; again for each")
      .type_name("PID|JOB")
      .needs(live);
  command.footer(
      "The page has a picture that answers to the pointer (what a link carries and who says so; "
      "the\n"
      "best path between two boxes), what is wrong and what to do about it, bounds, the "
      "algorithms\n"
      "that are chosen, sweeps, versions and settings. It loads nothing from anywhere.\n"
      "Examples:\n  tutti report\n  tutti report --from sick.tar.gz -o sick.html\n"
      "  all_reduce_perf --ranks 2 --bound -J sweep.json && tutti report --sweep sweep.json\n"
      "  tutti report --live            which rank waits for which, and rates\n"
      "  tutti report --live --port 8080   then on your machine: ssh -L 8080:127.0.0.1:8080 HOST");
  command.callback([options, &exit_code] { exit_code = exit_code_of(report(*options), "report"); });
}

}  // namespace tutti::tools
