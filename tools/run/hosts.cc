#include "tools/run/hosts.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace tutti::tools {
namespace {

using nlohmann::json;

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

}  // namespace

std::vector<std::string> portable_environment(char** environment) {
  std::vector<std::string> all;
  for (char** entry = environment; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!is_of_this_host(text.substr(0, text.find('=')))) all.emplace_back(text);
  }
  return all;
}

Result<std::vector<Child>> agents_of(const HostsRun& run) {
  if (!is_plain(run.command)) {
    return Error{Code::kInvalidArgument, "a remote shell would not leave '" + run.command +
                                             "' as it is; --remote-tutti takes another path"};
  }
  AgentOrders orders{.directory = std::filesystem::current_path().string(),
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
    if (agent.orders.size() > kMostOrdersBytes) {
      return Error{Code::kInvalidArgument,
                   "program and environment have " + std::to_string(agent.orders.size()) +
                       " bytes; at most " + std::to_string(kMostOrdersBytes) + " can be passed on"};
    }
    agent.program.insert(agent.program.end(), {host.host, run.command, "agent"});
    agents.push_back(std::move(agent));
    orders.job.first_rank += host.slots;
  }
  return agents;
}

std::string encode(const AgentOrders& orders) {
  const Job& job = orders.job;
  const json object{{"version", TUTTI_VERSION},
                    {"directory", orders.directory},
                    {"environment", orders.environment},
                    {"grace", orders.grace_seconds},
                    {"program", job.program},
                    {"rank_count", job.rank_count},
                    {"first_rank", job.first_rank},
                    {"local_rank_count", job.local_rank_count},
                    {"job", job.name},
                    {"secret", job.secret},
                    {"rendezvous", job.rendezvous},
                    {"master_address", job.master_address},
                    {"master_port", job.master_port},
                    {"prefix", job.prefix}};
  // An environment need not be UTF-8, JSON has to be: what is not, is lost.
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<AgentOrders> parse_orders(std::string_view line) {
  AgentOrders orders;
  Job& job = orders.job;
  try {
    const json object = json::parse(line);
    const std::string version = object.at("version");
    if (version != TUTTI_VERSION) {
      return Error{Code::kMismatch, "the launcher has Tutti " + version + ", this host " +
                                        TUTTI_VERSION + "; install the same on all hosts"};
    }
    orders.directory = object.at("directory");
    orders.environment = object.at("environment").get<std::vector<std::string>>();
    orders.grace_seconds = object.at("grace");
    job.program = object.at("program").get<std::vector<std::string>>();
    job.rank_count = object.at("rank_count");
    job.first_rank = object.at("first_rank");
    job.local_rank_count = object.at("local_rank_count");
    job.name = object.at("job");
    job.secret = object.at("secret");
    job.rendezvous = object.at("rendezvous");
    job.master_address = object.at("master_address");
    job.master_port = object.at("master_port");
    job.prefix = object.at("prefix");
  } catch (const json::exception&) {
    return Error{Code::kInvalidArgument,
                 "what came is no job; it is for tutti run --hosts to start an agent"};
  }
  if (job.program.empty() || job.local_rank_count < 1 || job.local_rank_count > job.rank_count ||
      job.first_rank < 0 || job.first_rank > job.rank_count - job.local_rank_count)
    return Error{Code::kInvalidArgument, "a job with impossible ranks, or without a program"};
  return orders;
}

}  // namespace tutti::tools
