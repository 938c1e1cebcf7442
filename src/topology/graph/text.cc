// File: topology/graph/text.cc: the text form of a graph: printing, and a parser of one line after
// the other.
//
// The model: words, and words with a value (key=value), with blanks between them. Facts have a dot
// before their key, so that a new field can never take a fact's name. Nodes come before the links
// that name them; a node's host may come after it.
#include "topology/graph/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <unordered_map>

#include "topology/graph/words.h"

namespace tutti::topology {
namespace {

constexpr std::string_view kHeader = "tutti topology 1";
constexpr std::size_t kMostBytes = std::size_t{64} << 20;
constexpr std::size_t kMostLinks = 10'000'000;

// --- Printing ---

bool is_plain(char c) {
  return c > ' ' && c <= '~' && std::string_view("\"#'=\\`").find(c) == std::string_view::npos;
}

/// A word as it stands, or in quotes where it would not be one word.
void append_word(std::string& out, std::string_view word) {
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) {
    out += word;
    return;
  }
  out += '"';
  for (const char c : word) {
    if (c == '"' || c == '\\') {
      out.append({'\\', c});
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_node(std::string& out, const Graph& graph, const Node& node) {
  out += to_string(node.kind);
  out += ' ';
  append_word(out, node.name);
  if (node.host.exists()) {
    out += " host=";
    append_word(out, graph[node.host].name);
  }
  if (node.index != -1) out += fmt::format(" index={}", node.index);
  if (!node.bus.empty()) {
    out += " bus=";
    append_word(out, node.bus);
  }
  for (const auto& [key, value] : node.facts) {
    out += " .";
    out += key;
    out += '=';
    append_word(out, value);
  }
  out += '\n';
}

void append_quantity(std::string& out, std::string_view key, const Quantity& quantity) {
  if (quantity.known()) {
    out += fmt::format(" {}={}:{}", key, quantity.value, to_string(quantity.origin));
  }
}

void append_rate(std::string& out, std::string_view key, const PcieRate& rate) {
  if (rate == PcieRate{}) {
    out += fmt::format(" {}=?", key);
  } else {
    out += fmt::format(" {}={}x{}", key, rate.gigatransfers, rate.width);
  }
}

void append_link(std::string& out, const Graph& graph, const Link& link) {
  out += to_string(link.kind);
  for (const NodeId end : {link.a, link.b}) {
    out += ' ';
    append_word(out, graph[end].name);
  }
  if (link.count != 1) out += fmt::format(" count={}", link.count);
  append_quantity(out, "forward", link.forward);
  append_quantity(out, "backward", link.backward);
  append_quantity(out, "latency_us", link.latency_us);
  if (link.pcie) {
    append_rate(out, "current", link.pcie->current);
    append_rate(out, "maximum", link.pcie->maximum);
  }
  out += '\n';
}

// --- Parsing ---

struct Token {
  std::size_t column = 0;
  std::string key;  // Empty: a word alone, which is the value.
  std::string value;
};

class Parser {
 public:
  Parser(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  Result<Graph> parse() {
    line_ = 1;
    if (text_.size() > kMostBytes) return error(1, "longer than 64 MiB");
    for (bool header = true; !text_.empty(); ++line_, header = false) {
      const std::size_t stop = std::min(text_.find('\n'), text_.size());
      std::string_view line = text_.substr(0, stop);
      text_.remove_prefix(std::min(stop + 1, text_.size()));
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (header) {
        if (line != kHeader) break;
        continue;
      }
      TUTTI_RETURN_IF_ERROR(tokenize(line));
      TUTTI_RETURN_IF_ERROR(entry());
    }
    if (line_ == 1) return error(1, "the first line must be '{}'", kHeader);
    for (const HostOf& host : hosts_) {
      const auto found = by_name_.find(host.name);
      if (found == by_name_.end()) {
        line_ = host.line;
        return error(host.column, "no node '{}'", host.name);
      }
      graph_.nodes[host.node].host = {found->second};
    }
    return std::move(graph_);
  }

 private:
  template <class... Args>
  Error error(std::size_t column, fmt::format_string<Args...> what, Args&&... args) const {
    return invalid("{}:{}:{}: {}", source_, line_, column,
                   fmt::format(what, std::forward<Args>(args)...));
  }

  Status tokenize(std::string_view line) {
    tokens_.clear();
    std::size_t at = 0;
    for (;;) {
      while (at < line.size() && (line[at] == ' ' || line[at] == '\t')) ++at;
      if (at == line.size() || line[at] == '#') return ok();
      Token token;
      token.column = at + 1;
      const std::size_t start = at;
      while (at < line.size() && is_plain(line[at])) ++at;
      token.value = line.substr(start, at - start);
      if (at < line.size() && line[at] == '=' && at > start) {
        token.key = std::move(token.value);
        token.value.clear();
        const std::size_t value = ++at;
        while (at < line.size() && is_plain(line[at])) ++at;
        token.value = line.substr(value, at - value);
      }
      if (token.value.empty() && at < line.size() && line[at] == '"') {
        TUTTI_RETURN_IF_ERROR(quoted(line, at, token.value));
      } else if (token.value.empty()) {
        return error(at + 1, "{}",
                     token.key.empty() ? "this character must stand in quotes"
                                       : "a value is missing after '='; write \"\" if empty");
      }
      if (at < line.size() && line[at] != ' ' && line[at] != '\t') {
        return error(at + 1,
                     "a blank must follow a word; put text with other characters in quotes");
      }
      tokens_.push_back(std::move(token));
    }
  }

  Status quoted(std::string_view line, std::size_t& at, std::string& value) const {
    const std::size_t start = at++;
    while (at < line.size() && line[at] != '"') {
      if (line[at] != '\\') {
        value += line[at++];
        continue;
      }
      const char escaped = at + 1 < line.size() ? line[at + 1] : '\0';
      if (escaped == '"' || escaped == '\\') {
        value += escaped;
        at += 2;
        continue;
      }
      unsigned code = 0;
      const char* digits = line.data() + at + 2;
      if (escaped != 'x' || at + 4 > line.size() ||
          std::from_chars(digits, digits + 2, code, 16).ptr != digits + 2) {
        return error(at + 1, "an escape is one of \\\" \\\\ \\xNN");
      }
      value += static_cast<char>(code);
      at += 4;
    }
    if (at == line.size()) return error(start + 1, "this quote is not closed on its line");
    ++at;
    return ok();
  }

  Status entry() {
    if (tokens_.empty()) return ok();
    const Token& first = tokens_[0];
    if (first.key.empty()) {
      if (first.value == "note") {
        if (tokens_.size() != 2 || !tokens_[1].key.empty()) {
          return error(first.column, "a note is one text in quotes: note \"...\"");
        }
        graph_.notes.push_back(tokens_[1].value);
        return ok();
      }
      if (const auto kind = parse_node_kind(first.value)) return node(*kind);
      if (const auto kind = parse_link_kind(first.value)) return link(*kind);
    }
    return error(first.column, "'{}' is no kind of node or link, and not note",
                 first.key.empty() ? first.value : first.key);
  }

  Status node(NodeKind kind) {
    if (tokens_.size() < 2 || !tokens_[1].key.empty()) {
      return error(tokens_[0].column, "a name is missing: KIND NAME key=value ...");
    }
    Node made;
    made.kind = kind;
    made.name = tokens_[1].value;
    if (made.name.empty() || made.name.find_first_of(" \t\r\n") != std::string::npos) {
      return error(tokens_[1].column, "a name must have characters, and no white space");
    }
    TUTTI_RETURN_IF_ERROR(fields_once(2));
    for (std::size_t i = 2; i < tokens_.size(); ++i)
      TUTTI_RETURN_IF_ERROR(node_field(made, tokens_[i]));
    if (!by_name_.emplace(made.name, static_cast<std::uint32_t>(graph_.nodes.size())).second) {
      return error(tokens_[1].column, "there is a node '{}' already", made.name);
    }
    graph_.add(std::move(made));
    return ok();
  }

  Status link(LinkKind kind) {
    if (tokens_.size() < 3 || !tokens_[1].key.empty() || !tokens_[2].key.empty()) {
      return error(tokens_[0].column, "a link needs two ends: KIND NODE NODE key=value ...");
    }
    if (graph_.links.size() == kMostLinks) return error(1, "more than 10 million links");
    Link made;
    made.kind = kind;
    TUTTI_TRY(made.a, end(tokens_[1]));
    TUTTI_TRY(made.b, end(tokens_[2]));
    TUTTI_RETURN_IF_ERROR(fields_once(3));
    for (std::size_t i = 3; i < tokens_.size(); ++i)
      TUTTI_RETURN_IF_ERROR(link_field(made, tokens_[i]));
    graph_.add(made);
    return ok();
  }

  Status node_field(Node& made, const Token& token) {
    if (token.key == "index") return integer(token, 0, made.index);
    if (token.key == "bus") {
      made.bus = token.value;
      return ok();
    }
    if (token.key == "host") {
      hosts_.push_back(
          {static_cast<std::uint32_t>(graph_.nodes.size()), line_, token.column, token.value});
      return ok();
    }
    const std::string_view fact = std::string_view(token.key).substr(1);
    const auto bad = fact.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_");
    if (token.key[0] != '.' || fact.empty() || bad != std::string_view::npos) {
      return error(token.column,
                   "a node has host, index, bus and facts (.name=value, "
                   "name of a-z, 0-9, _), not '{}'",
                   token.key);
    }
    made.facts.emplace(fact, token.value);
    return ok();
  }

  Status link_field(Link& made, const Token& token) const {
    if (token.key == "count") return integer(token, 1, made.count);
    if (token.key == "forward") return quantity(token, made.forward);
    if (token.key == "backward") return quantity(token, made.backward);
    if (token.key == "latency_us") return quantity(token, made.latency_us);
    if (token.key == "current" || token.key == "maximum") {
      if (!made.pcie) made.pcie.emplace();
      return rate(token, token.key == "current" ? made.pcie->current : made.pcie->maximum);
    }
    return error(token.column,
                 "a link has count, forward, backward, latency_us, current "
                 "and maximum, not '{}'",
                 token.key);
  }

  Status integer(const Token& token, int least, int& value) const {
    const auto found = parse_number<int>(token.value);
    value = found.value_or(least - 1);
    if (value < least) {
      return error(token.column, "{} must be a whole number from {} on, not '{}'", token.key, least,
                   token.value);
    }
    return ok();
  }

  Status quantity(const Token& token, Quantity& value) const {
    if (token.value == "?") return ok();
    const auto parts = split(token.value, ':');
    value.value = parse_number<double>(parts[0]).value_or(-1);
    value.origin =
        parts.size() == 2 ? parse_origin(parts[1]).value_or(Origin::kUnknown) : Origin::kUnknown;
    if (!std::isfinite(value.value) || std::signbit(value.value) || !value.known()) {
      return error(token.column,
                   "{} must be ? or NUMBER:ORIGIN (assumed, table, maximum, current, "
                   "measured), not '{}'",
                   token.key, token.value);
    }
    return ok();
  }

  Status rate(const Token& token, PcieRate& value) const {
    if (token.value == "?") return ok();
    const auto parts = split(token.value, 'x');
    value.gigatransfers = parse_number<double>(parts[0]).value_or(-1);
    value.width = parts.size() == 2 ? parse_number<int>(parts[1]).value_or(-1) : -1;
    if (std::isfinite(value.gigatransfers) && !std::signbit(value.gigatransfers) &&
        value.width >= 0 && value.width <= 32)
      return ok();
    return error(token.column, "{} must be ? or GT/s and lanes, as in 16x8, not '{}'", token.key,
                 token.value);
  }

  Result<NodeId> end(const Token& token) const {
    const auto found = by_name_.find(token.value);
    if (found == by_name_.end()) {
      return error(token.column, "no node '{}' before this line", token.value);
    }
    return NodeId{found->second};
  }

  Status fields_once(std::size_t first) const {
    std::set<std::string_view> seen;
    for (std::size_t i = first; i < tokens_.size(); ++i) {
      const Token& token = tokens_[i];
      if (token.key.empty()) {
        return error(token.column, "expected key=value, not '{}'", token.value);
      }
      if (!seen.insert(token.key).second) {
        return error(token.column, "{} is said twice", token.key);
      }
    }
    return ok();
  }

  std::string_view text_;
  std::string_view source_;
  std::size_t line_ = 0;
  std::vector<Token> tokens_;
  Graph graph_;
  std::unordered_map<std::string, std::uint32_t> by_name_;
  struct HostOf {
    std::uint32_t node;
    std::size_t line, column;
    std::string name;
  };
  std::vector<HostOf> hosts_;  // Resolved at the end: a host may come after what is in it.
};

}  // namespace

std::string print(const Graph& graph) {
  std::string out(kHeader);
  out += '\n';
  for (const std::string& note : graph.notes) {
    out += "note ";
    append_word(out, note);
    out += '\n';
  }
  for (const Node& node : graph.nodes) append_node(out, graph, node);
  for (const Link& link : graph.links) append_link(out, graph, link);
  return out;
}

Result<Graph> parse_graph(std::string_view text, std::string_view source) {
  return Parser(text, source).parse();
}

}  // namespace tutti::topology
