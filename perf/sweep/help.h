// File: sweep/help.h: options, what is wrong with them, --help in lines of at most 100 columns, and
// the words of an option that shells complete.
#pragma once
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tutti/result.h"

namespace tutti {

/// The user's mistake, in words.
template <class... Args>
Error invalid(fmt::format_string<Args...> text, Args&&... args) {
  return {Code::kInvalidArgument, fmt::format(text, std::forward<Args>(args)...)};
}

namespace perf {

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    return folded(CLI::Formatter::make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::ostringstream out;
    CLI::detail::format_help(out, command->get_display_name(true),
                             folded(command->get_description()), get_column_width());
    return out.str();
  }

 private:
  /// Wraps a text into lines that fit beside the names, at blanks; longer words stay whole.
  std::string folded(const std::string& text) const {
    const std::size_t room = 100 - get_column_width();
    std::string lines;
    std::size_t at = 0;
    while (text.size() - at > room) {
      std::size_t end = text.rfind(' ', at + room);
      if (end == std::string::npos || end <= at) end = text.find(' ', at);
      if (end == std::string::npos) break;
      lines += text.substr(at, end - at) + "\n";
      at = end + 1;
    }
    return lines + text.substr(at);
  }
};

/// An option whose default --help shows.
template <class T>
CLI::Option* add_shown(CLI::App& app, const std::string& names, T& into, const std::string& text) {
  return app.add_option(names, into, text)->capture_default_str();
}
/// One that is a number with limits.
template <class T, class Limit>
CLI::Option* add_number(CLI::App& app, const std::string& names, T& into, const std::string& text,
                        Limit least, Limit most) {
  return add_shown(app, names, into, text)->check(CLI::Range(least, most));
}

/// Names the words that an option takes, for shells to complete. They ride on the option as a
/// validator that is switched off: it refuses nothing, and --help does not show it.
inline CLI::Option* offer(CLI::Option* option, const std::vector<std::string>& words) {
  const CLI::Validator carrier(CLI::detail::join(words, "\n"));
  return option->check(carrier.name("words").active(false));
}
/// Those words; none if nobody named any.
inline std::vector<std::string> offered(CLI::Option& option) {
  try {
    CLI::Validator* carrier = option.get_validator("words");
    const std::string words = carrier->active(true).get_description();
    carrier->active(false);
    return words.empty() ? std::vector<std::string>{} : CLI::detail::split(words, '\n');
  } catch (const CLI::OptionNotFound&) {
    return {};
  }
}
/// One that takes some words only.
inline CLI::Option* add_word(CLI::App& app, const std::string& names, std::string& into,
                             const std::string& text, const std::vector<std::string>& words) {
  return offer(add_shown(app, names, into, text)->check(CLI::IsMember(words).description("")),
               words);
}

}  // namespace perf
}  // namespace tutti
