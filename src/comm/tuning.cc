#include "comm/tuning.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include <fmt/format.h>

#include "base/log.h"
#include "base/settings_paths.h"
#include "topology/fingerprint.h"

namespace tutti {
namespace {

// What rank 0's bytes begin with.
constexpr char kTables = 'T', kFailed = 'E';

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

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

Status write_tuning_file(const std::string& path, const std::vector<planner::TuningTable>& tables) {
  const std::string text = planner::tuning_text(tables);
  const auto folder = std::filesystem::path(path).parent_path();
  std::error_code failure;
  if (!folder.empty()) std::filesystem::create_directories(folder, failure);
  const std::string written = path + ".new";
  {
    const File file(std::fopen(written.c_str(), "wbe"));
    if (file == nullptr) return system_error(written);
    if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
        std::fflush(file.get()) != 0)
      return system_error(written);
  }
  if (std::rename(written.c_str(), path.c_str()) != 0) return system_error(path);
  return ok();
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
    log::warn("{}; going on without it", error.what);
    return tuning;
  }
  const std::uint64_t machine = topology::fingerprint_of_this_machine();
  planner::TuningKey here;
  here.machine = machine;
  here.version = TUTTI_VERSION;
  for (planner::TuningTable& table : *tables) {
    if (table.key.machine == machine && table.key.version == here.version)
      tuning.tables.push_back(std::move(table));
  }
  if (tuning.tables.empty()) tuning.reason = planner::why_no_table(*tables, here);
  return tuning;
}

Bytes pack_tuning(const Result<Tuning>& found) {
  std::string text(1, found ? kTables : kFailed);
  if (found) {
    text += found->source + "\n" + found->reason + "\n";
    if (!found->tables.empty()) text += planner::tuning_text(found->tables);
  } else {
    text += found.error().what;
  }
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Result<Tuning> unpack_tuning(std::span<const std::byte> bytes) {
  std::string text(bytes.size(), 0);
  for (std::size_t i = 0; i < bytes.size(); ++i) text[i] = static_cast<char>(bytes[i]);
  if (!text.empty() && text[0] == kFailed) return Error{Code::kInvalidArgument, text.substr(1)};
  const auto source_end = text.find('\n');
  const auto reason_end =
      source_end == std::string::npos ? source_end : text.find('\n', source_end + 1);
  if (text.empty() || text[0] != kTables || reason_end == std::string::npos)
    return Error{Code::kMismatch, "rank 0 sent something else than its tuning"};
  Tuning tuning{
      text.substr(1, source_end - 1), text.substr(source_end + 1, reason_end - source_end - 1), {}};
  if (reason_end + 1 < text.size()) {
    TUTTI_TRY(tuning.tables,
              planner::parse_tuning(std::string_view(text).substr(reason_end + 1), tuning.source));
  }
  return tuning;
}

}  // namespace tutti
