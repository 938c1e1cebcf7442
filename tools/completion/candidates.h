// File: tools/completion/candidates.h: what can stand where a shell's cursor is.
//
// The scripts of shells know no command and no option: at each Tab they run `tutti candidates
// WORD...` with the words before the cursor and the one at it. The answer comes out of the parser
// that reads command lines and prints --help, so it names what this build takes. An option's words
// are those of perf::offer; it takes files or folders if its type in --help says so.
//
// The answer is lines. The first says what the shell adds by itself: nothing, files, folders, or
// command (all behind "--" is another program's command line). Each other line is a word that can
// stand at the cursor, a tab, and what --help says of it.
#pragma once
#include <string>
#include <vector>

#include "perf/command_line/command_line.h"

namespace tutti::tools {

/// Asks for the answer, as the first word after `tutti`. It is no subcommand, because the words
/// behind it are options of others.
inline constexpr const char* kCandidates = "candidates";

/// The answer; `words` are those after `tutti`, the last is at the cursor and may be empty. Not
/// only words that begin like it are named: shells differ in what they take for alike.
std::string candidates(const perf::Command& command, const std::vector<std::string>& words);

}  // namespace tutti::tools
