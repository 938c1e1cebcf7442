// File: compat/nccl/environment.h: NCCL's own variables, and what each of them is here.
//
// One table (`variables`) says for every variable which setting it becomes, what it takes and how
// it is parsed; docs/nccl.md has the same table. A variable of Tutti's that is set goes before
// NCCL's. The process's variables are read once, with NCCL's configuration files behind them.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::nccl {

inline constexpr int kMostLanes = 64;  // That TUTTI_LEAST_LANES and TUTTI_MOST_LANES take.

struct Variable {
  std::string_view name;
  std::string_view setting;  // The variable of Tutti's that it sets; empty: none.
  std::string_view takes;    // Empty: it has no meaning here.
  std::string_view note;     // What it does, or what to do instead.
  /// What `text` stands for, where `before` is what variables further up made of the same setting.
  /// Empty: what is the default anyway; nothing: not one of what it takes. Null: no meaning here.
  std::optional<std::string> (*parse)(std::string_view text, const std::string& before) = nullptr;
};
std::span<const Variable> variables();

using Values = std::map<std::string, std::string, std::less<>>;

/// What variables stand for.
struct Environment {
  Values settings;                      // By the names of Tutti's variables.
  Values own;                           // By NCCL's, of variables that this library reads itself.
  std::vector<std::string> notes;       // A line for each variable that has an effect.
  std::vector<std::string> complaints;  // A line for each value that is refused.
  std::string ignored;  // One line that names those without a meaning here; empty: none is set.
};
/// Pure. `set` has NCCL_... variables; others are left out.
Environment read_variables(const Values& set);

/// Adds the lines NAME=value of a configuration file that begin with NCCL_ and are not in `set`
/// yet; long ones and many are left out. Pure.
void add_configuration(Values& set, std::string_view text);

/// What a network of NCCL's is as TUTTI_TRANSPORT: IB or Socket, in any case; nothing: another.
std::optional<std::string> transport_of_network(std::string_view name);

/// NCCL_DEBUG, from silent to all.
enum class DebugLevel { kNone, kVersion, kWarn, kInfo, kTrace };
DebugLevel debug_level(const Environment& environment);

/// A file's name with %h as the host and %p as the process.
std::string expand_file_name(std::string_view text, std::string_view host, int process);

/// host:port or [IPv6]:port; nothing for any other text.
struct Place {
  std::string host;
  int port = 0;
};
std::optional<Place> parse_place(std::string_view text);

/// This process's: read at the first call, which also starts what NCCL_DEBUG asks for. Any thread.
const Environment& environment();
/// A variable as it is now, or else as the configuration files have it; empty: not set.
std::string value_of(const char* variable);

}  // namespace tutti::nccl
