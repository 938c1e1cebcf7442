// all_reduce_perf and its siblings: one program, whose name says the collective.
#include <cstdio>
#include <string>
#include <string_view>

#include "perf/sweep/options.h"

int main(int argc, char** argv) {
  const std::string_view path(argc > 0 ? argv[0] : "");
  std::string_view name = path.substr(path.rfind('/') + 1);
  if (name.ends_with("_perf")) name.remove_suffix(5);
  const auto collective = tutti::parse_collective(name);
  if (!collective) {
    std::fprintf(stderr, "this program's name has to be a collective and _perf: one of %s\n",
                 tutti::collective_names().c_str());
    return 2;
  }
  return tutti::perf::sweep_main(*collective, argc, argv);
}
