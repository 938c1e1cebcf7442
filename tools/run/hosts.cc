#include "tools/run/hosts.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "perf/command_line/command_line.h"
#include "tools/command.h"
#include "tools/run/orders.h"
#include "tools/run/supervisor.h"

namespace tutti::tools {

namespace {

/// Whether a shell leaves this as it is.
bool is_plain(std::string_view word) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("/._-+=@%:").find(c) != std::string_view::npos;
  };
  return !word.empty() && std::all_of(word.begin(), word.end(), fits);
}

/// Whether a variable belongs to this host or to this session.
bool is_of_this_host(std::string_view name) {
  constexpr std::array<std::string_view, 16> kNames{
      "HOME",     "USER",      "LOGNAME",      "SHELL",        "PWD",     "OLDPWD",
      "HOSTNAME", "TMPDIR",    "SHLVL",        "MAIL",         "DISPLAY", "XAUTHORITY",
      "_",        "TUTTI_RSH", "TUTTI_SECRET", "INVOCATION_ID"};
  constexpr std::array<std::string_view, 5> kPrefixes{"SSH_", "XDG_", "DBUS_", "TORCHELASTIC_",
                                                      "BASH_FUNC_"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

/// Variables of `environment` that mean something on another host.
std::vector<std::string> portable_environment(char** environment) {
  std::vector<std::string> all;
  for (char** entry = environment; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!is_of_this_host(text.substr(0, text.find('=')))) all.emplace_back(text);
  }
  return all;
}

/// To the end of the line, and not further: the rest is for the supervisor. Empty: there was none.
std::string read_line() {
  std::string line;
  char next = 0;
  while (line.size() <= kMostOrdersBytes && ::read(0, &next, 1) == 1) {
    if (next == '\n') return line;
    line += next;
  }
  return {};
}

int fail(const std::string& what) {
  say_error("tutti run: {}\n", what);
  return 1;
}

int agent() {
  const auto orders = parse_orders(read_line());
  if (!orders) return fail(orders.error().what);
  if (::chdir(orders->directory.c_str()) != 0)
    return fail(fmt::format("this host has no directory '{}', where tutti run was started: {}",
                            orders->directory, std::strerror(errno)));
  for (const auto& entry : orders->environment) {
    const auto equals = entry.find('=');
    if (equals != std::string::npos && equals != 0)
      ::setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
  }
  return supervise({.what = "ranks of this host",
                    .grace = std::chrono::duration<double>(orders->grace_seconds),
                    .takes_orders = true},
                   ranks_of(orders->job));
}

}  // namespace

Result<std::vector<Child>> agents_of(const HostsRun& run) {
  if (!is_plain(run.command))
    return invalid(
        "a remote shell would not leave '{}' as it is; --remote-tutti takes another path",
        run.command);
  std::error_code gone;
  const auto directory = std::filesystem::current_path(gone);
  if (gone) return invalid("the working directory: {}; change to another", gone.message());
  AgentOrders orders{.directory = directory.string(),
                     .environment = portable_environment(environ),
                     .grace_seconds = run.grace_seconds,
                     .job = run.job};
  orders.job.rank_count = 0;
  for (const auto& host : run.hosts) orders.job.rank_count += host.slots;
  std::vector<std::string> own_environment;  // The environment that ssh itself gets.
  for (char** entry = environ; *entry != nullptr; ++entry) own_environment.emplace_back(*entry);
  std::vector<Child> agents;
  for (const auto& host : run.hosts) {
    orders.job.local_rank_count = host.slots;
    Child agent{.name = "host " + host.host,
                .prefix = {},
                .program = run.rsh,
                .environment = own_environment,
                .orders = encode(orders) + "\n"};
    if (agent.orders.size() > kMostOrdersBytes)
      return invalid("program and environment have {} bytes; at most {} can be passed on",
                     agent.orders.size(), kMostOrdersBytes);
    agent.program.insert(agent.program.end(), {host.host, run.command, "agent"});
    agents.push_back(std::move(agent));
    orders.job.first_rank += host.slots;
  }
  return agents;
}

/// The part of `tutti run --hosts` on one of the hosts. Not for people.
void define_agent(const perf::Command& app, int& exit_code) {
  const auto command = app.add_subcommand("agent", "Run ranks as standard input says");
  command.group("");  // Not in the help: tutti run starts it.
  command.callback([&exit_code] { exit_code = agent(); });
}

}  // namespace tutti::tools
