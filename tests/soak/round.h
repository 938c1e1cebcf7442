// File: soak/round.h: one round: real processes make mixed calls or train, something happens to one
// of them at a random moment, and what the others say, and what is left behind, is judged.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data.h"

namespace tutti::soak {

enum class Attack {
  kKill,  // SIGKILL: each other rank returns an error that names the dead one.
  kStop,  // SIGSTOP for a moment: nothing fails; or past the deadline: the stopped rank is named.
  kFork,  // Nothing happens to anybody, but all ranks fork all the time: nothing fails.
};

struct RoundOptions {
  Attack attack = Attack::kKill;
  std::uint64_t seed = 0;
  int ranks = 3;
  int victim = 0;
  std::string transport = "shared_memory";
  bool children = false;  // Each rank has forked a child, which sleeps and holds all that it holds.
  double within_seconds = 1;  // In which a rank answers, but for the time without a CPU.
  bool trains = false;        // The ranks train a model; else they make mixed calls.
};

/// One rank's answer to the death of another.
struct Answer {
  double seconds = 0;  // From the death, or the beginning of its failing call if that came later.
  double waited_for_cpu_seconds = 0;  // That it was ready to run meanwhile, and did not.
};

struct Outcome {
  std::vector<std::string> complaints;  // Empty: all is as it should be.
  std::vector<Answer> answers;
  std::uint64_t steps = 0;  // That ranks made, all together.
};

/// The calling process has no threads, and no children but those of rounds. `data`: what is
/// trained.
Outcome run_round(const RoundOptions& options, const trainer::Split& data);

std::string_view name_of(Attack attack);
std::optional<Attack> attack_of(std::string_view name);

}  // namespace tutti::soak
