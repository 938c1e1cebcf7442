// File: base/settings/settings_table.h: the settings as rows, for code that prints them, and where
// files are that a user has once for all programs.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/settings.h"

namespace tutti {

struct SettingRow {
  std::string_view field, variable, accepts;
  std::string value;
  std::string_view source;  // The variable, "default", or "program".
};

/// One row per setting, in the order of tutti/settings.h.
std::vector<SettingRow> setting_rows(const Settings& settings);

/// As Settings::from_environment, but what no variable sets is what `otherwise` says of it, by the
/// variable's name; empty: the default.
Result<Settings> settings_or(const std::function<std::string(std::string_view)>& otherwise);

/// Ok if the setting of that variable takes that value; else kInvalidArgument, which says what it
/// takes.
Status check_setting(std::string_view variable, std::string_view value);

/// Sets the setting of that variable. kInvalidArgument, and no change, as check_setting says.
Status change_setting(Settings& settings, std::string_view variable, std::string_view value);

/// A variable's value, or its name, for a line of text: at most 64 characters and "...", with ? for
/// those that are not printable.
std::string shown_value(std::string_view value);

/// Whether every field has a value that its variable would take: programs may assign what they
/// like. kInvalidArgument in one line that names the first that has not.
Status check_settings(const Settings& settings);

/// Where `tutti tune` keeps its tables: tutti/tuning.json in $XDG_CACHE_HOME or ~/.cache (as the
/// XDG Base Directory Specification says). Empty where neither is known.
std::string default_tuning_file();

}  // namespace tutti
