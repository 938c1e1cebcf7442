// File: topology/readers/amd_smi_reader.cc: what `amd-smi topology` prints, as a graph. It came
// after rocm-smi, whose tables matrix_text.cc reads.
//
// The model: tables of GPUs by PCI address, under titles that end in "TABLE:". Four of them count:
//   LINK TYPE  XGMI or PCIE.
//   HOPS       1 is xGMI by however many links. 2 is PCI Express in one NUMA node, 3 between two
//              (https://github.com/ROCm/rocm-systems/pull/7372).
//   NUMA BW    "50000-100000": MB/s of one link, and of all between the two, each way. "0-0": xGMI,
//              but no link of their own (https://github.com/ROCm/rocm-systems/issues/5763).
//   WEIGHT     15 is a link of their own, more is a way through others; used where NUMA BW is not
//              there.
// GPUs are numbered in the order of the table, as amd-smi does. Nothing says in which NUMA node a
// GPU is; hops of PCI Express say whether two GPUs share one. All others are taken to share one.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "topology/graph/sets.h"
#include "topology/graph/words.h"
#include "topology/readers/reader.h"

namespace tutti::topology {
namespace {

constexpr std::size_t kMostDevices = 256;
constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr std::string_view kLinkType = "LINK TYPE TABLE:";
constexpr int kDirectWeight = 15;

bool is_address(std::string_view word) {
  constexpr std::string_view kForm = "hhhh:hh:hh.d";
  if (word.size() != kForm.size()) return false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const bool digit = word[i] >= '0' && word[i] <= '9';
    const bool hex = digit || (word[i] >= 'a' && word[i] <= 'f');
    if (kForm[i] == 'h' ? !hex : kForm[i] == 'd' ? !digit : word[i] != kForm[i]) return false;
  }
  return true;
}

/// What the tables say of one GPU's way to another.
struct Way {
  std::string link;  // "" where there is no cell.
  std::optional<int> hops, weight;
  std::optional<std::array<int, 2>> rates;  // MB/s: of a link, of all.
};

class AmdSmiReader {
 public:
  explicit AmdSmiReader(std::string_view source) : source_(source) {}

  Result<Imported> read(std::string_view text) {
    if (text.size() > kMostBytes) return error("longer than 1 MiB");
    if (text.ends_with('\n')) text.remove_suffix(1);
    for (const std::string_view one : split(text, '\n')) {
      ++line_;
      TUTTI_RETURN_IF_ERROR(line(trim(one)));
    }
    if (addresses_.empty()) return error("no table with a column for each GPU's PCI address");
    TUTTI_RETURN_IF_ERROR(complete());
    build();
    return std::move(made_);
  }

 private:
  Error error(std::string_view what) const { return invalid("{}:{}: {}", source_, line_, what); }

  Status line(std::string_view text) {
    if (text.ends_with("TABLE:")) {
      title_ = text;
      columns_.clear();
      return ok();
    }
    const auto row = words(text, " \t");
    if (row.empty()) return ok();
    if (!is_address(row[0])) {  // A table ends where other text begins.
      title_.clear();
      columns_.clear();
      return ok();
    }
    if (title_.empty()) return ok();  // Other text that begins with an address.
    if (columns_.empty()) return header(row);
    if (row.size() < 2 || is_address(row[1])) return error("a second row of addresses in a table");
    if (row.size() > columns_.size() + 1) {
      return error(fmt::format("row {} has more cells than the table has columns, {}", row[0],
                               columns_.size()));
    }
    TUTTI_TRY(const std::size_t own, device(row[0]));
    for (std::size_t at = 1; at < row.size(); ++at) {
      const std::size_t other = columns_[at - 1];
      if (own != other) TUTTI_RETURN_IF_ERROR(cell(ways_[own][other], row[0], row[at]));
    }
    return ok();
  }

  Status header(const std::vector<std::string_view>& row) {
    for (const std::string_view word : row) {
      if (!is_address(word))
        return error(fmt::format("'{}' is no PCI address of a column", word.substr(0, 32)));
      TUTTI_TRY(const std::size_t index, device(word));
      columns_.push_back(index);
    }
    return ok();
  }

  Status cell(Way& way, std::string_view row, std::string_view word) {
    const auto bad = [&](std::string_view due) {
      return error(
          fmt::format("row {} of {} '{}' is not {}", row, title_, word.substr(0, 32), due));
    };
    if (title_ == kLinkType) {
      if (word != "XGMI" && word != "PCIE" && word != "N/A") return bad("XGMI or PCIE");
      way.link = word;
      return ok();
    }
    if (word == "N/A") return ok();
    if (title_ == "HOPS TABLE:" || title_ == "WEIGHT TABLE:") {
      const auto number = parse_number<int>(word);
      if (!number || *number < 0) return bad("a number");
      (title_ == "HOPS TABLE:" ? way.hops : way.weight) = *number;
    } else if (title_ == "NUMA BW TABLE:") {
      const std::size_t dash = std::min(word.find('-'), word.size() - 1);
      const auto least = parse_number<int>(word.substr(0, dash));
      const auto most = parse_number<int>(word.substr(dash + 1));
      if (!least || !most || *least < 0 || *most < *least || *most > 100'000'000)
        return bad("two rates in MB/s");
      way.rates = {*least, *most};
    }
    return ok();
  }

  Result<std::size_t> device(std::string_view address) {
    const auto at = std::find(addresses_.begin(), addresses_.end(), address);
    if (at != addresses_.end()) return static_cast<std::size_t>(at - addresses_.begin());
    if (addresses_.size() == kMostDevices) return error("more than 256 devices");
    addresses_.emplace_back(address);
    for (auto& row : ways_) row.emplace_back();
    ways_.emplace_back(addresses_.size());
    return addresses_.size() - 1;
  }

  /// What a row leaves out, the other GPU's row says.
  Status complete() {
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
      for (std::size_t j = 0; j < addresses_.size(); ++j) {
        Way &own = ways_[i][j], &other = ways_[j][i];
        if (own.link.empty()) own.link = other.link;
        if (!own.hops) own.hops = other.hops;
        if (!own.weight) own.weight = other.weight;
        if (!own.rates) own.rates = other.rates;
        if (i != j && own.link.empty()) {
          return error(fmt::format("no {} says what joins {} and {}; copy the whole table",
                                   kLinkType.substr(0, kLinkType.size() - 1), addresses_[i],
                                   addresses_[j]));
        }
      }
    }
    return ok();
  }

  /// Whether two GPUs have a link of their own.
  static bool is_direct(const Way& way) {
    if (way.link != "XGMI") return false;
    return way.rates ? (*way.rates)[1] > 0 : way.weight.value_or(kDirectWeight) <= kDirectWeight;
  }

  void build() {
    const std::size_t count = addresses_.size();
    const NodeId host = made_.graph.add({NodeKind::kHost, "host0"});
    Sets numa(count);
    bool numa_assumed = false;
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = i + 1; j < count; ++j) {
        const Way& way = ways_[i][j];
        const bool said = way.link != "XGMI" && way.hops;
        numa_assumed = numa_assumed || !said;
        if (!said || *way.hops == 2) numa.join(i, j);
      }
    }
    std::map<std::size_t, NodeId> numa_nodes;
    std::vector<NodeId> gpus;
    for (std::size_t i = 0; i < count; ++i) {
      const auto [at, fresh] = numa_nodes.try_emplace(numa.of(i));
      if (fresh) {
        at->second = made_.graph.add(
            {NodeKind::kNuma, fmt::format("host0/numa{}", numa_nodes.size() - 1), host});
      }
      gpus.push_back(made_.graph.add({NodeKind::kGpu, fmt::format("host0/gpu{}", i), host,
                                      static_cast<int>(i), addresses_[i]}));
      made_.graph.join(LinkKind::kPcie, at->second, gpus.back(), {24, Origin::kAssumed});
    }
    for (auto a = numa_nodes.begin(); a != numa_nodes.end(); ++a) {
      for (auto b = std::next(a); b != numa_nodes.end(); ++b)
        made_.graph.join(LinkKind::kSocket, a->second, b->second, {16, Origin::kAssumed});
    }
    const bool guessed = join_gpus(gpus);
    made_.graph.notes.push_back(fmt::format("read from {} (amd-smi topology)", source_));
    report(numa_assumed, guessed);
  }

  /// True: a rate had to be guessed.
  bool join_gpus(const std::vector<NodeId>& gpus) {
    bool guessed = false;
    const auto rate = [&](const Way& way) {
      if (way.rates && (*way.rates)[1] > 0)
        return Quantity{(*way.rates)[1] / 1000., Origin::kReportedMaximum};
      guessed = true;
      return Quantity{24, Origin::kAssumed};
    };
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      for (std::size_t j = i + 1; j < gpus.size(); ++j) {
        const Way &there = ways_[i][j], &back = ways_[j][i];
        if (!is_direct(there) && !is_direct(back)) continue;
        const auto [least, most] = there.rates.value_or(std::array{0, 0});
        made_.graph.add({LinkKind::kXgmi, gpus[i], gpus[j], least > 0 ? most / least : 1,
                         rate(there), rate(back)});
      }
    }
    return guessed;
  }

  void report(bool numa_assumed, bool guessed) {
    made_.findings.push_back(
        {Severity::kWarning, "figures-assumed", std::string(source_),
         fmt::format("16 GT/s x16 assumed for PCI links, 16 GB/s between NUMA nodes{}",
                     guessed ? ", 24 GB/s an xGMI link" : ""),
         "", "probe the machine, or import RCCL's or hwloc's file"});
    if (!numa_assumed) return;
    made_.findings.push_back({Severity::kWarning, "numa-assumed", std::string(source_),
                              "amd-smi topology does not say which NUMA nodes the GPUs are in; "
                              "those that xGMI joins, or "
                              "that have no hops in the text, are taken to share one",
                              "", "probe the machine, or import RCCL's or hwloc's file"});
  }

  std::string_view source_;
  std::size_t line_ = 0;
  std::string title_;
  std::vector<std::size_t> columns_;  // The devices of the present table.
  std::vector<std::string> addresses_;
  std::vector<std::vector<Way>> ways_;
  Imported made_;
};

bool is_amd_smi(std::string_view text) {
  return text.substr(0, 65536).find(kLinkType) != std::string_view::npos;
}

Result<Imported> read_amd_smi(std::string_view text, std::string_view source) {
  return AmdSmiReader(source).read(text);
}

}  // namespace

constinit const Reader amd_smi_reader{"amd_smi", "what `amd-smi topology` prints", is_amd_smi,
                                      read_amd_smi};

}  // namespace tutti::topology
