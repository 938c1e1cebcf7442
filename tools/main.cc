// The tutti command: finds the subcommand and lets it work.
#include <cstdio>

#include "command.h"

namespace {

/// One line that says what is wrong and where to look.
int complain(const CLI::App& app, const std::string& what) {
  std::string name = "tutti";
  for (const CLI::App* sub : app.get_subcommands()) name += " " + sub->get_name();
  std::fprintf(stderr, "%s: %s; see %s --help\n", name.c_str(), what.c_str(), name.c_str());
  return tutti::tools::kUsage;
}

/// CLI11's words, or ours where its own name "--" or the whole rest of the line.
std::string words_of(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    for (const std::string& argument : app.remaining(true)) {
      if (argument != "--") return "unknown argument '" + argument + "'";
    }
  }
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Collective communication for GPUs and CPUs.", "tutti");
  app.set_version_flag("--version", "tutti " TUTTI_VERSION);
  app.require_subcommand(0, 1);
  app.footer(
      "Examples:\n  tutti run -n 4 -- ./train --epochs 3\n  tutti info --json\n"
      "tutti COMMAND --help says more.");
  int exit_code = 0;
#define TUTTI_COMMAND(name) tutti::tools::define_##name(app, exit_code);
#include "commands.def"
#undef TUTTI_COMMAND
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wish) {  // --help or --version.
    return app.exit(wish);
  } catch (const CLI::ParseError& error) {
    return complain(app, words_of(app, error));
  }
  if (app.get_subcommands().empty()) return complain(app, "which command?");
  return exit_code;
}
