// The reader of plan texts. The text comes from outside, so nothing in it is trusted: every number
// has a bound, and what is built is at most a few times as large as the text itself. It reads
// structure only; whether the plan is any good is for `verify` to say.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "plan/chunks.h"
#include "plan/names.h"
#include "plan/structure.h"
#include "plan/text/text.h"

namespace tutti::plan {
namespace {

constexpr std::size_t kMaxText = std::size_t{1} << 30;
constexpr std::size_t kMaxLine = std::size_t{1} << 22;  // A step with all ranks in it fits.
constexpr std::size_t kMaxSteps = std::size_t{1} << 24;
constexpr std::size_t kMaxName = 128;
constexpr std::uint64_t kMaxLocations = 0xffff;  // Sources, and targets, of one step.
constexpr std::uint64_t kMaxIndex = 0xfffffffe;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '+' || c == '.';
}

// One line, read from left to right.
class Line {
 public:
  Line(std::string_view text, std::size_t number) : text_(text), number_(number) {}

  bool at_end() {
    skip_blanks();
    return position_ == text_.size();
  }
  /// The next word, empty if there is none. Does not move on.
  std::string_view peek() {
    skip_blanks();
    std::size_t end = position_;
    while (end < text_.size() && is_word(text_[end])) ++end;
    return text_.substr(position_, end - position_);
  }
  std::string_view word() {
    const std::string_view found = peek();
    position_ += found.size();
    return found;
  }
  bool sees(std::string_view punctuation) {
    skip_blanks();
    return text_.substr(position_).starts_with(punctuation);
  }
  bool accept(std::string_view punctuation) {
    const bool found = sees(punctuation);
    if (found) position_ += punctuation.size();
    return found;
  }
  bool accept_word(std::string_view word) {
    const bool found = peek() == word;
    if (found) position_ += word.size();
    return found;
  }
  Status expect_word(std::string_view word) {
    return accept_word(word) ? ok() : expected(fmt::format("'{}'", word));
  }
  Status expect(std::string_view punctuation) {
    return accept(punctuation) ? ok() : expected(fmt::format("'{}'", punctuation));
  }

  /// A decimal number within bounds. `what` names it in errors.
  template <class Number>
  Status number(const char* what, std::uint64_t least, std::uint64_t most, Number& value) {
    const std::string_view digits = peek();
    std::uint64_t found = 0;
    const auto [end, failure] =
        std::from_chars(digits.data(), digits.data() + digits.size(), found);
    if (digits.empty() || failure != std::errc{} || end != digits.data() + digits.size() ||
        found < least || found > most)
      return expected(fmt::format("{} ({} to {})", what, least, most));
    position_ += digits.size();
    value = static_cast<Number>(found);
    return ok();
  }
  Status finish() { return at_end() ? ok() : expected("the end of the line"); }

  /// The error at the current position.
  Error expected(std::string_view what) {
    skip_blanks();
    std::string found;
    for (const char c : text_.substr(position_, 20)) found += c >= ' ' && c <= '~' ? c : '?';
    return error(fmt::format("expected {}, found {}", what,
                             found.empty() ? "the end of the line" : "'" + found + "'"));
  }
  Error error(std::string_view what) const {
    return {Code::kInvalidPlan,
            fmt::format("plan text, line {}, column {}: {}", number_, position_ + 1, what)};
  }

 private:
  void skip_blanks() {
    position_ = std::min(text_.find_first_not_of(" \t\r", position_), text_.size());
  }

  std::string_view text_;
  std::size_t number_;
  std::size_t position_ = 0;
};

/// It has more than 20 functions: one for each rule of the grammar.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Plan> parse() {
    if (text_.size() > kMaxText) return Line({}, 1).error("the text is longer than 1 GiB");
    std::size_t number = 0;
    while (!text_.empty()) {
      const std::size_t end = std::min(text_.find('\n'), text_.size());
      const std::string_view whole = text_.substr(0, end);
      text_.remove_prefix(std::min(end + 1, text_.size()));
      ++number;
      if (whole.size() > kMaxLine) return Line({}, number).error("the line is longer than 4 MiB");
      Line line(whole.substr(0, whole.find('#')), number);
      if (!line.at_end()) TUTTI_RETURN_IF_ERROR(statement(line));
    }
    Line end({}, number + 1);
    if (!has_header_) return end.expected("'plan'");
    if (plan_.ranks.size() != static_cast<std::size_t>(plan_.shape.rank_count))
      return end.expected(fmt::format("'rank {}'", plan_.ranks.size()));
    return std::move(plan_);
  }

 private:
  Status statement(Line& line) {
    const bool in_rank = !plan_.ranks.empty();
    const bool in_lane = in_rank && !plan_.ranks.back().lanes.empty();
    if (!has_header_) return line.accept_word("plan") ? header(line) : line.expected("'plan'");
    if (line.peek() == "rank") return rank(line);
    if (in_rank && line.accept_word("lane")) return lane(line);
    if (in_lane && line.accept_word("move")) return move(line);
    if (in_lane && line.accept_word("signal")) return sync(line, StepKind::kSignal);
    if (in_lane && line.accept_word("wait")) return sync(line, StepKind::kWait);
    return line.expected(in_lane   ? "'move', 'signal', 'wait', 'lane' or 'rank'"
                         : in_rank ? "'lane' or 'rank'"
                                   : "'rank'");
  }

  Status header(Line& line) {
    plan_.name = line.peek();
    if (plan_.name.empty() || plan_.name.size() > kMaxName)
      return line.expected(fmt::format("a name of 1 to {} characters", kMaxName));
    line.word();
    const auto collective = parse_collective(line.peek());
    if (!collective) return line.expected("a collective (" + collective_names() + ")");
    plan_.shape.collective = *collective;
    line.word();
    TUTTI_RETURN_IF_ERROR(line.expect_word("ranks"));
    TUTTI_RETURN_IF_ERROR(line.number("a rank count", 1, kMaxRanks, plan_.shape.rank_count));
    TUTTI_RETURN_IF_ERROR(line.expect_word("pieces"));
    TUTTI_RETURN_IF_ERROR(line.number("a number of pieces", 1, kMaxIndex, plan_.pieces));
    TUTTI_RETURN_IF_ERROR(line.expect_word("contract"));
    const bool relaxed = line.accept_word("relaxed");
    plan_.contract = relaxed ? Contract::kRelaxed : Contract::kDeterministic;
    if (!relaxed && !line.accept_word("deterministic"))
      return line.expected("deterministic or relaxed");
    const auto ranks = static_cast<std::uint64_t>(plan_.shape.rank_count);
    if (line.accept_word("root"))
      TUTTI_RETURN_IF_ERROR(line.number("a rank", 0, ranks - 1, plan_.shape.root));
    if (line.accept_word("group"))
      TUTTI_RETURN_IF_ERROR(numbers(line, "a group size", 1, kMaxRanks, plan_.shape.groups.sizes));
    if (line.accept_word("weights"))
      TUTTI_RETURN_IF_ERROR(numbers(line, "a weight", 0, kMaxWeight, plan_.shape.weights));
    while (line.accept_word("tree")) {
      SpanningTree& tree = plan_.shape.trees.emplace_back();
      TUTTI_RETURN_IF_ERROR(line.number("a weight", 1, kMaxWeight, tree.weight));
      TUTTI_RETURN_IF_ERROR(line.expect(":"));
      TUTTI_RETURN_IF_ERROR(numbers(line, "a rank", 0, ranks - 1, tree.parents));
    }
    plan_.entry_barrier = line.accept_word("together");
    plan_.apart = line.accept_word("apart");
    has_header_ = true;
    return line.finish();
  }

  // One or more, separated by commas; check_shape says what is wrong with all of them together.
  static Status numbers(Line& line, const char* what, std::uint64_t least, std::uint64_t most,
                        std::vector<int>& into) {
    do {
      if (into.size() == kMaxRanks) return line.error("a list of more numbers than ranks");
      TUTTI_RETURN_IF_ERROR(line.number(what, least, most, into.emplace_back()));
    } while (line.accept(","));
    return ok();
  }

  Status rank(Line& line) {
    const std::uint64_t next = plan_.ranks.size();
    if (next == static_cast<std::uint64_t>(plan_.shape.rank_count))
      return line.error(fmt::format("the plan is for {} ranks, this is one more", next));
    line.word();
    std::uint64_t index = 0;
    TUTTI_RETURN_IF_ERROR(line.number("the next rank", next, next, index));
    RankPlan rank;
    if (line.accept_word("scratch"))
      TUTTI_RETURN_IF_ERROR(
          line.number("a number of scratch chunks", 0, kMaxIndex, rank.scratch_chunks));
    plan_.ranks.push_back(std::move(rank));
    return line.finish();
  }

  Status lane(Line& line) {
    auto& lanes = plan_.ranks.back().lanes;
    std::uint64_t index = 0;
    TUTTI_RETURN_IF_ERROR(line.number("the next lane", lanes.size(), lanes.size(), index));
    lanes.emplace_back();
    return line.finish();
  }

  Status sync(Line& line, StepKind kind) {
    Step step{.kind = kind};
    TUTTI_RETURN_IF_ERROR(peer(line, step.peer));
    TUTTI_RETURN_IF_ERROR(add(line, step));
    return line.finish();
  }

  Status move(Line& line) {
    Step step;
    step.first = static_cast<std::uint32_t>(current().locations.size());
    const std::uint64_t chunks = message_blocks(plan_.shape) * plan_.pieces;
    TUTTI_RETURN_IF_ERROR(line.number("a chunk", 0, std::min(chunks - 1, kMaxIndex), step.chunk));
    TUTTI_RETURN_IF_ERROR(line.expect(":"));
    TUTTI_RETURN_IF_ERROR(locations(line, true, step.source_count));
    TUTTI_RETURN_IF_ERROR(line.expect("->"));
    TUTTI_RETURN_IF_ERROR(locations(line, false, step.target_count));
    TUTTI_RETURN_IF_ERROR(add(line, step));
    return line.finish();
  }

  Status locations(Line& line, bool is_source, std::uint16_t& count) {
    std::uint64_t found = 0;
    do {
      if (++found > kMaxLocations) return line.error("more than 65535 sources or targets");
      Location at;
      TUTTI_RETURN_IF_ERROR(location(line, is_source, at));
      current().locations.push_back(at);
    } while (line.accept(","));
    count = static_cast<std::uint16_t>(found);
    return ok();
  }

  Status location(Line& line, bool is_source, Location& at) {
    if (is_source && line.accept_word("input"))
      return buffer(line, Place::kInput, Place::kPeerInput, at);
    if (line.accept_word("output")) return buffer(line, Place::kOutput, Place::kPeerOutput, at);
    if (line.accept_word("scratch")) {
      at.place = Place::kScratch;
      TUTTI_RETURN_IF_ERROR(index(line, at.chunk));
    } else if (line.accept_word(is_source ? "from" : "to")) {
      at.place = Place::kSlot;
      TUTTI_RETURN_IF_ERROR(peer_in_parentheses(line, at.peer));
    } else if (line.accept_word("multicast")) {
      at.place = Place::kMulticast;
      if (is_source) TUTTI_RETURN_IF_ERROR(peer_in_parentheses(line, at.peer));
    } else {
      return line.expected(is_source ? "input, output, scratch, from or multicast"
                                     : "output, scratch, to or multicast");
    }
    TUTTI_RETURN_IF_ERROR(line.expect(":"));
    return form(line, at.form);
  }

  // input[3], or input(1)[3] for that of a peer.
  Status buffer(Line& line, Place own, Place peers, Location& at) {
    at.form = own == Place::kInput ? form_of_input(plan_.shape) : Form::kResult;
    at.place = line.sees("(") ? peers : own;
    if (at.place == peers) TUTTI_RETURN_IF_ERROR(peer_in_parentheses(line, at.peer));
    return index(line, at.chunk);
  }

  Status form(Line& line, Form& form) {
    for (const Form known : {Form::kContribution, Form::kPartial, Form::kResult}) {
      form = known;
      if (line.accept_word(to_string(known))) return ok();
    }
    return line.expected("contribution, partial or result");
  }

  Status index(Line& line, std::uint32_t& chunk) {
    TUTTI_RETURN_IF_ERROR(line.expect("["));
    TUTTI_RETURN_IF_ERROR(line.number("a chunk", 0, kMaxIndex, chunk));
    return line.expect("]");
  }
  Status peer(Line& line, std::uint16_t& peer) {
    const auto last = static_cast<std::uint64_t>(plan_.shape.rank_count) - 1;
    return line.number("a rank", 0, last, peer);
  }
  Status peer_in_parentheses(Line& line, std::uint16_t& rank) {
    TUTTI_RETURN_IF_ERROR(line.expect("("));
    TUTTI_RETURN_IF_ERROR(peer(line, rank));
    return line.expect(")");
  }

  Status add(Line& line, const Step& step) {
    if (++steps_ > kMaxSteps) return line.error("the plan has more than 2^24 steps");
    current().steps.push_back(step);
    return ok();
  }
  Lane& current() { return plan_.ranks.back().lanes.back(); }

  std::string_view text_;
  Plan plan_;
  bool has_header_ = false;
  std::size_t steps_ = 0;
};

}  // namespace

Result<Plan> parse(std::string_view text) { return Parser(text).parse(); }

}  // namespace tutti::plan
