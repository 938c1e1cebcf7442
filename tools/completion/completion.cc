// tutti completion: the script by which a shell completes this command's words.
#include <memory>
#include <string>

#include "perf/sweep/help.h"
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

void define_completion(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("completion", "Print the script by which a shell completes tutti's words");
  auto shell = std::make_shared<std::string>();
  std::vector<std::string> shells;
  for (const Script& script : kScripts) shells.emplace_back(script.shell);
  perf::add_word(*command, "SHELL", *shell, "bash, zsh or fish", shells)->required();
  command->footer(
      "An installation has the scripts where shells look, for zsh in share/zsh/site-functions, "
      "which\n"
      "has to be in fpath. For another copy of the command, put a line into the shell's startup "
      "file.\n"
      "Examples:\n"
      "  eval \"$(tutti completion bash)\"     in ~/.bashrc\n"
      "  eval \"$(tutti completion zsh)\"      in ~/.zshrc, after compinit\n"
      "  tutti completion fish | source      in ~/.config/fish/config.fish");
  command->callback([shell, &exit_code] {
    for (const Script& script : kScripts) {
      if (*shell == script.shell) put_output(script.text);
    }
    exit_code = 0;
  });
}

}  // namespace tutti::tools
