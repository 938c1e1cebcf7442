// The tutti command: finds the subcommand and lets it work.
#include "base/nearest.h"
#include "perf/command_line/command_line.h"
#include "tools/command.h"
#include "tools/completion/candidates.h"

namespace {

/// "tutti plan".
std::string name_of(const tutti::perf::CommandLine& app) {
  std::string name = "tutti";
  for (const std::string& sub : app.get_subcommands()) name += " " + sub;
  return name;
}

/// One line that says what is wrong and where to look.
int complain(const tutti::perf::CommandLine& app, const std::string& what) {
  const std::string name = name_of(app);
  tutti::say_error("{}: {}\n", name, tutti::followed_by(what, "see " + name + " --help"));
  return tutti::tools::kUsage;
}

/// The exit code.
int parse_and_run(tutti::perf::CommandLine& app, int& exit_code, int argc, char** argv) {
  if (const auto ending = app.parse(argc, argv)) {
    if (ending->exit_code != 0) return complain(app, ending->text);
    tutti::put_output(ending->text);
    return 0;
  }
  if (app.get_subcommands().empty()) return complain(app, "which command?");
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  tutti::fill_standard_descriptors();
  tutti::perf::CommandLine app("Collective communication for GPUs and CPUs.", "tutti");
  app.fold_help();
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
