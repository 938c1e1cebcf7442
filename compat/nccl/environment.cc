#include "environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <system_error>

#include "base/log.h"
#include "base/settings/settings_table.h"
#include "debug.h"

namespace tutti::nccl {
namespace {

// Bounds of what is read: more is refused, or left out.
constexpr std::size_t kMostNameBytes = 64, kMostValueBytes = 4096, kMostNames = 16;
constexpr std::size_t kMostFileBytes = std::size_t{64} << 10, kMostVariables = 256;

std::optional<int> parse_number(std::string_view text, int least, int most) {
  int value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value >= least && value <= most ? std::optional(value) : std::nullopt;
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
/// UTF-8 too: names of files.
bool is_printable(char c) { return static_cast<unsigned char>(c) >= ' ' && c != 127; }

/// NCCL ignores the case of words.
std::string upper(std::string_view text) {
  std::string word(text);
  for (char& c : word) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return word;
}

bool is_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return is_letter(c) || is_digit(c) || c == '_' || c == '-' || c == '.' || c == '@';
  });
}

/// NCCL's lists of names ("eth,ib", "=mlx5_0:1", "^docker", "^=eth0") as our rules: a name stands
/// for all that begin so, except behind =; ^ and = hold for the whole list.
std::optional<std::string> parse_names(std::string_view text, bool ports) {
  std::string rule;
  if (text.starts_with('^')) rule = "^", text.remove_prefix(1);
  const bool exact = text.starts_with('=');
  if (exact) text.remove_prefix(1);
  std::size_t names = 0;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (word.empty()) continue;
    const auto colon = word.find(':');
    const std::string_view port = word.substr(std::min(word.size(), colon));
    if (!port.empty() && !parse_number(port.substr(1), 1, 255)) return std::nullopt;
    if (!is_name(word.substr(0, colon)) || ++names > kMostNames) return std::nullopt;
    if (names > 1) rule += ',';
    rule += word.substr(0, colon);
    if (!exact) rule += '*';
    if (ports) rule += port;
  }
  return names == 0 ? std::nullopt : std::optional(rule);
}

std::optional<std::string> interfaces(std::string_view text, const std::string& /*before*/) {
  return parse_names(text, false);
}

std::optional<std::string> devices(std::string_view text, const std::string& /*before*/) {
  return parse_names(text, true);
}

/// Excludes the other family's addresses, behind whatever interfaces there are.
std::optional<std::string> family(std::string_view text, const std::string& before) {
  const std::string word = upper(text);
  if (word != "AF_INET" && word != "AF_INET6") return std::nullopt;
  const std::string others = word == "AF_INET" ? "::/0" : "0.0.0.0/0";
  if (before.starts_with('^')) return before + "," + others;
  return before + (before.empty() ? "^" : ",^") + others;
}

/// A number that -1 leaves open.
template <int most>
std::optional<std::string> open_number(std::string_view text, const std::string& /*before*/) {
  const auto value = parse_number(text, -1, most);
  return value ? std::optional(std::to_string(*value)) : std::nullopt;
}

std::optional<std::string> no_rdma(std::string_view text, const std::string& before) {
  const auto number = parse_number(text, 0, 1);
  if (!number) return std::nullopt;
  return *number == 1 ? "^verbs" : before;
}

std::optional<std::string> network(std::string_view text, const std::string& before) {
  const auto transport = transport_of_network(text);
  return transport == "" ? before : transport;
}

/// How far a NIC may be from a device: NCCL's words, and its older numbers.
std::optional<std::string> gpudirect(std::string_view text, const std::string& /*before*/) {
  constexpr std::string_view kOff[] = {"LOC", "0"}, kAlways[] = {"SYS", "5"};
  constexpr std::string_view kNear[] = {"PIX", "PXB", "P2C", "PXN", "PHB", "1", "2", "3", "4"};
  const std::string word = upper(text);
  if (std::ranges::find(kOff, word) != std::end(kOff)) return "off";
  if (std::ranges::find(kAlways, word) != std::end(kAlways)) return "on";
  return std::ranges::find(kNear, word) != std::end(kNear) ? std::optional("auto") : std::nullopt;
}

/// NCCL's two variables on access between devices, the second of which may come with older numbers:
/// PCI Express counts as one level here.
std::optional<std::string> no_peers(std::string_view text, const std::string& before) {
  const auto number = parse_number(text, 0, 1);
  if (!number) return std::nullopt;
  return *number == 1 ? "off" : before;
}

std::optional<std::string> peers(std::string_view text, const std::string& /*before*/) {
  constexpr std::string_view kOff[] = {"LOC", "0"};
  constexpr std::string_view kAll[] = {"PIX", "PXB", "PHB", "SYS", "1", "2", "3", "4", "5"};
  const std::string word = upper(text);
  if (word == "NVL") return "nvlink";
  if (std::ranges::find(kOff, word) != std::end(kOff)) return "off";
  return std::ranges::find(kAll, word) != std::end(kAll) ? std::optional("auto") : std::nullopt;
}

std::optional<std::string> no_nvls(std::string_view text, const std::string& before) {
  const auto number = parse_number(text, 0, 2);
  if (!number) return std::nullopt;
  return *number == 0 ? "^nvls" : before;
}

/// Two variables for one limit: the stricter one holds.
std::optional<std::string> least_lanes(std::string_view text, const std::string& before) {
  const auto number = parse_number(text, 1, kMostLanes);
  if (!number) return std::nullopt;
  return std::to_string(std::max(*number, parse_number(before, 1, kMostLanes).value_or(1)));
}

std::optional<std::string> most_lanes(std::string_view text, const std::string& before) {
  const auto number = parse_number(text, 1, 1 << 20);
  if (!number) return std::nullopt;
  return std::to_string(
      std::min(*number, parse_number(before, 1, kMostLanes).value_or(kMostLanes)));
}

constexpr std::string_view kLevels[] = {"NONE", "VERSION", "WARN", "INFO", "TRACE"};

std::optional<std::string> log_level(std::string_view text, const std::string& /*before*/) {
  std::string word = upper(text);
  if (word == "ABORT") word = "INFO";  // NCCL's level between INFO and TRACE.
  if (std::ranges::find(kLevels, word) == std::end(kLevels)) return std::nullopt;
  return word == "INFO" ? "info" : word == "TRACE" ? "trace" : "warn";
}

/// A subsystem of NCCL's, and a part of our log that has lines which NCCL's would be of it; empty:
/// there are none.
struct Subsystem {
  std::string_view name, part;
};
constexpr Subsystem kSubsystems[] = {
    {"INIT", "join"},    {"INIT", "nccl"},     {"BOOTSTRAP", "join"}, {"DESTROY", "nccl"},
    {"ENV", "settings"}, {"NET", "net"},       {"COLL", "calls"},     {"TUNING", "plans"},
    {"GRAPH", "plans"},  {"GRAPH", "devices"}, {"P2P", "devices"},    {"SHM", "devices"},
    {"NVLS", "devices"}, {"ALLOC", ""},        {"ALLOC_HOST", ""},    {"CALL", ""},
    {"PROXY", ""},       {"REG", ""},          {"PROFILE", ""},       {"RAS", ""},
};

/// The level of each part: `before`, where a subsystem that the list names has lines, else
/// warnings, which NCCL writes in any case. Behind a ^ stand those that are not to be written.
std::optional<std::string> subsystems(std::string_view text, const std::string& before) {
  const bool excludes = text.starts_with('^');
  const std::string words = upper(text.substr(excludes ? 1 : 0));
  std::set<std::string_view> named, parts;
  for (std::string_view rest = words; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    for (const Subsystem& one : kSubsystems) {
      if (word == "ALL" || word == one.name) named.insert(one.name);
    }
    if (!word.empty() && word != "ALL" && !named.contains(word)) return std::nullopt;
  }
  if (named.empty()) return std::nullopt;
  if (before.empty() || before == "warn") return before;
  for (const Subsystem& one : kSubsystems) {
    if (!one.part.empty() && named.contains(one.name) != excludes) parts.insert(one.part);
  }
  if (parts.size() == log::kParts.size()) return before;
  std::string levels = "warn";
  for (const std::string_view part : parts) levels += fmt::format(",{}={}", part, before);
  return levels;
}

std::optional<std::string> any(std::string_view text, const std::string& /*before*/) {
  return std::string(text);
}

/// TUTTI_TOPOLOGY=off is no file.
std::optional<std::string> file(std::string_view text, const std::string& /*before*/) {
  return text == "off" ? "./off" : std::string(text);
}

std::optional<std::string> rank(std::string_view text, const std::string& /*before*/) {
  const auto number = parse_number(text, 0, 1 << 20);
  return number ? std::optional(std::to_string(*number)) : std::nullopt;
}

std::optional<std::string> zero_or_one(std::string_view text, const std::string& /*before*/) {
  return parse_number(text, 0, 1) ? std::optional(std::string(text)) : std::nullopt;
}

std::optional<std::string> place(std::string_view text, const std::string& /*before*/) {
  return parse_place(text) ? std::optional(std::string(text)) : std::nullopt;
}

// A variable that changes what others have made comes behind them.
constexpr Variable kVariables[] = {
    {"NCCL_DEBUG", "TUTTI_LOG", "VERSION, WARN, INFO, TRACE or NONE", "see below", log_level},
    {"NCCL_DEBUG_FILE", "", "a file's name, with %h and %p", "the log goes there instead of stdout",
     any},
    {"NCCL_DEBUG_SUBSYS", "TUTTI_LOG",
     "INIT, BOOTSTRAP, ENV, NET, COLL, P2P, GRAPH, TUNING, ALL or others of NCCL's, separated by "
     "commas; ^ first: all others",
     "see below", subsystems},
    {"NCCL_CONF_FILE", "", "a file's name", "read instead of `~/.nccl.conf`", any},
    {"NCCL_COMM_ID", "", "host:port or [IPv6]:port", "see below", place},
    {"NCCL_COMM_BLOCKING", "", "0 or 1", "overrides the program's `blocking`", zero_or_one},
    {"NCCL_SOCKET_IFNAME", "TUTTI_NET_INTERFACES",
     "prefixes of names, separated by commas; = before them: names; ^ first: all others",
     "for TCP between hosts, and for unique ids", interfaces},
    {"NCCL_SOCKET_FAMILY", "TUTTI_NET_INTERFACES", "AF_INET or AF_INET6",
     "excludes the other's addresses", family},
    {"NCCL_IB_HCA", "TUTTI_RDMA_DEVICES",
     "prefixes of names, each with a :port or without, separated by commas; = before them: names; "
     "^ first: all others",
     "for RDMA", devices},
    {"NCCL_IB_GID_INDEX", "TUTTI_RDMA_GID_INDEX", "a number from -1 to 255",
     "that GID of each RoCE port, which has to be of RoCE v2; -1: found by its address",
     open_number<255>},
    {"NCCL_IB_TC", "TUTTI_RDMA_TRAFFIC_CLASS", "a number from -1 to 255",
     "the traffic class of RDMA packets; overrides `trafficClass`", open_number<255>},
    {"NCCL_IB_SL", "TUTTI_RDMA_SERVICE_LEVEL", "a number from -1 to 15",
     "its service level; overrides `trafficClass`", open_number<15>},
    {"NCCL_IB_DISABLE", "TUTTI_TRANSPORT", "0 or 1", "1: no RDMA", no_rdma},
    {"NCCL_NET", "TUTTI_TRANSPORT", "IB or Socket", "Socket: no RDMA; there are no plugins",
     network},
    {"NCCL_NET_GDR_LEVEL", "TUTTI_GPUDIRECT", "LOC, PIX, PXB, P2C, PXN, PHB or SYS, or 0 to 5",
     "LOC: off; SYS: on; between them: auto", gpudirect},
    {"NCCL_P2P_LEVEL", "TUTTI_PEERS", "LOC, NVL, PIX, PXB, PHB or SYS, or 0 to 5",
     "LOC: no access between devices; NVL: by NVLink alone; else by PCI Express too", peers},
    {"NCCL_P2P_DISABLE", "TUTTI_PEERS", "0 or 1", "1: no access between devices", no_peers},
    {"NCCL_MIN_NCHANNELS", "TUTTI_LEAST_LANES", "1 to 64", "as many lanes at least", least_lanes},
    {"NCCL_MIN_CTAS", "TUTTI_LEAST_LANES", "1 to 64", "the same; overrides `minCTAs`", least_lanes},
    {"NCCL_MAX_NCHANNELS", "TUTTI_MOST_LANES", "a number from 1 on", "as many lanes at most",
     most_lanes},
    {"NCCL_MAX_CTAS", "TUTTI_MOST_LANES", "a number from 1 on", "the same; overrides `maxCTAs`",
     most_lanes},
    {"NCCL_NVLS_ENABLE", "TUTTI_ALGORITHM", "0, 1 or 2", "0: no multicast memory", no_nvls},
    {"NCCL_TOPO_FILE", "TUTTI_TOPOLOGY", "a file's name", "see below", file},
    {"NCCL_TOPO_DUMP_FILE", "TUTTI_TOPOLOGY_DUMP", "a file's name", "see below", file},
    {"NCCL_TOPO_DUMP_FILE_RANK", "TUTTI_TOPOLOGY_DUMP_RANK", "a number from 0 to 1048576",
     "the rank that writes it", rank},
    {"NCCL_VERSION", "", "anything", "container images set it", any},
    {"NCCL_ASYNC_ERROR_HANDLING", "", "anything", "torch reads it", any},
    {"NCCL_BLOCKING_WAIT", "", "anything", "torch reads it", any},
    {"NCCL_ALGO", "", "", "instead: `TUTTI_ALGORITHM`, with other names"},
    {"NCCL_PROTO", "", "", "instead: `TUTTI_ALGORITHM`, with other names"},
    {"NCCL_SHM_DISABLE", "", "", "shared memory needs no room in /dev/shm"},
};

void read_one(const Variable& variable, const std::string& text, Environment& result) {
  const bool sound = text.size() <= kMostValueBytes && std::ranges::all_of(text, is_printable);
  const std::string before =
      variable.setting.empty() ? "" : result.settings[std::string(variable.setting)];
  auto value = sound ? variable.parse(text, before) : std::nullopt;
  const bool sets = value && !variable.setting.empty() && !value->empty();
  if (!value || (sets && !check_setting(variable.setting, *value))) {
    result.complaints.push_back(fmt::format("{}='{}' has no effect: it takes {}", variable.name,
                                            shown_value(text), variable.takes));
    return;
  }
  if (variable.setting.empty()) result.own[std::string(variable.name)] = *value;
  if (sets) {
    result.settings[std::string(variable.setting)] = *value;
    result.notes.push_back(fmt::format("{} set by environment to {} ({}={})", variable.name,
                                       shown_value(text), variable.setting, shown_value(*value)));
  }
  if (variable.name == "NCCL_DEBUG") result.own["NCCL_DEBUG"] = upper(text);
}

/// "NCCL_ALGO (instead: ...), NCCL_BUFFSIZE and 3 more".
std::string name_ignored(const Values& set) {
  std::string line;
  std::size_t count = 0;
  for (const auto& [name, text] : set) {
    const auto* const known = std::ranges::find(kVariables, name, &Variable::name);
    const bool has_meaning = known != std::end(kVariables) && known->parse != nullptr;
    if (has_meaning || text.empty() || ++count > kMostNames) continue;
    line += (line.empty() ? "" : ", ") + shown_value(name);
    if (known == std::end(kVariables)) continue;
    std::string note(known->note);
    std::erase(note, '`');
    line += " (" + note + ")";
  }
  if (count > kMostNames) line += fmt::format(" and {} more", count - kMostNames);
  return line.empty() ? line : "variables without a meaning here: " + line;
}

void add_file(Values& set, const std::string& path) {
  std::ifstream file(path);
  std::string text(kMostFileBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  add_configuration(set, text);
}

std::string of_process(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// What the configuration files say, NCCL's order: the user's goes before the system's.
const Values& configured() {
  static const Values all = [] {
    Values read;
    const std::string named = of_process("NCCL_CONF_FILE"), home = of_process("HOME");
    if (!named.empty())
      add_file(read, named);
    else if (!home.empty())
      add_file(read, home + "/.nccl.conf");
    add_file(read, "/etc/nccl.conf");
    return read;
  }();
  return all;
}

/// This process's variables, and behind them those of the files.
Values collect() {
  Values set;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (!text.starts_with("NCCL_") || equals == std::string_view::npos) continue;
    set.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  for (const auto& [name, value] : configured()) set.emplace(name, value);
  return set;
}

bool can_read(const std::string& path) { return ::access(path.c_str(), R_OK) == 0; }

/// NCCL goes on without a topology that it can't read, where TUTTI_TOPOLOGY is an error: an image
/// may name a file that only some of its machines have.
void drop_unreadable_topology(Environment& read) {
  const auto found = read.settings.find("TUTTI_TOPOLOGY");
  if (found == read.settings.end() || can_read(found->second)) return;
  const std::string why = std::generic_category().message(errno);
  read.complaints.push_back(fmt::format("NCCL_TOPO_FILE='{}' has no effect: it can't be read: {}",
                                        shown_value(found->second), why));
  read.settings.erase(found);
  std::erase_if(read.notes, [](const auto& note) { return note.starts_with("NCCL_TOPO_FILE "); });
}

}  // namespace

std::span<const Variable> variables() { return kVariables; }

Environment read_variables(const Values& set) {
  Environment result;
  for (const Variable& variable : kVariables) {
    const auto found = set.find(variable.name);
    // Empty means unset, as in most shells' use.
    if (found == set.end() || found->second.empty() || variable.parse == nullptr) continue;
    read_one(variable, found->second, result);
  }
  std::erase_if(result.settings, [](const auto& entry) { return entry.second.empty(); });
  result.ignored = name_ignored(set);
  return result;
}

void add_configuration(Values& set, std::string_view text) {
  std::size_t added = 0;
  while (!text.empty() && added < kMostVariables) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const auto equals = line.find('=');
    if (equals == std::string_view::npos || equals > kMostNameBytes) continue;
    if (!line.starts_with("NCCL_") || line.size() - equals > kMostValueBytes) continue;
    set.emplace(line.substr(0, equals), line.substr(equals + 1));
    ++added;
  }
}

std::optional<std::string> transport_of_network(std::string_view name) {
  const std::string word = upper(name);
  if (word == "SOCKET") return "^verbs";
  return word == "IB" ? std::optional(std::string()) : std::nullopt;
}

DebugLevel debug_level(const Environment& environment) {
  const auto found = environment.own.find("NCCL_DEBUG");
  if (found == environment.own.end()) return DebugLevel::kNone;
  const auto* const level = std::ranges::find(kLevels, found->second);
  return level == std::end(kLevels) ? DebugLevel::kInfo  // ABORT.
                                    : static_cast<DebugLevel>(level - std::begin(kLevels));
}

std::string expand_file_name(std::string_view text, std::string_view host, int process) {
  std::string name;
  for (std::size_t i = 0; i < text.size() && name.size() < kMostValueBytes; ++i) {
    const char next = text[i] == '%' && i + 1 < text.size() ? text[i + 1] : '\0';
    if (next == 'h') name += host;
    if (next == 'p') name += std::to_string(process);
    if (next == '%') name += '%';
    if (next == 'h' || next == 'p' || next == '%')
      ++i;
    else
      name += text[i];
  }
  return name;
}

std::optional<Place> parse_place(std::string_view text) {
  constexpr std::size_t kMostHostBytes = 100;  // A unique id has to hold it.
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const auto port = parse_number(text.substr(colon + 1), 1, 65535);
  const bool bracketed = host.starts_with('[') && host.ends_with(']') && host.size() > 2;
  if (bracketed) host = host.substr(1, host.size() - 2);
  const bool is_host = std::ranges::all_of(host, [&](char c) {
    return is_name({&c, 1}) || (bracketed && (c == ':' || c == '%'));
  });
  if (!port || host.empty() || host.size() > kMostHostBytes || !is_host) return std::nullopt;
  return Place{std::string(host), *port};
}

const Environment& environment() {
  static const Environment one = [] {
    Environment read = read_variables(collect());
    drop_unreadable_topology(read);
    const std::string named = of_process("NCCL_CONF_FILE");
    if (!named.empty() && !can_read(named))
      read.complaints.push_back(
          fmt::format("NCCL_CONF_FILE='{}' has no effect: it can't be read", shown_value(named)));
    start_debug(read);
    return read;
  }();
  return one;
}

std::string value_of(const char* variable) {
  std::string value = of_process(variable);
  if (!value.empty()) return value;
  const auto found = configured().find(variable);
  return found != configured().end() ? found->second : "";
}

}  // namespace tutti::nccl
