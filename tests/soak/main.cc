// tutti_soak: rounds of kill, stop and fork over real processes (round.h), by seed; scripts/soak
// runs it. With --member it is one rank of a job whose network scripts/soak damages.
//
// Exit code: 0 if all rounds went as they should. A round that did not prints the command that
// repeats it.
#include <sys/prctl.h>

#include <chrono>
#include <cstdio>

#include <fmt/format.h>

#include "perf/command_line/command_line.h"
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
  std::string only, transport, children, work;
  bool member = false;
};

/// What a seed says, within what the user says.
RoundOptions options_of(const Options& options, std::uint64_t seed) {
  RoundOptions round;
  round.seed = seed;
  round.within_seconds = options.within;
  const std::uint64_t turn = seed / 12;  // So that what follows does not go with the victim.
  round.ranks = 2 + static_cast<int>(turn % 3);
  round.victim = static_cast<int>(seed % static_cast<unsigned>(round.ranks));
  round.transport =
      options.transport.empty() ? (seed % 2 == 0 ? "shared_memory" : "tcp") : options.transport;
  round.children = options.children.empty() ? seed / 2 % 2 == 0 : options.children == "yes";
  round.trains = options.work.empty() ? seed / 4 % 4 == 0 : options.work == "train";
  if (const auto attack = attack_of(options.only))
    round.attack = *attack;
  else if (options.only.empty())
    round.attack = seed / 3 % 6 == 0   ? Attack::kStop
                   : seed / 3 % 6 == 1 ? Attack::kFork
                                       : Attack::kKill;
  if (options.only == "train") round.trains = true;
  if (round.attack != Attack::kKill) round.trains = false;
  return round;
}

std::string repeat_command(const Options& options, std::uint64_t seed) {
  std::string command = fmt::format("scripts/soak --rounds 1 --seed {}", seed);
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) command += fmt::format(" --{} {}", name, value);
  };
  add("only", options.only);
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
  std::uint64_t steps = 0;
  int failed = 0, done = 0;
  for (; options.rounds == 0 || done < options.rounds; ++done) {
    const std::chrono::duration<double> passed = Clock::now() - begin;
    if (options.rounds == 0 && passed.count() > options.seconds) break;
    const std::uint64_t seed = options.seed + static_cast<std::uint64_t>(done);
    const RoundOptions round = options_of(options, seed);
    const Outcome outcome = run_round(round, data);
    answers.insert(answers.end(), outcome.answers.begin(), outcome.answers.end());
    steps += outcome.steps;
    if (!outcome.complaints.empty()) {
      ++failed;
      fmt::print("FAILED: {} of rank {} of {}, {}{}{}\n", name_of(round.attack), round.victim,
                 round.ranks, round.transport, round.children ? ", with forked children" : "",
                 round.trains ? ", training" : "");
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
  app.add_option("--transport", options.transport, "One transport");
  app.add_option("--children", options.children, "Whether ranks have forked sleeping children")
      .check(tutti::perf::is_member({"yes", "no"}));
  app.add_option("--work", options.work, "What ranks do")
      .check(tutti::perf::is_member({"mixed", "train"}));
  app.add_flag("--member", options.member, "Be one rank, as the launcher says");
  if (const auto code = app.parse_or_print(argc, argv)) return *code;
  return options.member ? tutti::soak::be_member(options) : tutti::soak::run_rounds(options);
}
