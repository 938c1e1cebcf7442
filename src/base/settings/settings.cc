// Settings: one table says, for every knob, its variable, what it takes and how it is written.
#include "tutti/settings.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"
#include "base/nearest.h"
#include "base/settings/settings_table.h"

namespace tutti {
namespace {

// Bounds: the widest values that any part of the library takes; a part may narrow them.
constexpr std::int64_t kMostMilliseconds = 1'000'000'000;
constexpr std::int64_t kMostSlotBytes = std::int64_t{1} << 30;
constexpr std::int64_t kMostUnexpectedBytes = std::int64_t{1} << 40;
constexpr std::int64_t kMostListedRanks = 4096;
constexpr std::size_t kMostGroups = 8;
constexpr std::int64_t kMostWeight = 1024, kMostWeights = 65535;  // One rank's; all together.

std::optional<std::int64_t> parse_integer(std::string_view text, std::int64_t least,
                                          std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value >= least && value <= most ? std::optional(value) : std::nullopt;
}

/// A number of bytes, with K or M for KiB or MiB.
std::optional<std::int64_t> parse_bytes(std::string_view text, std::int64_t most) {
  std::int64_t unit = 1;
  if (!text.empty() && (text.back() == 'K' || text.back() == 'M')) {
    unit = text.back() == 'K' ? 1024 : 1024 * 1024;
    text.remove_suffix(1);
  }
  const auto count = parse_integer(text, 0, most / unit);
  return count ? std::optional(*count * unit) : std::nullopt;
}

bool is_name_list(std::string_view text) {
  constexpr auto kTakes = "abcdefghijklmnopqrstuvwxyz0123456789_=,^:";
  return text.size() <= 256 && text.find_first_not_of(kTakes) == std::string_view::npos;
}

/// Names, prefixes with a star, ports: "mlx5_0:2,rxe*,bnxt*:1", excluded from a ^ on. Whether there
/// are such devices is not known here.
bool is_device_rule(std::string_view text) {
  if (text.size() > 256) return false;
  while (!text.empty()) {
    std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (word.starts_with('^')) word.remove_prefix(1);
    if (const auto colon = word.find(':'); colon != std::string_view::npos) {
      if (!parse_integer(word.substr(colon + 1), 1, 255)) return false;
      word = word.substr(0, colon);
    }
    if (word.ends_with('*')) word.remove_suffix(1);
    constexpr auto kInName = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    if (word.empty() || word.find_first_not_of(kInName) != std::string_view::npos) return false;
  }
  return true;
}

/// Whether a path can be shown in one line, and opened. Names are any bytes, mostly UTF-8.
bool is_path(std::string_view text) {
  return text.size() <= 4096 && std::ranges::all_of(text, [](char c) {
           return static_cast<unsigned char>(c) >= ' ' && c != 127;
         });
}

bool is_interface_rule(std::string_view text) { return text.size() <= 256 && is_path(text); }

bool is_peers(std::string_view text) { return text == "auto" || text == "nvlink" || text == "off"; }

bool is_gpudirect(std::string_view text) { return text == "auto" || text == "on" || text == "off"; }

/// Several paths, separated by commas: no empty one.
bool is_file_list(std::string_view text) {
  return is_path(text) && !text.starts_with(',') && !text.ends_with(',') &&
         text.find(",,") == std::string_view::npos;
}

/// Numbers separated by commas; none for an empty text.
std::optional<std::vector<int>> parse_list(std::string_view text, std::int64_t least,
                                           std::int64_t most, std::size_t most_numbers) {
  std::vector<int> list;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const auto number = parse_integer(text.substr(0, comma), least, most);
    if (!number || list.size() == most_numbers || comma + 1 == text.size()) return std::nullopt;
    list.push_back(static_cast<int>(*number));
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
  }
  return list;
}

std::string show_list(const std::vector<int>& list) {
  return fmt::format("{}", fmt::join(list, ","));
}

bool set_groups(Settings& settings, std::string_view text) {
  const auto list = parse_list(text, 2, kMostListedRanks, kMostGroups);
  if (!list) return false;
  for (std::size_t i = 1; i < list->size(); ++i) {
    if ((*list)[i] <= (*list)[i - 1] || (*list)[i] % (*list)[i - 1] != 0) return false;
  }
  settings.groups = *list;
  return true;
}

bool set_weights(Settings& settings, std::string_view text) {
  const auto list = parse_list(text, 0, kMostWeight, kMostListedRanks);
  if (!list) return false;
  const auto sum = std::accumulate(list->begin(), list->end(), std::int64_t{0});
  if (sum == 0 || sum > kMostWeights) return false;
  settings.weights = *list;
  return true;
}

struct Knob {
  const char* variable;
  const char* field;
  const char* accepts;
  bool (*set)(Settings&, std::string_view text);  // False: not one of what it accepts.
  std::string (*show)(const Settings&);
};

template <class Field>
bool assign(Field& field, std::optional<std::int64_t> value) {
  if (value) field = Field(*value);
  return value.has_value();
}

/// A text, of which `takes` says whether it is one.
template <auto field, auto takes>
constexpr Knob text_knob(const char* variable, const char* name, const char* accepts) {
  return {variable, name, accepts,
          [](Settings& settings, std::string_view text) {
            settings.*field = text;
            return static_cast<bool>(takes(text));
          },
          [](const Settings& settings) { return settings.*field; }};
}

template <auto field, std::int64_t least, std::int64_t most>
constexpr Knob number_knob(const char* variable, const char* name, const char* accepts) {
  return {variable, name, accepts,
          [](Settings& settings, std::string_view text) {
            return assign(settings.*field, parse_integer(text, least, most));
          },
          [](const Settings& settings) { return std::to_string(settings.*field); }};
}

const std::array<Knob, 31> kKnobs{{
    {"TUTTI_TIMEOUT_MS", "timeout_ms", "milliseconds, 1 to 1000000000",
     [](Settings& s, std::string_view text) {
       return assign(s.timeout, parse_integer(text, 1, kMostMilliseconds));
     },
     [](const Settings& s) { return std::to_string(s.timeout.count()); }},
    {"TUTTI_CONTRACT", "contract", "deterministic or relaxed",
     [](Settings& s, std::string_view text) {
       s.contract = text == "relaxed" ? Contract::kRelaxed : Contract::kDeterministic;
       return text == "relaxed" || text == "deterministic";
     },
     [](const Settings& s) {
       return std::string(s.contract == Contract::kRelaxed ? "relaxed" : "deterministic");
     }},
    text_knob<&Settings::algorithm, is_name_list>(
        "TUTTI_ALGORITHM", "algorithm",
        "an algorithm's name, name:2 for twice its lanes, or collective=name pairs separated by "
        "commas, ^name to forbid one (see tutti info)"),
    {"TUTTI_WIRE", "wire",
     "plain, float16, bfloat16, int8 or float8; with :nearest or :stochastic behind it for its "
     "rounding",
     [](Settings& s, std::string_view text) {
       const auto wire = parse_wire(text);
       s.wire = wire.value_or(Wire{});
       return wire.has_value();
     },
     [](const Settings& s) { return tutti::to_string(s.wire); }},
    text_knob<&Settings::transport, is_name_list>("TUTTI_TRANSPORT", "transport",
                                                  "a transport's name (see tutti info), or ^ and "
                                                  "names to exclude, separated by commas"),
    {"TUTTI_SLOT_BYTES", "slot_bytes", "0 or bytes up to 1024M, with K or M for KiB or MiB",
     [](Settings& s, std::string_view text) {
       return assign(s.slot_bytes, parse_bytes(text, kMostSlotBytes));
     },
     [](const Settings& s) { return std::to_string(s.slot_bytes); }},
    number_knob<&Settings::slot_count, 0, 1024>("TUTTI_SLOT_COUNT", "slot_count",
                                                "a number from 0 to 1024"),
    {"TUTTI_READ_FROM", "read_from", "off, or 0 or bytes up to 1024M, with K or M for KiB or MiB",
     [](Settings& s, std::string_view text) {
       if (text != "off") return assign(s.read_from_bytes, parse_bytes(text, kMostSlotBytes));
       s.read_from_bytes = SIZE_MAX;
       return true;
     },
     [](const Settings& s) {
       return s.read_from_bytes == SIZE_MAX ? "off" : std::to_string(s.read_from_bytes);
     }},
    {"TUTTI_UNEXPECTED_BYTES", "unexpected_bytes",
     "bytes up to 1048576M, with K or M for KiB or MiB",
     [](Settings& s, std::string_view text) {
       return assign(s.unexpected_bytes, parse_bytes(text, kMostUnexpectedBytes));
     },
     [](const Settings& s) { return std::to_string(s.unexpected_bytes); }},
    number_knob<&Settings::lanes, 0, 64>("TUTTI_LANES", "lanes", "a number from 0 to 64"),
    number_knob<&Settings::least_lanes, 0, 64>("TUTTI_LEAST_LANES", "least_lanes",
                                               "a number from 0 to 64"),
    number_knob<&Settings::most_lanes, 0, 64>("TUTTI_MOST_LANES", "most_lanes",
                                              "a number from 0 to 64"),
    text_knob<&Settings::plan, is_file_list>("TUTTI_PLAN", "plan",
                                             "names of files with plans, separated by commas"),
    {"TUTTI_GROUPS", "groups",
     "ranks per group, 2 to 4096; nested as in 2,8, innermost first, each a multiple of the one "
     "before",
     set_groups, [](const Settings& s) { return show_list(s.groups); }},
    {"TUTTI_WEIGHTS", "weights",
     "a number for each rank, 0 to 1024, together 1 to 65535, separated by commas", set_weights,
     [](const Settings& s) { return show_list(s.weights); }},
    number_knob<&Settings::spin, -1, 1'000'000'000>("TUTTI_SPIN", "spin",
                                                    "a number from -1 to 1000000000"),
    {"TUTTI_ADAPT", "adapt", "on or off",
     [](Settings& s, std::string_view text) {
       s.adapt = text == "on";
       return text == "on" || text == "off";
     },
     [](const Settings& s) -> std::string { return s.adapt ? "on" : "off"; }},
    text_knob<&Settings::tuning, is_path>("TUTTI_TUNING", "tuning",
                                          "a file that tutti tune wrote, or off"),
    text_knob<&Settings::topology, is_path>(
        "TUTTI_TOPOLOGY", "topology",
        "a file with the text form of a topology or NCCL's XML, or off"),
    text_knob<&Settings::topology_dump, is_path>("TUTTI_TOPOLOGY_DUMP", "topology_dump",
                                                 "a file for the topology as NCCL's XML"),
    number_knob<&Settings::topology_dump_rank, 0, 1 << 20>(
        "TUTTI_TOPOLOGY_DUMP_RANK", "topology_dump_rank", "a number from 0 to 1048576"),
    text_knob<&Settings::net_interfaces, is_interface_rule>(
        "TUTTI_NET_INTERFACES", "net_interfaces",
        "interfaces, prefixes with * or networks, separated by commas; from a ^ on they are "
        "excluded"),
    text_knob<&Settings::rdma_devices, is_device_rule>(
        "TUTTI_RDMA_DEVICES", "rdma_devices",
        "RDMA devices, prefixes with * or ports (mlx5_0:2), separated by commas; from a ^ on they "
        "are excluded"),
    number_knob<&Settings::rdma_gid_index, -1, 255>("TUTTI_RDMA_GID_INDEX", "rdma_gid_index",
                                                    "a number from -1 to 255"),
    number_knob<&Settings::rdma_traffic_class, -1, 255>(
        "TUTTI_RDMA_TRAFFIC_CLASS", "rdma_traffic_class", "a number from -1 to 255"),
    number_knob<&Settings::rdma_service_level, -1, 15>(
        "TUTTI_RDMA_SERVICE_LEVEL", "rdma_service_level", "a number from -1 to 15"),
    text_knob<&Settings::gpudirect, is_gpudirect>("TUTTI_GPUDIRECT", "gpudirect",
                                                  "auto, on or off"),
    text_knob<&Settings::peers, is_peers>("TUTTI_PEERS", "peers", "auto, nvlink or off"),
    text_knob<&Settings::flight, is_path>("TUTTI_FLIGHT", "flight",
                                          "a folder for the latest calls after an error"),
    text_knob<&Settings::trace, is_path>("TUTTI_TRACE", "trace",
                                         "a file for a trace of the calls of all ranks"),
    text_knob<&Settings::log, log::parse_levels>(
        "TUTTI_LOG", "log",
        "trace, debug, info, warn, error or off, and levels of parts as in warn,net=debug"),
}};

// Variables of launchers and users for bootstrap/launch/launch.cc, the Python packages and
// scripts/netns. They are not settings of a communicator.
constexpr std::array<std::string_view, 12> kOtherVariables{
    "TUTTI_RANK",          "TUTTI_RANK_COUNT", "TUTTI_LOCAL_RANK", "TUTTI_LOCAL_RANK_COUNT",
    "TUTTI_RENDEZVOUS",    "TUTTI_JOB",        "TUTTI_RSH",        "TUTTI_AS",
    "TUTTI_SHARE_TENSORS", "TUTTI_NETNS",      "TUTTI_SECRET",     "TUTTI_LIBRARY"};

std::vector<std::string_view> known_variables() {
  std::vector<std::string_view> known(kOtherVariables.begin(), kOtherVariables.end());
  for (const Knob& knob : kKnobs) known.emplace_back(knob.variable);
  return known;
}

/// "; did you mean TUTTI_LOG?", or where to see all. The prefix makes no variable nearer.
std::string meant(std::string_view name, std::span<const std::string_view> known) {
  constexpr std::string_view kPrefix = "TUTTI_";
  const auto bare = [&](std::string_view text) {
    return text.substr(text.starts_with(kPrefix) ? kPrefix.size() : 0);
  };
  std::vector<std::string_view> rests;
  for (const std::string_view one : known) rests.push_back(bare(one));
  const std::string_view near = nearest(bare(name), rests);
  if (near.empty()) return "; tutti info lists the settings";
  return fmt::format("; did you mean {}{}?", kPrefix, near);
}

/// A misspelt variable would be ignored in silence, so say so, once per process.
void warn_of_unknown_variables() {
  static const bool warned = [] {
    const auto known = known_variables();
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      const std::string_view text(*entry);
      const std::string_view name = text.substr(0, text.find('=')).substr(0, 64);
      if (!name.starts_with("TUTTI_")) continue;
      if (std::ranges::find(known, name) != known.end()) continue;
      log::warn(log::Part::kSettings, "{} is set, but no setting has that name{}", name,
                meant(name, known));
    }
    return true;
  }();
  static_cast<void>(warned);
}

Error refused(const Knob& knob, std::string_view name, std::string_view value) {
  return {Code::kInvalidArgument,
          fmt::format("{}='{}' is not valid: it takes {}", name, shown_value(value), knob.accepts)};
}

}  // namespace

std::string shown_value(std::string_view value) {
  constexpr std::size_t kMost = 64;
  std::string text(value.substr(0, kMost));
  for (char& c : text) c = c >= ' ' && c < 127 ? c : '?';
  return value.size() > kMost ? text + "..." : text;
}

Status check_settings(const Settings& settings) {
  Settings copy;
  for (const Knob& knob : kKnobs) {
    const std::string value = knob.show(settings);
    if (value.empty()) continue;
    if (!knob.set(copy, value))
      return refused(knob, fmt::format("Settings: {}", knob.field), value);
  }
  return ok();
}

Status change_setting(Settings& settings, std::string_view variable, std::string_view value) {
  Settings changed = settings;  // Some knobs change it before they refuse a value.
  for (const Knob& knob : kKnobs) {
    if (variable != knob.variable) continue;
    if (!knob.set(changed, value)) return refused(knob, variable, value);
    settings = std::move(changed);
    return ok();
  }
  std::vector<std::string_view> known;
  for (const Knob& knob : kKnobs) known.emplace_back(knob.variable);
  return Error{Code::kInvalidArgument, fmt::format("{}: no setting has that name{}",
                                                   shown_value(variable), meant(variable, known))};
}

Status check_setting(std::string_view variable, std::string_view value) {
  Settings scratch;
  return change_setting(scratch, variable, value);
}

Result<Settings> settings_or(const std::function<std::string(std::string_view)>& otherwise) {
  Settings settings;
  for (const Knob& knob : kKnobs) {
    const char* set = secure_getenv(knob.variable);
    const bool unset = set == nullptr || *set == 0;  // Empty means unset, as in most shells' use.
    const std::string value = unset ? otherwise(knob.variable) : set;
    if (value.empty()) continue;
    if (!knob.set(settings, value)) return refused(knob, knob.variable, value);
  }
  // Logging is the process's: the last one to read the environment decides.
  log::set_levels(log::parse_levels(settings.log).value_or(log::all_at(log::Level::kWarn)));
  warn_of_unknown_variables();
  return settings;
}

Result<Settings> Settings::from_environment() {
  return settings_or([](std::string_view) { return std::string(); });
}

std::string default_tuning_file() {
  // A relative path is to be ignored, says the specification.
  for (const auto& [variable, below] :
       {std::pair{"XDG_CACHE_HOME", ""}, std::pair{"HOME", "/.cache"}}) {
    const char* value = secure_getenv(variable);
    if (value != nullptr && *value == '/') return std::string(value) + below + "/tutti/tuning.json";
  }
  return {};
}

std::vector<SettingRow> setting_rows(const Settings& settings) {
  const Settings defaults;
  std::vector<SettingRow> rows;
  for (const Knob& knob : kKnobs) {
    const std::string value = knob.show(settings);
    const char* variable = secure_getenv(knob.variable);
    Settings named;
    // Where a value came from is told from the value itself: fields are plain and may be assigned.
    const bool from_variable = variable != nullptr && *variable != 0 && knob.set(named, variable) &&
                               knob.show(named) == value;
    const char* source = from_variable                  ? knob.variable
                         : value == knob.show(defaults) ? "default"
                                                        : "program";
    rows.push_back({knob.field, knob.variable, knob.accepts, value, source});
  }
  return rows;
}

std::string Settings::to_string() const {
  std::string text;
  for (const SettingRow& row : setting_rows(*this)) {
    text += fmt::format("{} = {}  ({})\n", row.field, row.value.empty() ? "any" : row.value,
                        row.source);
  }
  return text;
}

}  // namespace tutti
