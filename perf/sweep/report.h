// File: sweep/report.h: results for people (nccl-tests' table), for spreadsheets, for programs, as
// a picture.
#pragma once
#include <string>
#include <vector>

#include "perf/sweep/measure.h"

namespace tutti::perf {

/// `links` is only asked for with --bound. `left_out`: sizes that hold no element.
void print_header(const Options& options, const Communicator& comm, const LinksBound& links,
                  std::size_t left_out);
void print_line(const Options& options, const Line& line);
/// `sizes`: how many there are, where an interrupt left some of them out.
void print_footer(const Options& options, const std::vector<Line>& lines,
                  std::optional<std::size_t> sizes);
/// "measuring 1048576 B (3 of 12)" on a terminal, on a line that the next output overwrites.
void show_progress(std::size_t bytes, std::size_t done, std::size_t all);
void clear_progress();

Status write_csv(const std::string& path, const std::vector<Line>& lines);
Status write_json(const std::string& path, const Options& options, int ranks,
                  const std::vector<Line>& lines, bool interrupted);
Status write_plot(const std::string& path, const Options& options, int ranks,
                  const std::vector<Line>& lines);

}  // namespace tutti::perf
