// tutti topo check and diff: what is wrong with a machine, and what two of them differ in.
#include <fmt/format.h>
#include <unistd.h>

#include "base/json.h"
#include "perf/command_line/command_line.h"
#include "tools/topo/topo.h"
#include "tools/words.h"
#include "topology/capture/machines.h"
#include "topology/checks/check.h"

namespace tutti::tools {
namespace {

using topology::Finding;
using topology::Findings;
using topology::Severity;

/// Colours only where somebody looks.
std::string coloured(Severity severity) {
  if (isatty(STDOUT_FILENO) == 0) return std::string(to_string(severity));
  const int colour = severity == Severity::kError ? 31 : severity == Severity::kWarning ? 33 : 36;
  return fmt::format("\x1b[{}m{}\x1b[0m", colour, to_string(severity));
}

Json to_json(const Finding& finding) {
  return {{"severity", to_string(finding.severity)},
          {"code", finding.code},
          {"where", finding.where},
          {"what", finding.what},
          {"evidence", finding.evidence},
          {"loss", finding.loss},
          {"remedy", finding.remedy}};
}

int report(const Findings& findings, bool json, const char* nothing) {
  if (json) {
    auto list = Json::array();
    for (const Finding& finding : findings) list.push_back(to_json(finding));
    say("{}\n", list.text({.indent = 2}));
    return topology::exit_code(findings);
  }
  int count[3] = {};
  for (const Finding& finding : findings) {
    ++count[static_cast<std::size_t>(finding.severity)];
    const std::string loss =
        finding.loss > 0 ? fmt::format(", costs {:.0f} %", finding.loss * 100) : "";
    say("{} [{}]{}\n", coloured(finding.severity), finding.code, loss);
    say("{}", wrapped(fmt::format("  {}{}{}", finding.where, finding.where.empty() ? "" : ": ",
                                  finding.what),
                      4));
    if (!finding.evidence.empty()) say("{}", wrapped("    evidence: " + finding.evidence, 6));
    if (!finding.remedy.empty()) say("{}", wrapped("    remedy:   " + finding.remedy, 6));
  }
  if (findings.empty()) {
    say("{}\n", nothing);
  } else {
    say("\n{}, {}, {}\n", counted(count[2], "error"), counted(count[1], "warning"),
        counted(count[0], "note"));
  }
  return topology::exit_code(findings);
}

struct Check {
  GraphSource source;
  std::string a, b;
  bool json = false;
};

Result<int> check(const Check& options) {
  TUTTI_TRY(const auto machine, load(options.source));
  return report(topology::check(machine.graph, {.known = machine.findings}), options.json,
                "nothing wrong was found");
}

Result<int> diff(const Check& options) {
  TUTTI_TRY(const auto a, topology::load_machine(options.a));
  TUTTI_TRY(const auto b, topology::load_machine(options.b));
  return report(topology::differences(a.graph, b.graph), options.json, "no differences");
}

}  // namespace

void define_topo_check(const perf::Command& app, int& exit_code) {
  auto options = std::make_shared<Check>();
  const auto command =
      app.add_subcommand("check", "What is wrong, what it costs, and what to do about it");
  add_source_options(command, options->source);
  command.add_flag("--json", options->json, "As JSON");
  command.footer(
      "Exit code: 0 nothing or notes only, 1 warnings, 2 errors.\n"
      "Examples:\n  tutti topo check\n  tutti topo check --from sick.tar.gz --json");
  command.callback([options, &exit_code] { exit_code = exit_code_of(check(*options)); });
}

void define_topo_diff(const perf::Command& app, int& exit_code) {
  auto options = std::make_shared<Check>();
  const auto command = app.add_subcommand("diff", "What two machines differ in");
  const auto add = [&](const char* name, std::string& into, const char* text) {
    perf::offer(command.add_option(name, into, text).required().type_name("FILE|MODEL"),
                model_words());
  };
  add("A", options->a, "A file or a model, as it should be");
  add("B", options->b, "Another, as it is");
  command.add_flag("--json", options->json, "As JSON");
  command.footer(
      "Exit code as for check.\n"
      "Examples:\n  tutti topo diff hgx-h100 topo.xml\n  tutti topo diff node1.tar.gz "
      "node2.tar.gz");
  command.callback([options, &exit_code] { exit_code = exit_code_of(diff(*options)); });
}

}  // namespace tutti::tools
