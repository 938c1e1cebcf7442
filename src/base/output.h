// File: base/output.h: how programs write to standard output and to files named on a command line.
//
// A failed write must not pass for success. Standard output remembers its first failure, and the
// program ends with `finish_output`. A program checks a file before it does the work. The text is
// written to a new file beside it, which is then renamed: the file has the whole text or keeps what
// it had.
#pragma once
#include <fmt/format.h>

#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "tutti/result.h"

namespace tutti {

/// Writes to standard output and remembers a failure. Any thread.
void put_output(std::string_view text);
void flush_output();
/// The errno of the first write that failed; 0: none has.
int output_failure();

/// fmt::print would throw where nothing can be written; these do not.
template <class... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
  put_output(fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void say_error(fmt::format_string<Args...> text, Args&&... args) {
  // A failure could be reported nowhere.
  (void)!std::fputs(fmt::format(text, std::forward<Args>(args)...).c_str(), stderr);
}

/// Call it first in main. Opens those of descriptors 0 to 2 that are closed, so that no other file
/// gets their numbers. Writes to a standard output that was closed still fail.
void fill_standard_descriptors();

/// Call it last in main; returns the exit code. If standard output could not be written, it prints
/// one line on stderr, and the code is not 0. If SIGPIPE is ignored and the reader has gone, it
/// ends the process by that signal.
int finish_output(std::string_view program, int exit_code);

/// "standard output could not be written: No space left on device".
std::string output_failure_words(int failure);

/// An option that names a file to write, and the given path: "" if the option was not given, "-"
/// for standard output.
struct OutputOption {
  std::string_view option;
  const std::string& path;
};
/// Checks, before the work, that all of them can be written. kInvalidArgument names the option, the
/// path and the reason.
Status check_outputs(std::initializer_list<OutputOption> outputs);

/// Writes the whole text, or leaves the file as it was. A pipe or device is written directly.
Status write_file(const std::string& path, std::string_view text);

/// Writes to standard output if the path is "" or "-", else to the file.
Status write_text(const std::string& path, std::string_view text);

}  // namespace tutti
