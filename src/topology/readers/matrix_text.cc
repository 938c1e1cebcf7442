// File: topology/readers/matrix_text.cc: tables that people copy out of terminals: columns cut off,
// bars of Markdown, escapes of the terminal, other text around. What is missing of a row is taken
// from the others, for the table says everything twice; what can't be a row of the table is an
// error that names it, since a graph of half a row is another machine.
#include "topology/readers/matrix_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "topology/graph/nccl_figures.h"
#include "topology/graph/words.h"

namespace tutti::topology {
namespace {

constexpr std::size_t kMostDevices = 256;
constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr std::string_view kKnown = "NV#, PIX, PXB, PHB, NODE, SYS, XGMI, PCIE";

int number(std::string_view text) {
  int value = -1;  // What comes behind it does not matter: "0]".
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value < 65536 ? std::max(value, -1) : -1;
}

bool is_nvlink(std::string_view word) {
  const int count = word.starts_with("NV") ? number(word.substr(2)) : -1;
  return count > 0 && count <= 1024;
}

bool is_class(std::string_view word) {
  constexpr std::array<std::string_view, 10> kWords{"X",   "PIX", "PXB", "PHB",  "NODE",
                                                    "SYS", "SOC", "PIB", "XGMI", "PCIE"};
  return is_nvlink(word) || std::find(kWords.begin(), kWords.end(), word) != kWords.end();
}

bool is_device(std::string_view word) {
  const bool counted = word.starts_with("GPU") || word.starts_with("NIC");
  if (counted) return word.size() > 3 && word.find_first_not_of("0123456789", 3) == word.npos;
  for (const std::string_view prefix :
       {"mlx", "bnxt", "irdma", "rdma", "efa", "hfi", "ib", "cxi"}) {
    if (word.starts_with(prefix) && word.size() < 64 && word.back() >= '0' && word.back() <= '9') {
      return true;
    }
  }
  return false;
}

/// What -p2p says instead of classes.
bool is_permission(std::string_view word) {
  constexpr std::array<std::string_view, 7> kWords{"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"};
  return std::find(kWords.begin(), kWords.end(), word) != kWords.end();
}

/// Without the escapes that underline a header: "\x1b[4mGPU0", of which a copy may lack the first
/// character.
std::string plain(std::string_view line) {
  std::string text;
  while (!line.empty()) {
    const std::size_t open = line.find('[');
    const std::size_t end =
        open == line.npos ? open : line.find_first_not_of("0123456789;", open + 1);
    if (end == line.npos) break;
    const bool escape = line[end] == 'm';
    text += line.substr(0, escape ? open : open + 1);
    if (escape && text.ends_with('\x1b')) text.pop_back();
    line.remove_prefix(escape ? end + 1 : open + 1);
  }
  text += line;
  return text;
}

/// The words of a line, and of a header whose columns have run together ("NIC10NIC11",
/// "NIC11CPU") each column.
std::vector<std::string_view> columns_of(std::string_view text) {
  std::vector<std::string_view> columns;
  for (std::string_view word : words(text, " \t\r|")) {
    while (word.starts_with("GPU") || word.starts_with("NIC")) {
      const std::size_t end = word.find_first_not_of("0123456789", 3);
      if (end == word.npos || end == 3) break;
      const std::string_view rest = word.substr(end);
      if (!rest.starts_with("GPU") && !rest.starts_with("NIC") && !rest.starts_with("CPU")) break;
      columns.push_back(word.substr(0, end));
      word = rest;
    }
    columns.push_back(word);
  }
  return columns;
}

class MatrixParser {
 public:
  explicit MatrixParser(std::string_view source) : source_(source) {}

  Result<Matrix> parse(std::string_view text) {
    line_ = 1;
    if (text.size() > kMostBytes) return error("longer than 1 MiB");
    if (text.ends_with('\n')) text.remove_suffix(1);
    for (std::string_view one : split(text, '\n')) {
      while (!one.empty() && (one.back() == '\r' || one.back() == ' ')) one.remove_suffix(1);
      TUTTI_RETURN_IF_ERROR(line(one.find('[') == one.npos ? std::string(one) : plain(one)));
      ++line_;
    }
    if (!header_seen_) return error("no table with columns GPU0, GPU1, ...");
    if (p2p_seen_ && !classes_seen_) {
      return error(
          "this is `nvidia-smi topo -p2p`, which says what is allowed, not what is joined; "
          "use `nvidia-smi topo -m`");
    }
    if (!classes_seen_ && made_.devices.size() > 1) {
      return error(fmt::format("no rows with classes ({})", kKnown));
    }
    TUTTI_RETURN_IF_ERROR(complete());
    return std::move(made_);
  }

 private:
  enum class Table : std::uint8_t { kNone, kClasses, kHops, kOther };
  Error error(std::string_view what) const {
    return {Code::kInvalidArgument, fmt::format("{}:{}: {}", source_, line_, what)};
  }

  Status line(std::string_view text) {
    if (section(text)) return ok();
    auto row_words = columns_of(text);
    // A header may follow other text, as in the source of a program.
    const auto header_start = std::find(row_words.begin(), row_words.end(), "GPU0");
    if (row_words.end() - header_start >= 2 && is_device(header_start[1])) {
      row_words.erase(row_words.begin(), header_start);
    }
    if (row_words.empty() || text.starts_with("#")) return ok();
    const std::string_view first = row_words[0];
    if (is_device(first) &&
        (row_words.size() == 1 || is_device(row_words[1]) || row_words[1] == "CPU")) {
      return header(row_words);
    }
    if (is_device(first)) return row(row_words);
    // "NIC0: mlx5_0" of the legend; "GPU[0] : (Topology) Numa Node: 1" of rocm-smi.
    if (first.ends_with(':') && row_words.size() == 2 && (named_ || table_ != Table::kOther) &&
        is_device(first.substr(0, first.size() - 1))) {
      for (MatrixDevice& known : made_.devices) {
        if (known.name == first.substr(0, first.size() - 1) && row_words[1].size() <= 64) {
          known.real = row_words[1];
        }
      }
    }
    if (first.starts_with("GPU[") && text.find("Numa Node:") != std::string_view::npos) {
      const int gpu = number(first.substr(4));
      for (MatrixDevice& known : made_.devices) {
        if (known.name == fmt::format("GPU{}", gpu)) known.numa = number(row_words.back());
      }
    }
    return ok();
  }

  Status header(const std::vector<std::string_view>& row) {
    if (!named_) {
      // A second table (-p2p, or another machine's) is not ours to mix with the first.
      table_ = classes_seen_ ? Table::kOther : Table::kClasses;
      other_counted_ = false;
      if (table_ == Table::kOther) return ok();
    }
    header_seen_ = true;
    header_line_ = line_;
    columns_.clear();
    std::size_t at = 0;
    for (; at < row.size() && is_device(row[at]); ++at) {
      TUTTI_TRY(const std::size_t index, device(row[at]));
      columns_.push_back(index);
    }
    const auto rest = row.begin() + static_cast<std::ptrdiff_t>(at);
    numa_column_ = std::find(rest, row.end(), "NUMA") != row.end();
    id_column_ = std::find(rest, row.end(), "ID") != row.end();
    return ok();
  }

  Status row(const std::vector<std::string_view>& row) {
    if (table_ == Table::kOther && !named_ && !other_counted_) {
      other_counted_ = std::any_of(row.begin() + 1, row.end(), [](std::string_view word) {
        return word != "X" && is_class(word);
      });
      made_.more_tables += other_counted_ ? 1 : 0;
    }
    if (table_ == Table::kNone || table_ == Table::kOther || columns_.empty()) return ok();
    if (table_ == Table::kHops) {
      TUTTI_TRY(const std::size_t own, device(row[0]));
      for (std::size_t at = 1; at < row.size() && at <= columns_.size(); ++at) {
        made_.hops[own][columns_[at - 1]] = std::max(number(row[at]), 0);
      }
      return ok();
    }
    const bool allowed = std::any_of(row.begin() + 1, row.end(), is_permission);
    p2p_seen_ = p2p_seen_ || allowed;
    // A line of other text may begin with a device's name, too.
    if (allowed || std::none_of(row.begin() + 1, row.end(), [](std::string_view word) {
          return is_class(word) || word == "0";
        })) {
      return ok();
    }
    return classes(row);
  }

  /// A row of the table of classes.
  Status classes(const std::vector<std::string_view>& row) {
    TUTTI_TRY(const std::size_t own, device(row[0]));
    MatrixDevice& device = made_.devices[own];
    std::size_t at = 1;
    for (; at < row.size() && at <= columns_.size(); ++at) {
      const std::string_view word = row[at];
      const std::size_t column = columns_[at - 1];
      if (!is_class(word) && word != "0") {
        // What is next to a row cut short is numbers: its CPUs.
        const bool letters = std::isalpha(static_cast<unsigned char>(word[0])) != 0;
        if (!letters || made_.amd || word == "N/A") break;
        return error(
            fmt::format("row {}: '{}' is no class ({})", row[0], word.substr(0, 32), kKnown));
      }
      if (word == "0") continue;
      if (word == "X" && column != own && !made_.amd) {
        return error(fmt::format("row {} has its X in the column of {}: the table lacks a cell",
                                 row[0], made_.devices[column].name));
      }
      if (word == "X") continue;
      if (is_nvlink(word) && number(word.substr(2)) > most_nvlinks(0)) {
        return error(fmt::format("row {}: {}, and no chip has more than {} NVLinks", row[0], word,
                                 most_nvlinks(0)));
      }
      made_.classes[own][column] = word;
      classes_seen_ = true;
    }
    device.line = line_;
    device.cut = at <= columns_.size();
    if (device.cut || made_.amd) return ok();
    if (at < row.size() && is_class(row[at])) {
      return error(fmt::format("row {} has more classes than the header has columns, {}", row[0],
                               columns_.size()));
    }
    // A process that may not run on a device's CPUs is told of none: the column is blank.
    const bool blank = id_column_ && row.size() == at + 2 && row.back() == "N/A";
    if (at < row.size() && !blank) device.affinity = row[at++];
    if (numa_column_ && at < row.size()) device.numa = number(row[at]);
    return ok();
  }

  /// What a row leaves out, the other device's row says.
  Status complete() {
    if (made_.amd) return ok();
    for (std::size_t i = 0; i < made_.devices.size(); ++i) {
      for (std::size_t j = 0; j < made_.devices.size(); ++j) {
        std::string& own = made_.classes[i][j];
        if (own.empty()) own = made_.classes[j][i];
        const MatrixDevice &one = made_.devices[i], &two = made_.devices[j];
        if (i == j || !own.empty() || !one.gpu || !two.gpu) continue;
        line_ = std::max(one.line, two.line);
        if (line_ == 0) line_ = header_line_;
        const MatrixDevice& lacks = one.line == 0 || two.line > 0 ? one : two;
        return error(
            fmt::format("{} {}, so nothing says what joins {} and {}; copy the whole table",
                        lacks.line == 0 ? "there is no row of" : "the row is cut short of",
                        lacks.name, one.name, two.name));
      }
    }
    return ok();
  }

  Result<std::size_t> device(std::string_view name) {
    for (std::size_t i = 0; i < made_.devices.size(); ++i) {
      if (made_.devices[i].name == name) return i;
    }
    if (made_.devices.size() == kMostDevices) return error("more than 256 devices");
    made_.devices.push_back(
        {std::string(name), std::string(name), name.starts_with("GPU"), -1, "", 0, false});
    for (auto& row : made_.classes) row.emplace_back();
    for (auto& row : made_.hops) row.push_back(0);
    made_.classes.emplace_back(made_.devices.size());
    made_.hops.emplace_back(made_.devices.size());
    return made_.devices.size() - 1;
  }

  /// rocm-smi's headings: "==== Link Type between two GPUs ====". A line without words is not one.
  bool section(std::string_view text) {
    if (text.find("between two GPUs") == std::string_view::npos &&
        !(text.starts_with("==") && text.ends_with("==") &&
          text.find_first_not_of('=') != std::string_view::npos)) {
      return false;
    }
    made_.amd = made_.amd || text.find("GPUs") != std::string_view::npos;
    named_ = true;
    table_ = text.find("Link Type") != std::string_view::npos ? Table::kClasses
             : text.find("Hops") != std::string_view::npos    ? Table::kHops
                                                              : Table::kOther;
    return true;
  }

  std::string_view source_;
  std::size_t line_ = 0;
  Matrix made_;
  Table table_ = Table::kNone;
  bool named_ = false;  // rocm-smi names its tables; nvidia-smi does not.
  bool classes_seen_ = false, p2p_seen_ = false, header_seen_ = false;
  bool numa_column_ = false, id_column_ = false;  // NUMA Affinity, GPU NUMA ID.
  bool other_counted_ = false;  // Whether the present table is among made_.more_tables.
  std::size_t header_line_ = 0;
  std::vector<std::size_t> columns_;
};

}  // namespace

Result<Matrix> parse_matrix(std::string_view text, std::string_view source) {
  return MatrixParser(source).parse(text);
}

}  // namespace tutti::topology
