// tutti completion: the script by which a shell completes this command's words.
#include <memory>
#include <string>

#include "perf/command_line/command_line.h"
#include "tools/command.h"
#include "tools/completion/scripts.h"  // Made by CMake out of tutti.bash, tutti.zsh and tutti.fish.

namespace tutti::tools {
namespace {

struct Script {
  const char* shell;
  const char* text;
};
constexpr Script kScripts[] = {{"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}};

}  // namespace

void define_completion(const perf::Command& app, int& exit_code) {
  const auto command = app.add_subcommand("completion", "Print the completion script for a shell");
  auto shell = std::make_shared<std::string>();
  std::vector<std::string> shells;
  for (const Script& script : kScripts) shells.emplace_back(script.shell);
  perf::add_word(command, "SHELL", *shell, "bash, zsh or fish", shells).required();
  command.footer(
      "Bash (with bash-completion) and fish load the installed script by themselves. Zsh needs\n"
      "share/zsh/site-functions in fpath. For a copy that is not installed, add one line to the\n"
      "startup file of the shell.\n"
      "Examples:\n"
      "  eval \"$(tutti completion bash)\"     in ~/.bashrc\n"
      "  eval \"$(tutti completion zsh)\"      in ~/.zshrc, after compinit\n"
      "  tutti completion fish | source      in ~/.config/fish/config.fish");
  command.callback([shell, &exit_code] {
    for (const Script& script : kScripts) {
      if (*shell == script.shell) put_output(script.text);
    }
    exit_code = 0;
  });
}

}  // namespace tutti::tools
