#include <fmt/format.h>
#include <signal.h>

#include "base/output.h"
#include "perf/sweep/interrupt.h"
#include "perf/sweep/noise.h"
#include "perf/sweep/ranks.h"
#include "perf/sweep/report.h"

namespace tutti::perf {
namespace {

struct Shapes {
  std::vector<Shape> shapes;
  std::size_t empty = 0;  // More of them, whose size holds no element.
};

/// Every line that is to be measured, in order.
Shapes shapes_of(const Options& options, int ranks) {
  Shapes shapes;
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
          const std::size_t count = bytes / size_of(type) / parts;
          if (count == 0)
            ++shapes.empty;
          else
            shapes.shapes.push_back({options.collective, type, op, count, ranks, root});
        }
      }
    }
  }
  return shapes;
}

/// Why there is nothing to measure: the largest size holds no element, of any type.
std::string too_small(const Options& options, int ranks) {
  const DataType type = *std::ranges::min_element(options.types, {}, size_of);
  const CollectiveTraits traits = traits_of(options.collective);
  const bool each = traits.input_each || traits.output_each;
  const std::size_t bytes = sizes_of(options).back();
  return fmt::format("{} byte{} hold{} no {}{}; the smallest size is {} bytes", bytes,
                     bytes == 1 ? "" : "s", bytes == 1 ? "s" : "", type_name(type),
                     each ? fmt::format(" for each of {} ranks", ranks) : "",
                     size_of(type) * static_cast<std::size_t>(each ? ranks : 1));
}

/// After a size; all ranks get the same answer, so that they end together.
enum Ending : std::uint8_t {  // Bits.
  kNone = 0,
  kOutputLost = 1,  // Rank 0's output has no reader any more.
  kInterrupted = 2  // At least one rank was.
};

/// A sweep on one of its ranks.
class Sweep {
 public:
  Sweep(Communicator& comm, const Options& options)
      : comm_(comm), options_(options), speaks_(comm.rank().value == 0) {}

  /// The exit code.
  Result<int> run() {
    for (const int root : options_.roots) {
      if (root < comm_.rank_count()) continue;
      if (speaks_) say_error("--root: {} is not one of the {} ranks\n", root, comm_.rank_count());
      return 2;
    }
    auto [shapes, empty] = shapes_of(options_, comm_.rank_count());
    shapes_ = std::move(shapes);
    if (shapes_.empty()) {
      if (speaks_) say_error("{}: {}\n", options_.program, too_small(options_, comm_.rank_count()));
      return 2;
    }
    TUTTI_RETURN_IF_ERROR(find_links(shapes_[0].root));
    if (speaks_) print_header(options_, comm_, links_, empty);
    for (int cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle) {
      std::vector<Line> lines;
      TUTTI_TRY(const Ending ending, measure_all(lines));
      // Rank 0's process reports both at its end. The others' success keeps launchers, which end
      // all ranks once one has failed, from ending rank 0 while it writes.
      const bool interrupted = (ending & kInterrupted) != 0;
      if (ending != kNone && (!speaks_ || !interrupted)) return 0;
      if (!speaks_) continue;
      print_footer(options_, lines, interrupted ? std::optional(shapes_.size()) : std::nullopt);
      // Part of a cycle does not replace a whole one.
      if (!interrupted || (cycle == 0 && !lines.empty()))
        TUTTI_RETURN_IF_ERROR(write_files(lines, interrupted));
      if (interrupted) return 128 + SIGINT;
    }
    return wrong_ == 0 ? 0 : 1;
  }

 private:
  Status find_links(int root) {
    if (!options_.bound || root == links_root_) return ok();
    links_root_ = root;
    TUTTI_TRY(links_, links_bound(comm_, options_.collective, root));
    return ok();
  }

  /// A cycle, up to the size after which it ends.
  Result<Ending> measure_all(std::vector<Line>& lines) {
    for (const Shape& shape : shapes_) {
      Result<Ending> ending = measure_one(shape, lines);
      // Once one rank has stopped a size, it is an error to all of them, of whichever call.
      if (!ending && (interrupted() || ending.error().code == Code::kAborted)) return kInterrupted;
      if (!ending || *ending != kNone) return ending;
    }
    return kNone;
  }

  Result<Ending> measure_one(const Shape& shape, std::vector<Line>& lines) {
    if (speaks_) show_progress(shape.bytes(), lines.size(), shapes_.size());
    TUTTI_RETURN_IF_ERROR(find_links(shape.root));
    TUTTI_TRY(const Line line, measure(comm_, options_, shape, links_));
    lines.push_back(line);
    wrong_ += std::max(line.out_of_place.wrong, 0LL) + std::max(line.in_place.wrong, 0LL);
    if (speaks_) print_line(options_, line);
    std::uint8_t ending = interrupted() ? kInterrupted : kNone;
    if (speaks_ && output_failure() != 0) ending |= kOutputLost;
    TUTTI_RETURN_IF_ERROR(
        comm_.all_reduce(&ending, &ending, 1, DataType::kUint8, Reduction(ReduceOp::kOr)));
    return static_cast<Ending>(ending);
  }

  Status write_files(const std::vector<Line>& lines, bool interrupted) const {
    const int ranks = comm_.rank_count();
    if (!options_.csv.empty()) TUTTI_RETURN_IF_ERROR(write_csv(options_.csv, lines));
    if (!options_.json.empty())
      TUTTI_RETURN_IF_ERROR(write_json(options_.json, options_, ranks, lines, interrupted));
    if (!options_.plot.empty())
      TUTTI_RETURN_IF_ERROR(write_plot(options_.plot, options_, ranks, lines));
    return ok();
  }

  Communicator& comm_;
  const Options& options_;
  const bool speaks_;
  std::vector<Shape> shapes_;
  LinksBound links_;
  int links_root_ = -1;  // The root that they are for.
  long long wrong_ = 0;
};

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
      note_interrupts();
      const auto code = Sweep(comm, options).run();
      if (code) return *code;
      clear_progress();
      say_error("{}\n", code.error().to_string());
      return 1;
    });
  }
  return finish_output(options.program, exit_code);
}

}  // namespace tutti::perf
