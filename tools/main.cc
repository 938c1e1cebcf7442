// The tutti command: finds the subcommand and lets it work.
#include <sstream>

#include "perf/sweep/help.h"
#include "tools/command.h"
#include "tools/completion/candidates.h"

namespace {

/// "tutti plan".
std::string name_of(const CLI::App& app) {
  std::string name = "tutti";
  for (const CLI::App* sub : app.get_subcommands()) name += " " + sub->get_name();
  return name;
}

/// One line that says what is wrong and where to look.
int complain(const CLI::App& app, const std::string& what) {
  tutti::say_error("{0}: {1}; see {0} --help\n", name_of(app), what);
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

/// The exit code.
int parse_and_run(CLI::App& app, int& exit_code, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help or --version.
    std::ostringstream out;
    const int code = app.exit(success, out, out);
    tutti::put_output(out.str());
    return code;
  } catch (const CLI::ParseError& error) {
    return complain(app, words_of(app, error));
  }
  if (app.get_subcommands().empty()) return complain(app, "which command?");
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  tutti::fill_standard_descriptors();
  CLI::App app("Collective communication for GPUs and CPUs.", "tutti");
  app.formatter(std::make_shared<tutti::perf::HelpFormatter>());
  app.set_version_flag("--version", "tutti " TUTTI_VERSION);
  app.require_subcommand(0, 1);
  app.footer(
      "Examples:\n  tutti run -n 4 -- ./train --epochs 3\n  tutti info --json\n"
      "tutti COMMAND --help says more.");
  int exit_code = 0;
#define TUTTI_COMMAND(name) tutti::tools::define_##name(app, exit_code);
#include "tools/commands.def"
#undef TUTTI_COMMAND
  int code = 0;
  if (argc > 1 && std::string_view(argv[1]) == tutti::tools::kCandidates)
    tutti::put_output(tutti::tools::candidates(app, {argv + 2, argv + argc}));
  else
    code = parse_and_run(app, exit_code, argc, argv);
  return tutti::finish_output(name_of(app), code);
}
