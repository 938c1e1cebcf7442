// tutti info: what this build is, and what it found on this machine.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>

#include "algorithms/algorithm.h"
#include "base/cpus.h"
#include "base/json.h"
#include "base/settings/settings_table.h"
#include "kernels/host/reduce.h"
#include "tools/command.h"
#include "tools/topo/topo.h"
#include "transport/transport.h"
#include "tutti/communicator.h"

namespace tutti::tools {
namespace {

Json build_facts() {
  return {{"version", TUTTI_VERSION},
#ifdef __clang__
          {"compiler",
           fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__)},
#else
          {"compiler", fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__)},
#endif
          {"type", TUTTI_BUILD_TYPE},
          {"hwloc", TUTTI_WITH_HWLOC != 0},
          {"ucx", TUTTI_WITH_UCX != 0},
          {"rdma", TUTTI_WITH_VERBS != 0}};
}

Json machine_facts() {
  return {{"instruction_set", kernels::instruction_set()},
          {"online_cpus", sysconf(_SC_NPROCESSORS_ONLN)},
          {"usable_cpus", usable_cpus()},
          {"cgroup_cpus", quota_cpus()},
          {"last_level_cache_bytes", last_level_cache_bytes()}};
}

/// Null, with the reason on stderr, if the environment holds a value that is not valid.
Json setting_facts() {
  const auto settings = Settings::from_environment();
  if (!settings) {
    say_error("tutti info: {}\n", settings.error().what);
    return nullptr;
  }
  auto facts = Json::array();
  for (const SettingRow& row : setting_rows(*settings)) {
    facts.push_back({{"name", row.field},
                     {"value", row.value},
                     {"source", row.source},
                     {"variable", row.variable},
                     {"accepts", row.accepts}});
  }
  return facts;
}

Json registry_facts() {
  Json facts;
  for (const Transport* transport : transports()) facts["transports"].push_back(transport->name);
  for (const Algorithm* algorithm : algorithms())
    facts["algorithms"][std::string(to_string(algorithm->collective))].push_back(algorithm->name);
  return facts;
}

/// One is made, as threads, so that nothing here is said that isn't so. Lines of text; null, with
/// the reason on stderr, if that failed.
Json communicator_facts() {
  constexpr int kRanks = 8;
  auto settings = Settings::from_environment();
  if (!settings) return nullptr;  // The settings' part has said so.
  settings->groups.clear();       // Those of the user's ranks need not fit these.
  settings->weights.clear();
  settings->trace.clear();  // The file may have the trace of the user's ranks.
  const auto made = Communicator::in_process(kRanks, *settings);
  if (!made) {
    say_error("tutti info: {}\n", made.error().to_string());
    return nullptr;
  }
  auto lines = Json::array();
  std::istringstream text(made->front().describe());
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

std::string words(const Json& list) {
  std::string text;
  for (const auto& word : list) text += (text.empty() ? "" : ", ") + word.get<std::string>();
  return text;
}

/// A setting's value; what nobody set and has no value of its own is decided by the library.
std::string shown(const Json& row) {
  const auto value = row["value"].get<std::string>();
  const bool unset = row["source"] == "default" && (value.empty() || value == "0" || value == "-1");
  return unset ? "automatic" : value;
}

std::string in_words(const Json& facts) {
  const auto& build = facts["build"];
  const auto& machine = facts["machine"];
  const auto text_of = [](const Json& word) { return word.get<std::string>(); };
  const auto with = [&](const char* part) { return build[part].get<bool>() ? "with" : "without"; };
  const int quota = machine["cgroup_cpus"].get<int>();
  std::string text = fmt::format(
      "tutti {} ({}, {}, {} hwloc, {} RDMA, {} UCX)\n\nmachine\n  instruction set    {}\n"
      "  CPUs               {} usable of {} online ({})\n"
      "  last-level cache   {} KiB\n\nsettings\n",
      text_of(build["version"]), text_of(build["compiler"]), text_of(build["type"]), with("hwloc"),
      with("rdma"), with("ucx"), text_of(machine["instruction_set"]),
      machine["usable_cpus"].get<int>(), machine["online_cpus"].get<int>(),
      quota == 0 ? "no cgroup limit" : fmt::format("cgroup limit {}", quota),
      machine["last_level_cache_bytes"].get<std::size_t>() / 1024);
  std::size_t width = 0;
  for (const auto& row : facts["settings"]) width = std::max(width, text_of(row["name"]).size());
  for (const auto& row : facts["settings"]) {
    const std::string head = fmt::format("  {:<{}} = ", text_of(row["name"]), width);
    text += wrapped(fmt::format("{}{:<14} {:<17} {}", head, shown(row),
                                "(" + text_of(row["source"]) + ")", text_of(row["variable"])),
                    head.size());
  }
  text += "\na communicator on this machine\n";
  for (const auto& line : facts["communicator"]) text += wrapped("  " + text_of(line), 6);
  text +=
      fmt::format("\ntransports, best first\n{}", wrapped("  " + words(facts["transports"]), 2));
  text += "\nalgorithms (tutti plan prints what one does)\n";
  for (const auto& [collective, names] : facts["algorithms"].members())
    text += wrapped(fmt::format("  {:<15} {}", collective, words(names)), 18);
  return text;
}

int info(bool json) {
  auto facts = registry_facts();
  facts["build"] = build_facts();
  facts["machine"] = machine_facts();
  facts["settings"] = setting_facts();
  if (facts["settings"].is_null()) return 1;
  facts["communicator"] = communicator_facts();
  if (facts["communicator"].is_null()) return 1;
  say("{}\n", json ? facts.text({.indent = 2}) : in_words(facts));
  return 0;
}

}  // namespace

void define_info(const perf::Command& app, int& exit_code) {
  const auto command =
      app.add_subcommand("info", "Say what this build and this machine have, and what is set");
  auto json = std::make_shared<bool>(false);
  command.add_flag("--json", *json, "As JSON, for programs");
  command.footer("Examples:\n  tutti info\n  TUTTI_CONTRACT=relaxed tutti info --json");
  command.callback([json, &exit_code] { exit_code = info(*json); });
}

}  // namespace tutti::tools
