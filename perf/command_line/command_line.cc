#include "perf/command_line/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <sstream>
#include <string_view>

#include "base/nearest.h"

namespace tutti::perf {
namespace {

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

/// CLI11's own checks compare, and so let NaN pass.
std::string why_not_finite(const std::string& text) {
  double value = 0;
  if (!CLI::detail::lexical_cast(text, value) || std::isfinite(value)) return {};
  return fmt::format("'{}' is not a finite number", text);
}

/// One of CLI11's as ours.
Validator ours(const CLI::Validator& theirs) {
  return {[theirs](const std::string& value) { return theirs(value); }, theirs.get_description()};
}

std::vector<std::string_view> views(const std::vector<std::string>& words) {
  return {words.begin(), words.end()};
}

/// What to say of an argument that this command does not take.
std::string unknown_argument(const CLI::App& app, const std::string& argument) {
  std::vector<std::string> known;
  if (argument.starts_with('-') && argument.size() > 1) {
    // Dashes make no option nearer, and what follows "=" is its value.
    const std::string name = argument.substr(0, argument.find('='));
    for (const CLI::Option* option : app.get_options()) {
      for (const auto& one : option->get_lnames()) {
        if (!option->get_group().empty()) known.push_back(one);
      }
    }
    const auto bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
    const std::string_view near = nearest(bare, views(known));
    const std::string text = fmt::format("unknown option '{}'", name);
    return near.empty() ? text : fmt::format("{}; did you mean '--{}'?", text, near);
  }
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!sub->get_group().empty()) known.push_back(sub->get_name());
  }
  return unknown_word(known.empty() ? "argument" : "command", argument, views(known));
}

/// The same of the first such argument of a command, or of the first one at all if that is an
/// option: what follows an option of a command that is not known may be its value, which CLI11
/// gives to the whole. Empty: there is none.
std::string unknown_argument(const CLI::App& root) {
  std::string word;
  for (const CLI::App* app = &root; app != nullptr;) {
    for (const std::string& argument : app->remaining()) {
      if (argument == "--") continue;
      if (argument.starts_with('-')) return unknown_argument(*app, argument);
      if (word.empty()) word = unknown_argument(*app, argument);
      break;
    }
    const auto subs = app->get_subcommands();
    app = subs.empty() ? nullptr : subs.front();
  }
  return word;
}

template <class Number>
Validator whole_range(Number least, Number most) {
  return {[least, most](const std::string& text) -> std::string {
            Number value = 0;
            if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most)
              return {};
            return fmt::format("'{}' is not a whole number from {} to {}", text, least, most);
          },
          CLI::Range(least, most).get_description()};
}

}  // namespace

Validator range(int least, int most) { return whole_range(least, most); }
Validator range(std::size_t least, std::size_t most) { return whole_range(least, most); }
Validator range(double least, double most) {
  return {[least, most](const std::string& text) -> std::string {
            double value = 0;
            const bool is_number = CLI::detail::lexical_cast(text, value);
            if (is_number && value >= least && value <= most) return {};
            return fmt::format("'{}' is not a number from {:g} to {:g}", text, least, most);
          },
          fmt::format("[{:g} - {:g}]", least, most)};
}

Validator positive_number() { return ours(CLI::PositiveNumber); }
Validator non_negative_number() { return ours(CLI::NonNegativeNumber); }
Validator existing_directory() { return ours(CLI::ExistingDirectory); }
Validator is_member(const std::vector<std::string>& words) {
  return {[words](const std::string& value) -> std::string {
            if (std::ranges::find(words, value) != words.end()) return {};
            return unknown_of("value", value, views(words));
          },
          CLI::IsMember(words).get_description()};
}

Option Option::check(const Validator& validator) const {
  return Option(option_->check(CLI::Validator(validator.error, validator.text)));
}
Option Option::as_size_value() const { return Option(option_->transform(CLI::AsSizeValue(false))); }
Option Option::capture_default_str() const { return Option(option_->capture_default_str()); }
Option Option::delimiter(char character) const { return Option(option_->delimiter(character)); }
Option Option::envname(const std::string& name) const { return Option(option_->envname(name)); }
Option Option::excludes(Option other) const { return Option(option_->excludes(other.option_)); }
Option Option::group(const std::string& name) const { return Option(option_->group(name)); }
Option Option::needs(Option other) const { return Option(option_->needs(other.option_)); }
Option Option::required() const { return Option(option_->required()); }
Option Option::type_name(const std::string& name) const { return Option(option_->type_name(name)); }

template <OptionValue T>
Option Command::add_option(const std::string& names, T& into, const std::string& text) const {
  CLI::Option* const option = app_->add_option(names, into, text);
  if constexpr (std::same_as<T, double>) option->check(CLI::Validator(why_not_finite, ""));
  return Option(option);
}
template Option Command::add_option(const std::string&, int&, const std::string&) const;
template Option Command::add_option(const std::string&, std::size_t&, const std::string&) const;
template Option Command::add_option(const std::string&, double&, const std::string&) const;
template Option Command::add_option(const std::string&, std::string&, const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<int>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<std::string>&,
                                    const std::string&) const;

Option Command::add_flag(const std::string& names, bool& into, const std::string& text) const {
  return Option(app_->add_flag(names, into, text));
}
Command Command::add_subcommand(const std::string& name, const std::string& text) const {
  return Command(app_->add_subcommand(name, text));
}
void Command::callback(std::function<void()> call) const { app_->callback(std::move(call)); }
void Command::footer(const std::string& text) const { app_->footer(text); }
std::string Command::get_footer() const { return app_->get_footer(); }
void Command::group(const std::string& name) const { app_->group(name); }
void Command::require_subcommand(std::size_t least, std::size_t most) const {
  app_->require_subcommand(least, most);
}
std::size_t Command::count(const std::string& option) const { return app_->count(option); }
std::vector<std::string> Command::get_subcommands() const {
  std::vector<std::string> names;
  for (const CLI::App* sub : app_->get_subcommands()) names.push_back(sub->get_name());
  return names;
}

CommandLine::CommandLine(const std::string& description, const std::string& name)
    : CommandLine(std::make_unique<CLI::App>(description, name)) {}
CommandLine::CommandLine(std::unique_ptr<CLI::App> root)
    : Command(root.get()), root_(std::move(root)) {}
CommandLine::~CommandLine() = default;

void CommandLine::fold_help() { root_->formatter(std::make_shared<HelpFormatter>()); }
void CommandLine::set_version_flag(const std::string& names, const std::string& version) {
  root_->set_version_flag(names, version);
}

std::optional<Ending> CommandLine::parse(int count, const char* const* words) {
  try {
    root_->parse(count, words);
    return std::nullopt;
  } catch (const CLI::Success& success) {  // --help or --version.
    std::ostringstream out;
    const int exit_code = root_->exit(success, out, out);
    return Ending{exit_code, out.str()};
  } catch (const CLI::ParseError& error) {
    // What a misspelt word was meant to be may be all that is missing.
    const int code = error.get_exit_code();
    const bool is_unknown = code == static_cast<int>(CLI::ExitCodes::ExtrasError) ||
                            code == static_cast<int>(CLI::ExitCodes::RequiredError);
    const std::string unknown = is_unknown ? unknown_argument(*root_) : "";
    const std::string what = error.what();
    return Ending{code, unknown.empty() ? what.substr(0, what.find('\n')) : unknown};
  }
}

std::optional<int> CommandLine::parse_or_print(int count, const char* const* words) {
  try {
    root_->parse(count, words);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    return root_->exit(error);
  }
}

Option add_word(const Command& command, const std::string& names, std::string& into,
                const std::string& text, const std::vector<std::string>& words) {
  return offer(add_shown(command, names, into, text).check(is_member(words).description("")),
               words);
}

/// They ride on the option as a validator that is switched off: it refuses nothing, and --help does
/// not show it.
Option offer(Option option, const std::vector<std::string>& words) {
  const CLI::Validator carrier(CLI::detail::join(words, "\n"));
  return Option(option.option_->check(carrier.name("words").active(false)));
}
std::vector<std::string> offered(CLI::Option& option) {
  try {
    CLI::Validator* carrier = option.get_validator("words");
    const std::string words = carrier->active(true).get_description();
    carrier->active(false);
    return words.empty() ? std::vector<std::string>{} : CLI::detail::split(words, '\n');
  } catch (const CLI::OptionNotFound&) {
    return {};
  }
}

}  // namespace tutti::perf
