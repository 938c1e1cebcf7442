// File: perf/command_line/command_line.h: how programs read their command lines: options with
// checks, --help, subcommands, and the words of an option that shells complete.
//
// CLI11 does the work. Its header makes the compiler work 8 to 12 seconds longer on each file that
// includes it (GCC 12, CLI11 2.1.2), so no header does, and of the sources only command_line.cc and
// what asks the parser itself (tools/completion). The types here hold a pointer to CLI11's; their
// functions have the names and the meanings of CLI11's. A copy is the same command or option. All
// of them belong to the CommandLine. It, and the variables that options fill, must outlive them.
//
// To add a type of values, name it in OptionValue and instantiate add_option for it in the .cc. To
// add another of CLI11's functions, declare it here and call CLI11's there.
#pragma once
#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the name is CLI11's.
class App;
class Option;
}  // namespace CLI

namespace tutti::perf {

/// What an option can hold.
template <class T>
concept OptionValue = std::same_as<T, int> || std::same_as<T, std::size_t> ||
    std::same_as<T, double> || std::same_as<T, std::string> || std::same_as<T, std::vector<int>> ||
    std::same_as<T, std::vector<std::string>>;

/// What is asked of a value.
struct Validator {
  /// What is wrong with it; empty: nothing is.
  std::function<std::string(const std::string& value)> error;
  /// What --help says of it, behind the type; empty: nothing.
  std::string text;

  /// The same with another text.
  Validator description(std::string other) const { return {error, std::move(other)}; }
};

/// Both limits are inside.
Validator range(int least, int most);
Validator range(std::size_t least, std::size_t most);
Validator range(double least, double most);
Validator positive_number();
Validator non_negative_number();
Validator existing_directory();
Validator is_member(const std::vector<std::string>& words);

/// An option or a flag.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option check(const Validator& validator) const;
  /// Reads "64K" and "64kb" as 65536. Checks come after it.
  Option as_size_value() const;
  /// --help shows the value that the variable has now.
  Option capture_default_str() const;
  /// A value is a list with this character between its parts.
  Option delimiter(char character) const;
  /// This environment variable has the value if the command line does not.
  Option envname(const std::string& name) const;
  Option excludes(Option other) const;
  /// The heading in --help that it stands under; empty: not in the help.
  Option group(const std::string& name) const;
  Option needs(Option other) const;
  Option required() const;
  Option type_name(const std::string& name) const;

 private:
  friend Option offer(Option option, const std::vector<std::string>& words);

  CLI::Option* option_;
};

/// A program's command line, or a subcommand.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  /// A double has to be finite.
  template <OptionValue T>
  Option add_option(const std::string& names, T& into, const std::string& text = "") const;
  Option add_flag(const std::string& names, bool& into, const std::string& text) const;
  Command add_subcommand(const std::string& name, const std::string& text) const;

  /// What is called when the command line has been read, if it names this subcommand.
  void callback(std::function<void()> call) const;
  /// The text at the end of --help.
  void footer(const std::string& text) const;
  std::string get_footer() const;
  /// As Option::group.
  void group(const std::string& name) const;
  void require_subcommand(std::size_t least, std::size_t most) const;

  /// How often the command line has this option.
  std::size_t count(const std::string& option) const;
  /// The names of its subcommands that the command line has.
  std::vector<std::string> get_subcommands() const;

  /// For what asks CLI11 itself (tools/completion).
  CLI::App& app() const { return *app_; }

 private:
  CLI::App* app_;
};

/// Why a program ends before its work.
struct Ending {
  /// For --help and --version 0, and `text` is what to print. Else CLI11's code of the error, and
  /// `text` says it in one line. If an argument is unknown, that comes first, with the name that
  /// was probably meant.
  int exit_code = 0;
  std::string text;
};

/// The command line of a program.
class CommandLine : public Command {
 public:
  /// Without a name, --help has that of the file that was started.
  explicit CommandLine(const std::string& description, const std::string& name = "");
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// --help, also that of subcommands added later, has lines of at most 100 columns.
  void fold_help();
  void set_version_flag(const std::string& names, const std::string& version);

  /// Fills the variables and calls the callbacks; prints nothing.
  std::optional<Ending> parse(int count, const char* const* words);
  /// The same, but prints as CLI11 does what ends the program; then returns the exit code.
  std::optional<int> parse_or_print(int count, const char* const* words);

 private:
  explicit CommandLine(std::unique_ptr<CLI::App> root);

  std::unique_ptr<CLI::App> root_;
};

/// An option whose default --help shows.
template <OptionValue T>
Option add_shown(const Command& command, const std::string& names, T& into,
                 const std::string& text) {
  return command.add_option(names, into, text).capture_default_str();
}
/// One that is a number with limits.
template <OptionValue T, class Limit>
Option add_number(const Command& command, const std::string& names, T& into,
                  const std::string& text, Limit least, Limit most) {
  return add_shown(command, names, into, text).check(range(least, most));
}
/// One that takes some words only.
Option add_word(const Command& command, const std::string& names, std::string& into,
                const std::string& text, const std::vector<std::string>& words);

/// Names the words that an option takes, for shells to complete.
Option offer(Option option, const std::vector<std::string>& words);
/// Those words; none if nobody named any.
std::vector<std::string> offered(CLI::Option& option);

}  // namespace tutti::perf
