#include "trainer/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include <nlohmann/json.hpp>

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

/// Where speeds lie in the picture of scaling: both axes begin at 0.
struct Axes {
  double ranks = 1, speed = 1;  // At their ends.
  double x(double value) const { return kLeft + (kRight - kLeft) * value / ranks; }
  double y(double value) const { return kBottom - (kBottom - kTop) * value / speed; }
};

std::string grid(const Axes& axes, std::span<const Compared> runs) {
  std::string svg;
  for (const Compared& run : runs) {
    const double ratio = static_cast<double>(run.ranks) / runs[0].ranks;
    svg += fmt::format(
        "<line x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}' stroke='#e3e3e3'/><text x='{}' y='{:.1f}' "
        "class='r'>{:g}</text><text x='{:.1f}' y='{}' class='m'>{}</text>\n",
        kLeft, kRight, axes.y(ratio), axes.y(ratio), kLeft - 6, axes.y(ratio) + 4, ratio,
        axes.x(run.ranks), kBottom + 18, run.ranks);
  }
  return svg + fmt::format("<line x1='{}' y1='{}' x2='{:.1f}' y2='{:.1f}' stroke='#999'/>\n", kLeft,
                           kBottom, axes.x(axes.ranks), axes.y(axes.ranks / runs[0].ranks));
}

/// One kind of scaling: its curve, and dashed that of ranks that exchange nothing.
std::string curves(const Axes& axes, const Scaling& scaling, const char* color) {
  const double first = scaling.runs[0].speed();
  std::string points, apart, circles;
  for (const Compared& run : scaling.runs) {
    const double x = axes.x(run.ranks), y = axes.y(run.speed() / first);
    points += fmt::format("{:.1f},{:.1f} ", x, y);
    apart += fmt::format("{:.1f},{:.1f} ", x, axes.y(run.apart / first));
    circles += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3.5' fill='{}'/>", x, y, color);
  }
  return fmt::format(
      "<polyline points='{}' fill='none' stroke='{}' stroke-width='2.2'/>{}\n"
      "<polyline points='{}' fill='none' stroke='{}' stroke-width='1.5' "
      "stroke-dasharray='5 4'/>\n",
      points, color, circles, apart, color);
}

std::string legend(int line, const char* color, const char* dashes, std::string_view name) {
  const double y = kTop + 8 + 20 * line;
  return fmt::format(
      "<line x1='{}' x2='{}' y1='{}' y2='{}' stroke='{}' stroke-width='2.2' "
      "stroke-dasharray='{}'/><text x='{}' y='{}'>{}</text>\n",
      kRight + 12, kRight + 36, y, y, color, dashes, kRight + 42, y + 4, name);
}

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
  std::string text =
      fmt::format("{:<10}{:>11}{:>12}{:>9}{:>11}{:>11}{:>10}{:>9}{:>9}\n", "run", "samples/s",
                  "efficiency", "apart", "accuracy", "computing", "exposed", "rest", "hidden");
  for (const Compared& run : runs) {
    const Outcome& outcome = run.outcome;
    const Phases& phases = outcome.phases;
    const double ideal = runs[0].speed() * run.ranks / runs[0].ranks;
    const auto milliseconds = [&](double seconds) { return per_step(outcome, seconds) * 1e3; };
    text += fmt::format(
        "{:<10}{:>11.0f}{:>10.1f} %{:>7.1f} %{:>9.2f} %{:>11.2f}{:>10.2f}{:>9.2f}{:>7.0f} %\n",
        run.name, run.speed(), run.speed() / ideal * 100, run.apart / ideal * 100,
        outcome.epochs.back().accuracy * 100, milliseconds(phases.compute_s),
        milliseconds(phases.exposed_s),
        milliseconds(phases.steps_s - phases.compute_s - phases.exposed_s), phases.hidden() * 100);
  }
  return text;
}

std::string scaling_plot(std::span<const Scaling> all) {
  Axes axes;
  for (const Scaling& scaling : all) {
    const double first = scaling.runs[0].speed();
    for (const Compared& run : scaling.runs) {
      axes.ranks = std::max<double>(axes.ranks, run.ranks);
      // Above the line, if caches make them so fast.
      axes.speed = std::max({axes.speed, static_cast<double>(run.ranks) / scaling.runs[0].ranks,
                             run.speed() / first, run.apart / first});
    }
  }
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 720 420' width='720' height='420' "
      "font-family='sans-serif'>\n"
      "<style>text{{fill:#333;font-size:12px}}.h{{font-size:17px;font-weight:bold}}.r{{text-anchor:"
      "end}}.m{{text-anchor:middle}}</style>\n"
      "<rect width='720' height='420' fill='white'/><text x='{}' y='30' class='h'>Samples a second "
      "over those of the first run</text>\n{}",
      kLeft, grid(axes, all[0].runs));
  for (std::size_t s = 0; s < all.size(); ++s) {
    const char* color = kColors[s % kColors.size()];
    svg += curves(axes, all[s], color) +
           legend(2 * static_cast<int>(s), color, "", all[s].name + " scaling") +
           legend(2 * static_cast<int>(s) + 1, color, "5 4", "no exchange");
  }
  return svg + legend(2 * static_cast<int>(all.size()), "#999", "", "N times as fast") +
         fmt::format("<text x='{}' y='{}' class='m'>ranks</text>\n</svg>\n", (kLeft + kRight) / 2,
                     kBottom + 42);
}

std::string scaling_json(std::span<const Scaling> all) {
  auto json = nlohmann::ordered_json::object();
  for (const Scaling& scaling : all) {
    auto& runs = json[scaling.name] = nlohmann::ordered_json::array();
    for (const Compared& run : scaling.runs) {
      const Phases& phases = run.outcome.phases;
      runs.push_back({{"ranks", run.ranks},
                      {"samples_per_second", run.speed()},
                      {"apart_samples_per_second", run.apart},
                      {"accuracy", run.outcome.epochs.back().accuracy},
                      {"step_s", per_step(run.outcome, phases.steps_s)},
                      {"compute_s", per_step(run.outcome, phases.compute_s)},
                      {"exposed_s", per_step(run.outcome, phases.exposed_s)},
                      {"communication_hidden", phases.hidden()}});
    }
  }
  return json.dump(1) + "\n";
}

}  // namespace tutti::trainer
