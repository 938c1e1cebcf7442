#include "tools/completion/candidates.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

namespace tutti::tools {
namespace {

/// What a value is, beside the words that the option offers.
enum class Kind { kWord, kFile, kFolder, kCommand };

/// By what --help shows as its type, or as the positional's name.
Kind kind_of(const CLI::Option& option) {
  const std::string shown = option.get_type_name() + " " + option.get_name(true);
  const auto says = [&](const char* word) { return shown.find(word) != std::string::npos; };
  if (says("COMMAND")) return Kind::kCommand;
  if (says("FILE") || says("PATH")) return Kind::kFile;
  return says("FOLDER") ? Kind::kFolder : Kind::kWord;
}

bool is_shown(const CLI::Option& option) { return !option.get_group().empty(); }

std::vector<CLI::App*> subcommands(CLI::App& app) {
  return app.get_subcommands([](CLI::App* sub) { return !sub->get_group().empty(); });
}

/// Where a command line has come to, word by word, by the same rules as the parser.
class Position {
 public:
  explicit Position(CLI::App& app) : app_(&app) {}

  void pass(const std::string& word) {
    if (after_dashes_) return;
    const bool option_like = word.size() > 1 && word[0] == '-';
    if (!option_like || missing_ > 0) {
      pass_value(word);
    } else if (word == "--") {
      after_dashes_ = true;
    } else {
      pass_option(word);
    }
  }

  /// The lines for the word at the cursor.
  std::string answer(const std::string& word) {
    const std::size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    if (after_dashes_) {
      add_positional();
    } else if (equals != std::string::npos) {
      CLI::Option* option = app_->get_option_no_throw(word.substr(0, equals));
      prefix_ = word.substr(0, equals + 1);
      if (option != nullptr) add_values(*option, word.substr(equals + 1));
    } else if (missing_ > 0) {
      add_values(*option_, word);
    } else if (word.starts_with('-')) {
      add_options();
    } else {
      if (room_ > 0) add_values(*option_, word);
      if (lines_.empty() && also_ == Kind::kWord) add_commands();
      if (lines_.empty() && also_ == Kind::kWord) add_positional(word);
      // Where nothing else can be named, options are better than silence.
      if (lines_.empty() && also_ == Kind::kWord) add_options();
    }
    constexpr const char* kAlso[] = {"nothing", "files", "folders", "command"};
    return fmt::format("{}\n{}", kAlso[static_cast<int>(also_)], lines_);
  }

 private:
  void pass_option(const std::string& word) {
    const bool is_long = word.starts_with("--");
    const std::size_t end = is_long ? word.find('=') : 2;
    option_ = app_->get_option_no_throw(word.substr(0, end));
    // "--ranks=4" and "-n4" bring the first value along.
    const int had = word.size() > std::min(end, word.size()) ? 1 : 0;
    missing_ = option_ == nullptr ? 0 : option_->get_items_expected_min() - had;
    room_ = option_ == nullptr ? 0 : option_->get_items_expected_max() - had;
  }

  void pass_value(const std::string& word) {
    if (room_ > 0) {
      --missing_;
      --room_;
      return;
    }
    const auto subs = subcommands(*app_);
    const auto sub =
        std::ranges::find_if(subs, [&](CLI::App* one) { return one->check_name(word); });
    if (sub != subs.end())
      *this = Position(**sub);
    else
      ++positionals_;
  }

  /// The positional that the next plain word is; null if there is none.
  CLI::Option* positional() const {
    int before = positionals_;
    for (CLI::Option* option : app_->get_options()) {
      if (!option->get_positional() || !is_shown(*option)) continue;
      if (before < option->get_items_expected_max()) return option;
      before -= option->get_items_expected_max();
    }
    return nullptr;
  }

  void add(const std::string& word, std::string text) {
    std::ranges::replace(text, '\n', ' ');
    std::ranges::replace(text, '\t', ' ');
    lines_ += fmt::format("{}{}\t{}\n", prefix_, word, text);
  }

  void add_commands() {
    for (CLI::App* sub : subcommands(*app_)) add(sub->get_name(), sub->get_description());
  }

  void add_options() {
    for (CLI::Option* option : app_->get_options()) {
      if (!is_shown(*option)) continue;
      for (const auto& name : option->get_lnames()) add("--" + name, option->get_description());
      for (const auto& name : option->get_snames()) add("-" + name, option->get_description());
    }
  }

  void add_values(CLI::Option& option, const std::string& word) {
    std::vector<std::string> words = perf::offered(option);
    // Those of a list follow each other: "ring,two_shot".
    if (const char comma = option.get_delimiter(); comma != '\0') {
      const std::size_t end = word.rfind(comma);
      prefix_ += end == std::string::npos ? "" : word.substr(0, end + 1);
      for (const auto& chosen : CLI::detail::split(word.substr(0, end + 1), comma))
        std::erase(words, chosen);
    }
    for (const std::string& one : words) add(one, "");
    also_ = kind_of(option);
  }

  void add_positional(const std::string& word = "") {
    CLI::Option* option = positional();
    if (option == nullptr) return;
    // The options of a program of the user's are told from ours by the dashes.
    if (kind_of(*option) == Kind::kCommand && !after_dashes_)
      add("--", option->get_description());
    else
      add_values(*option, word);
  }

  CLI::App* app_;
  CLI::Option* option_ = nullptr;  // The latest.
  int missing_ = 0, room_ = 0;     // Values that it needs still, and could take.
  int positionals_ = 0;            // Passed.
  bool after_dashes_ = false;
  std::string prefix_;  // Before each word: what stands at the cursor already, as "--type=".
  std::string lines_;
  Kind also_ = Kind::kWord;
};

}  // namespace

std::string candidates(const perf::Command& command, const std::vector<std::string>& words) {
  Position position(command.app());
  for (std::size_t i = 0; i + 1 < words.size(); ++i) position.pass(words[i]);
  return position.answer(words.empty() ? "" : words.back());
}

}  // namespace tutti::tools
