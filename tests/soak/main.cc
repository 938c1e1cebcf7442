// tutti_soak: rounds of kill, stop and fork over real processes (round.h), by seed; scripts/soak
// runs it. With --member it is one rank of a job whose network scripts/soak damages.
//
// Exit code: 0 if all rounds went as they should. A round that did not prints the command that
// repeats it.
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

#include <fmt/format.h>

#include "perf/command_line/command_line.h"
#include "soak/board.h"
#include "soak/ranks.h"
#include "soak/round.h"

namespace tutti::soak {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  double seconds = 60;
  int rounds = 0;  // 0: as many as there is time for.
  std::uint64_t seed = 1;
  double within = 1;
  int ranks = 0;  // 0: 2 to 4.
  std::string only, transport, children, work;
  bool member = false;
};

/// Gives out what a number says, one part after another; the parts are independent.
class Turns {
 public:
  explicit Turns(std::uint64_t number) : left_(number) {}
  int pick(int count) {
    const auto turn = static_cast<int>(left_ % static_cast<unsigned>(count));
    left_ /= static_cast<unsigned>(count);
    return turn;
  }

 private:
  std::uint64_t left_;
};

/// What a seed says, within what the user says. Consecutive seeds go through all there is: each
/// rank of each number of ranks, on each transport, with children and without.
RoundOptions options_of(const Options& options, std::uint64_t seed) {
  RoundOptions round;
  round.seed = seed;
  round.within_seconds = options.within;
  Turns turns(seed);
  round.transport = options.transport.empty() ? (turns.pick(2) == 0 ? "shared_memory" : "tcp")
                                              : options.transport;
  round.children = options.children.empty() ? turns.pick(2) == 0 : options.children == "yes";
  round.ranks = options.ranks;
  if (options.ranks == 0) {
    round.victim = turns.pick(2 + 3 + 4);
    for (round.ranks = 2; round.victim >= round.ranks; ++round.ranks) round.victim -= round.ranks;
  } else {
    round.victim = turns.pick(options.ranks);
  }
  round.trains = options.work.empty() ? turns.pick(4) == 0 : options.work == "train";
  const int attack = turns.pick(6);
  if (const auto only = attack_of(options.only))
    round.attack = *only;
  else if (options.only.empty())
    round.attack = attack == 0 ? Attack::kStop : attack == 1 ? Attack::kFork : Attack::kKill;
  if (options.only == "train") round.trains = true;
  if (round.attack != Attack::kKill) round.trains = false;
  return round;
}

/// A kind of round: what happens to which rank, and where.
std::string kind_of(const RoundOptions& round) {
  return fmt::format("{} of rank {} of {}, {}{}{}", name_of(round.attack), round.victim,
                     round.ranks, round.transport, round.children ? ", with forked children" : "",
                     round.trains ? ", training" : "");
}

/// How many kinds of rounds there were, and how many of each.
void say_kinds(const std::map<std::string, int>& kinds) {
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto [least, most] = std::minmax_element(kinds.begin(), kinds.end(), less);
  if (least == kinds.end()) return;
  fmt::print("{} kinds of rounds, {} to {} of each; fewest: {}\n", kinds.size(), least->second,
             most->second, least->first);
}

std::string repeat_command(const Options& options, std::uint64_t seed) {
  std::string command = fmt::format("scripts/soak --rounds 1 --seed {}", seed);
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) command += fmt::format(" --{} {}", name, value);
  };
  add("only", options.only);
  add("ranks", options.ranks == 0 ? "" : std::to_string(options.ranks));
  add("transport", options.transport);
  add("children", options.children);
  add("work", options.work);
  return command;
}

/// The value below which that share of the answers lies.
double share_of(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  return sorted[std::min(sorted.size() - 1,
                         static_cast<std::size_t>(share * static_cast<double>(sorted.size())))];
}

/// p50, p99 and the most.
std::string spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return fmt::format("p50 {:.3f} s, p99 {:.3f} s, most {:.3f} s", share_of(values, 0.5),
                     share_of(values, 0.99), values.back());
}

void say_answers(const std::vector<Answer>& answers) {
  if (answers.empty()) return;
  std::vector<double> all, with_cpu;
  for (const Answer& one : answers) {
    all.push_back(one.seconds);
    with_cpu.push_back(std::max(0.0, one.seconds - one.waited_for_cpu_seconds));
  }
  fmt::print("answers to a death: {}: {}; less the time without a CPU: {}\n", all.size(),
             spread(all), spread(with_cpu));
}

int run_rounds(const Options& options) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  auto digits = trainer::read_digits(trainer::default_data_path());
  if (!digits) {
    fmt::print(stderr, "{}\n", digits.error().what);
    return 1;
  }
  const trainer::Split data = trainer::split(*digits, 1);
  const auto begin = Clock::now();
  auto next_line = begin;
  std::vector<Answer> answers;
  std::map<std::string, int> kinds;
  std::uint64_t steps = 0;
  int failed = 0, done = 0;
  for (; options.rounds == 0 || done < options.rounds; ++done) {
    const std::chrono::duration<double> passed = Clock::now() - begin;
    if (options.rounds == 0 && passed.count() > options.seconds) break;
    const std::uint64_t seed = options.seed + static_cast<std::uint64_t>(done);
    const RoundOptions round = options_of(options, seed);
    ++kinds[kind_of(round)];
    const Outcome outcome = run_round(round, data);
    answers.insert(answers.end(), outcome.answers.begin(), outcome.answers.end());
    steps += outcome.steps;
    if (!outcome.complaints.empty()) {
      ++failed;
      fmt::print("FAILED: {}\n", kind_of(round));
      for (const std::string& one : outcome.complaints) fmt::print("  {}\n", one);
      fmt::print("  again: {}\n", repeat_command(options, seed));
    }
    if (Clock::now() >= next_line) {
      next_line = Clock::now() + std::chrono::seconds(10);
      fmt::print("{:6.0f} s: {} rounds, {} failed, {} steps of ranks\n", passed.count(), done + 1,
                 failed, steps);
    }
    std::fflush(stdout);
  }
  fmt::print("{} rounds, {} failed, {} steps of ranks\n", done, failed, steps);
  say_kinds(kinds);
  say_answers(answers);
  return failed == 0 ? 0 : 1;
}

int be_member(const Options& options) {
  auto comm = Communicator::from_environment();
  if (comm) fmt::print("joined\n");
  std::fflush(stdout);
  const std::string wrong = comm ? run_member(*comm, options.seed, options.seconds)
                                 : "it could not join: " + comm.error().to_string();
  if (wrong.empty()) return 0;
  fmt::print("{}\n", wrong);
  return wrong.find("WRONG") == std::string::npos ? 3 : 1;
}

}  // namespace
}  // namespace tutti::soak

int main(int argc, char** argv) {
  tutti::soak::Options options;
  tutti::perf::CommandLine app("Rounds of kill, stop and fork over real processes");
  app.add_option("--seconds", options.seconds, "For how long, if --rounds does not say")
      .check(tutti::perf::range(0.1, 1e6));
  app.add_option("--rounds", options.rounds, "How many rounds")
      .check(tutti::perf::range(1, 1'000'000));
  app.add_option("--within", options.within,
                 "Seconds in which a rank has to answer to a death, besides those without a CPU");
  app.add_option("--seed", options.seed, "The first round's seed; each next one is one more");
  app.add_option("--only", options.only, "One kind of round")
      .check(tutti::perf::is_member({"kill", "stop", "fork", "train"}));
  app.add_option("--ranks", options.ranks, "How many ranks; else 2, 3 and 4 in turn")
      .check(tutti::perf::range(2, tutti::soak::kMostRanks));
  app.add_option("--transport", options.transport, "One transport");
  app.add_option("--children", options.children, "Whether ranks have forked sleeping children")
      .check(tutti::perf::is_member({"yes", "no"}));
  app.add_option("--work", options.work, "What ranks do")
      .check(tutti::perf::is_member({"mixed", "train"}));
  app.add_flag("--member", options.member, "Be one rank, as the launcher says");
  if (const auto code = app.parse_or_print(argc, argv)) return *code;
  return options.member ? tutti::soak::be_member(options) : tutti::soak::run_rounds(options);
}
