#include "comm/tuning.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include <fmt/format.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/settings/settings_table.h"
#include "topology/probe/fingerprint.h"

namespace tutti {
namespace {

// Rank 0's bytes begin with one of these.
constexpr char kTables = 'T', kFailed = 'E';
// Bytes of tables that go through a communicator: exchange_over takes twice as much.
constexpr std::size_t kMostHandedOn = std::size_t{1} << 19;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

/// A rank's description of its host. Plain data.
struct HostHello {
  std::uint64_t machine = 0;
  std::array<char, 64> name = {};
};

/// As a table takes it, whatever the bytes are.
std::string word_of(const std::array<char, 64>& name) {
  std::string word(name.data(), strnlen(name.data(), name.size()));
  for (char& c : word) c = c > ' ' && c <= '~' ? c : '?';
  return word.empty() ? "?" : word;
}

Error system_error(const std::string& what) {
  return {Code::kSystem, fmt::format("{}: {}", what, std::generic_category().message(errno))};
}

}  // namespace

Result<std::vector<planner::TuningTable>> read_tuning_file(const std::string& path) {
  const File file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return system_error(path);
  std::string text(planner::kMostTuningBytes + 1, 0);
  const std::size_t size = std::fread(text.data(), 1, text.size(), file.get());
  if (std::ferror(file.get()) != 0) return system_error(path);
  text.resize(size);
  return planner::parse_tuning(text, path);
}

Result<Tuning> find_tuning(const Settings& settings) {
  Tuning tuning;
  if (settings.tuning == "off") {
    tuning.reason = "switched off";
    return tuning;
  }
  const bool asked = !settings.tuning.empty();
  const std::string path = asked ? settings.tuning : default_tuning_file();
  std::error_code ignored;
  if (!asked && (path.empty() || !std::filesystem::exists(path, ignored))) {
    tuning.reason = "none; `tutti tune` makes one";
    return tuning;
  }
  tuning.source = path;
  auto tables = read_tuning_file(path);
  if (!tables) {
    Error error = std::move(tables.error());
    error.what = fmt::format("TUTTI_TUNING: {}", error.what);
    if (asked) return error;
    tuning.reason = error.what;
    log::warn(log::Part::kPlans, "{}; going on without it", error.what);
    return tuning;
  }
  tuning.machine = topology::fingerprint_of_this_machine();
  planner::TuningKey here;
  here.machine = tuning.machine;
  here.version = TUTTI_VERSION;
  for (planner::TuningTable& table : *tables) {
    const bool may_hold = !table.key.hosts.empty() || table.key.machine == here.machine;
    if (may_hold && table.key.version == here.version) tuning.tables.push_back(std::move(table));
  }
  if (tuning.tables.empty()) tuning.reason = planner::why_no_table(*tables, here);
  return tuning;
}

std::optional<Tuning> find_tuning_of_part(const Settings& settings, int rank_count,
                                          const Tuning& whole) {
  if (whole.machine != 0 && whole.machine == topology::fingerprint_of_this_machine())
    return std::nullopt;
  auto found = find_tuning(settings);
  if (!found) {
    log::warn(log::Part::kPlans, "{}; going on without it", found.error().what);
    Tuning none;
    none.reason = found.error().what;
    return none;
  }
  std::erase_if(found->tables, [rank_count](const planner::TuningTable& table) {
    return table.key.rank_count > rank_count;  // Nor will a part of it have more.
  });
  if (pack_tuning(*found).size() > kMostHandedOn) {
    found->tables.clear();
    found->reason = fmt::format("its tables have more than {} bytes", kMostHandedOn);
  }
  return *std::move(found);
}

Result<TunedHosts> meet_hosts(const std::vector<int>& hosts, const Exchange& exchange) {
  HostHello mine;
  mine.machine = topology::fingerprint_of_this_machine();
  if (::gethostname(mine.name.data(), mine.name.size() - 1) != 0) mine.name = {};
  TUTTI_TRY(const auto all, exchange("hosts", std::as_bytes(std::span(&mine, 1))));
  TunedHosts met;
  std::string machines;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    // A host is counted when its first rank is: of the others nothing new is heard.
    if (hosts[rank] != static_cast<int>(met.names.size())) continue;
    HostHello theirs;
    if (all[rank].size() != sizeof(theirs))
      return Error{Code::kMismatch, fmt::format("rank {} says no host", rank)};
    std::memcpy(&theirs, all[rank].data(), sizeof(theirs));
    met.names.push_back(word_of(theirs.name));
    machines += fmt::format("{:016x}", theirs.machine);
  }
  met.machine = hash_text(machines);
  return met;
}

Bytes pack_tuning(const Result<Tuning>& found) {
  std::string text(1, found ? kTables : kFailed);
  if (found) {
    text += fmt::format("{}\n{}\n{:x}\n", found->source, found->reason, found->machine);
    if (!found->tables.empty()) text += planner::tuning_text(found->tables);
  } else {
    text += found.error().what;
  }
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Result<Tuning> unpack_tuning(std::span<const std::byte> bytes) {
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.size() > 1 && text[0] == kFailed) return Error{Code::kInvalidArgument, text.substr(1)};
  const auto source_end = text.find('\n');
  const auto reason_end =
      source_end == std::string::npos ? source_end : text.find('\n', source_end + 1);
  const auto machine_end =
      reason_end == std::string::npos ? reason_end : text.find('\n', reason_end + 1);
  Tuning tuning;
  const bool good =
      !text.empty() && text[0] == kTables && machine_end != std::string::npos &&
      std::from_chars(text.data() + reason_end + 1, text.data() + machine_end, tuning.machine, 16)
              .ptr == text.data() + machine_end;
  if (!good) return Error{Code::kMismatch, "rank 0 sent something else than its tuning"};
  tuning.source = text.substr(1, source_end - 1);
  tuning.reason = text.substr(source_end + 1, reason_end - source_end - 1);
  if (machine_end + 1 < text.size()) {
    TUTTI_TRY(tuning.tables,
              planner::parse_tuning(std::string_view(text).substr(machine_end + 1), tuning.source));
  }
  return tuning;
}

}  // namespace tutti
