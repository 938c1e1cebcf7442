// File: base/output.h: what a program writes for people and for other programs: standard output,
// and files that a command line names.
//
// A failed write must not pass for success. Standard output remembers its first failure, and the
// program ends with `finish_output`. A file is checked before the work whose result it gets, and is
// written beside and then renamed: it has the whole text or what it had before.
#pragma once
#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "tutti/result.h"

namespace tutti {

/// Writes to standard output; a failure is remembered. Any thread.
void put_output(std::string_view text);
void flush_output();
/// The errno of the first write that failed; 0: none has.
int output_failure();

/// fmt::print would throw where nothing can be written; these do not.
template <class... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
  put_output(fmt::format(text, std::forward<Args>(args)...));
}
void put_error(std::string_view text);
template <class... Args>
void say_error(fmt::format_string<Args...> text, Args&&... args) {
  put_error(fmt::format(text, std::forward<Args>(args)...));
}

/// First thing in main: opens those of descriptors 0 to 2 that are closed, so that no other file
/// becomes one of them. What is then written to standard output fails, as it would have.
void fill_standard_descriptors();

/// Last thing in main: the exit code. If standard output could not be written, one line on stderr
/// says so, and the code is not 0. Where SIGPIPE is ignored and the reader has gone, the signal
/// ends the process.
int finish_output(std::string_view program, int exit_code);

/// "standard output could not be written: No space left on device".
std::string output_failure_words(int failure);

/// An option that names a file to write, and what was given: "" if nothing was, "-" for standard
/// output.
struct OutputOption {
  std::string_view option;
  const std::string& path;
};
/// Before the work: whether all of them can be written. kInvalidArgument names option, path,
/// reason.
Status check_outputs(std::initializer_list<OutputOption> outputs);

/// Whether write_file could write there: what it needs is tried, and nothing is left. The error is
/// "can't write 'PATH': " and the system's reason.
Status check_writable(const std::string& path);

/// The whole text or nothing. What is no regular file (a pipe, a device) is written as it is.
Status write_file(const std::string& path, std::string_view text);

/// To standard output if the path is "" or "-", else to the file.
Status write_text(const std::string& path, std::string_view text);

}  // namespace tutti
