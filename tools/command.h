// File: tools/command.h: what a subcommand of `tutti` is.
//
// To add one: write a file that defines `void define_NAME(const perf::Command& app, int&
// exit_code)`, which adds the subcommand with its options, and a callback that does the work and
// sets the exit code; and add one line to commands.def. A usage error is one line on stderr and
// exit code 2 (kUsage). It writes with say, say_error and write_file (base/output.h). Before its
// work it checks the files that it will write.
#pragma once
#include <fmt/format.h>

#include <utility>

#include "base/output.h"
#include "perf/command_line/command_line.h"
#include "tutti/result.h"

namespace tutti::tools {

inline constexpr int kUsage = 2;

/// The user's mistake, in words.
template <class... Args>
Error invalid(fmt::format_string<Args...> text, Args&&... args) {
  return {Code::kInvalidArgument, fmt::format(text, std::forward<Args>(args)...)};
}

#define TUTTI_COMMAND(name) void define_##name(const perf::Command& app, int& exit_code);
#include "tools/commands.def"
#undef TUTTI_COMMAND

}  // namespace tutti::tools
