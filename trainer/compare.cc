#include "trainer/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace tutti::trainer {
namespace {

constexpr double kLeft = 60, kRight = 560, kTop = 50, kBottom = 360;
constexpr double kLeastAccuracy = 0.5;
constexpr std::array kColors = {"#1f6fb4", "#c0532b", "#3a923a", "#8d5fb0", "#b8860b", "#17a2b8",
                                "#d6478b", "#555555", "#7a9a01", "#004c6d", "#a0522d", "#888888"};

double per_step(const Outcome& outcome, double value) {
  return value / static_cast<double>(std::max<std::uint64_t>(1, outcome.steps));
}

double bytes_of(const Compared& run) { return run.outcome.epochs.back().bytes; }

}  // namespace

std::string comparison_table(std::span<const Compared> runs) {
  std::string text = fmt::format("{:<13}{:>9}{:>10}{:>12}{:>11}{:>11}{:>11}{:>9}{:>9}\n",
                                 "strategy", "accuracy", "KB/step", "parameters", "gradients",
                                 "optimiser", "transient", "ms/step", "exposed");
  for (const Compared& run : runs) {
    const Outcome& outcome = run.outcome;
    const auto kilobytes = [&](Holds what) {
      return static_cast<double>(outcome.memory.most(what)) / 1e3;
    };
    text += fmt::format(
        "{:<13}{:>7.2f} %{:>10.1f}{:>12.1f}{:>11.1f}{:>11.1f}{:>11.1f}{:>9.2f}{:>9.2f}\n", run.name,
        outcome.epochs.back().accuracy * 100, per_step(outcome, bytes_of(run)) / 1e3,
        kilobytes(Holds::kParameters), kilobytes(Holds::kGradients), kilobytes(Holds::kOptimiser),
        kilobytes(Holds::kTransient), per_step(outcome, outcome.phases.steps_s) * 1e3,
        per_step(outcome, outcome.phases.exposed_s) * 1e3);
  }
  return text;
}

std::string comparison_plot(std::span<const Compared> runs) {
  double most = 1;
  for (const Compared& run : runs) most = std::max(most, bytes_of(run));
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 720 420' width='720' height='420' "
      "font-family='sans-serif'>\n"
      "<style>text{{fill:#333;font-size:12px}}.h{{font-size:17px;font-weight:bold}}.r{{text-anchor:"
      "end}}.m{{text-anchor:middle}}</style>\n"
      "<rect width='720' height='420' fill='white'/><text x='{}' y='30' class='h'>Test accuracy "
      "against bytes sent by rank 0</text>\n",
      kLeft);
  for (int i = 0; i <= 5; ++i) {
    const double y = kBottom - (kBottom - kTop) * i / 5, x = kLeft + (kRight - kLeft) * i / 5;
    svg += fmt::format(
        "<line x1='{}' x2='{}' y1='{}' y2='{}' stroke='#e3e3e3'/><text x='{}' y='{}' class='r'>{} "
        "%</text><text x='{}' y='{}' class='m'>{:.1f}</text>\n",
        kLeft, kRight, y, y, kLeft - 6, y + 4, 50 + 10 * i, x, kBottom + 18, most * i / 5 / 1e6);
  }
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const char* color = kColors[r % kColors.size()];
    std::string points;
    for (const Epoch& epoch : runs[r].outcome.epochs) {
      const double up = std::max(0.0, (epoch.accuracy - kLeastAccuracy) / (1 - kLeastAccuracy));
      points += fmt::format("{:.1f},{:.1f} ", kLeft + (kRight - kLeft) * epoch.bytes / most,
                            kBottom - (kBottom - kTop) * up);
    }
    const double y = kTop + 8 + 20 * static_cast<double>(r);
    svg += fmt::format(
        "<polyline points='{}' fill='none' stroke='{}' stroke-width='1.8'/><line x1='{}' x2='{}' "
        "y1='{}' y2='{}' stroke='{}' stroke-width='3'/><text x='{}' y='{}'>{}</text>\n",
        points, color, kRight + 16, kRight + 36, y, y, color, kRight + 42, y + 4, runs[r].name);
  }
  return svg + fmt::format("<text x='{}' y='{}' class='m'>MB sent</text>\n</svg>\n",
                           (kLeft + kRight) / 2, kBottom + 42);
}

std::string scaling_table(std::span<const Compared> runs) {
  std::string text = fmt::format("{:<16}{:>12}{:>12}{:>11}{:>9}\n", "run", "samples/s",
                                 "efficiency", "accuracy", "hidden");
  for (const Compared& run : runs) {
    const double speed = run.outcome.samples_per_second;
    const double ideal = runs[0].outcome.samples_per_second * run.ranks / runs[0].ranks;
    text += fmt::format("{:<16}{:>12.0f}{:>10.0f} %{:>9.2f} %{:>7.0f} %\n", run.name, speed,
                        speed / ideal * 100, run.outcome.epochs.back().accuracy * 100,
                        run.outcome.phases.hidden() * 100);
  }
  return text;
}

}  // namespace tutti::trainer
