// File: tools/command.h: what a subcommand of `tutti` is.
//
// To add one: write a file that defines `void define_NAME(CLI::App& app, int& exit_code)`, which
// adds the subcommand with its options, and a callback that does the work and sets the exit code;
// and add one line to commands.def. A usage error is one line on stderr and exit code 2 (kUsage).
// It writes with say, say_error and write_file (base/output.h). Before its work it checks the files
// that it will write.
#pragma once
#include <CLI/CLI.hpp>

#include "base/output.h"

namespace tutti::tools {

inline constexpr int kUsage = 2;

#define TUTTI_COMMAND(name) void define_##name(CLI::App& app, int& exit_code);
#include "tools/commands.def"
#undef TUTTI_COMMAND

}  // namespace tutti::tools
