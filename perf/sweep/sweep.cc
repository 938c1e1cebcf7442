#include <fmt/format.h>
#include <signal.h>

#include "base/output.h"
#include "perf/sweep/noise.h"
#include "perf/sweep/ranks.h"
#include "perf/sweep/report.h"

namespace tutti::perf {
namespace {

/// Every line that is to be measured, in order.
std::vector<Shape> shapes_of(const Options& options, int ranks) {
  std::vector<Shape> shapes;
  std::vector<int> roots = options.roots;
  if (!has_root(options.collective)) roots = {0};
  if (roots.front() < 0) {
    roots.clear();
    for (int root = 0; root < ranks; ++root) roots.push_back(root);
  }
  for (const DataType type : options.types) {
    for (const ReduceOp op : options.ops) {
      if (reduces(options.collective) && !is_supported(type, op)) continue;
      for (const int root : roots) {
        for (const std::size_t bytes : sizes_of(options)) {
          const CollectiveTraits traits = traits_of(options.collective);
          const auto parts =
              static_cast<std::size_t>(traits.input_each || traits.output_each ? ranks : 1);
          shapes.push_back(
              {options.collective, type, op, bytes / size_of(type) / parts, ranks, root});
        }
      }
    }
  }
  return shapes;
}

Status write_files(const Options& options, int ranks, const std::vector<Line>& lines) {
  if (!options.csv.empty()) TUTTI_RETURN_IF_ERROR(write_csv(options.csv, lines));
  if (!options.json.empty()) TUTTI_RETURN_IF_ERROR(write_json(options.json, options, ranks, lines));
  if (!options.plot.empty()) TUTTI_RETURN_IF_ERROR(write_plot(options.plot, options, ranks, lines));
  return ok();
}

/// Whether rank 0's output has no reader any more. All ranks get the same answer, so that they end
/// together.
Result<bool> output_lost(Communicator& comm) {
  std::uint8_t lost = output_failure() != 0 ? 1 : 0;
  TUTTI_RETURN_IF_ERROR(comm.broadcast(&lost, &lost, 1, DataType::kUint8, Rank{0}));
  return lost != 0;
}

/// The exit code.
Result<int> sweep(Communicator& comm, const Options& options) {
  const bool speaks = comm.rank().value == 0;
  for (const int root : options.roots) {
    if (root < comm.rank_count()) continue;
    if (speaks) say_error("--root: {} is not one of the {} ranks\n", root, comm.rank_count());
    return 2;
  }
  const std::vector<Shape> shapes = shapes_of(options, comm.rank_count());
  LinksBound links;
  int links_root = -1;  // The root that they are for.
  const auto find_links = [&](int root) -> Status {
    if (!options.bound || root == links_root) return ok();
    links_root = root;
    TUTTI_TRY(links, links_bound(comm, options.collective, root));
    return ok();
  };
  TUTTI_RETURN_IF_ERROR(find_links(shapes.empty() ? 0 : shapes[0].root));
  if (speaks) print_header(options, comm, links);
  long long wrong = 0;
  for (int cycle = 0; options.cycles == 0 || cycle < options.cycles; ++cycle) {
    std::vector<Line> lines;
    for (const Shape& shape : shapes) {
      if (speaks) show_progress(shape.bytes(), lines.size(), shapes.size());
      TUTTI_RETURN_IF_ERROR(find_links(shape.root));
      TUTTI_TRY(const Line line, measure(comm, options, shape, links));
      lines.push_back(line);
      wrong += std::max(line.out_of_place.wrong, 0LL) + std::max(line.in_place.wrong, 0LL);
      if (speaks) print_line(options, line);
      TUTTI_TRY(const bool lost, output_lost(comm));
      if (lost) return 0;  // Rank 0's process reports it at its end.
    }
    if (!speaks) continue;
    print_footer(options, lines);
    TUTTI_RETURN_IF_ERROR(write_files(options, comm.rank_count(), lines));
  }
  return wrong == 0 ? 0 : 1;
}

/// Rank 0's work before the ranks meet: it checks its files, and whether the machine is busy.
Status look_around(Options& options) {
  const auto launch = detect_launch();  // run_ranks reports what is wrong with it.
  if (!launch || launch->rank.value != 0) return ok();
  options.busy = busy_now(launch->local_rank_count);
  return check_outputs(
      {{"--output_file", options.json}, {"--csv", options.csv}, {"--plot", options.plot}});
}

}  // namespace

int sweep_main(Collective collective, int argc, char** argv) {
  fill_standard_descriptors();
  // When rank 0's reader goes, all ranks end in order, and then the signal ends rank 0.
  ::signal(SIGPIPE, SIG_IGN);
  int exit_code = -1;
  Options options = parse_options(collective, argc, argv, &exit_code);
  if (exit_code < 0) {
    if (const Status files = look_around(options); !files) {
      say_error("{}: {}\n", options.program, files.error().what);
      exit_code = 2;
    }
  }
  if (exit_code < 0) {
    exit_code = run_ranks(options, [&options](Communicator& comm) {
      const auto code = sweep(comm, options);
      if (code) return *code;
      clear_progress();
      say_error("{}\n", code.error().to_string());
      return 1;
    });
  }
  return finish_output(options.program, exit_code);
}

}  // namespace tutti::perf
