// tutti agent: the part of `tutti run --hosts` on one of the hosts (hosts.h). Not for people.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tools/command.h"
#include "tools/run/hosts.h"
#include "tools/run/supervisor.h"

namespace tutti::tools {
namespace {

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
  if (::chdir(orders->directory.c_str()) != 0) {
    return fail("this host has no directory '" + orders->directory +
                "', where tutti run was started: " + std::strerror(errno));
  }
  for (const auto& entry : orders->environment) {
    const auto equals = entry.find('=');
    if (equals != std::string::npos && equals != 0)
      ::setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
  }
  const auto ranks = ranks_of(orders->job);
  return Supervisor({.what = "ranks of this host",
                     .grace = std::chrono::duration<double>(orders->grace_seconds),
                     .takes_orders = true})
      .run(ranks);
}

}  // namespace

void define_agent(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("agent", "Run ranks as standard input says");
  command->group("");  // Not in the help: tutti run starts it.
  command->callback([&exit_code] { exit_code = agent(); });
}

}  // namespace tutti::tools
