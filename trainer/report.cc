// Training as a picture and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trainer/train.h"

namespace tutti::trainer {
namespace {

constexpr double kLeft = 70, kRight = 650, kTop = 60, kBottom = 320;

/// A curve over epochs, `value` running from `low` at the bottom to `high` at the top.
std::string curve(const Outcome& outcome, const char* color, double low, double high,
                  double (*value)(const Epoch&)) {
  std::string points;
  const double steps = std::max<double>(1, static_cast<double>(outcome.epochs.size()) - 1);
  for (std::size_t i = 0; i < outcome.epochs.size(); ++i) {
    const double y = (std::clamp(value(outcome.epochs[i]), low, high) - low) / (high - low);
    points +=
        fmt::format("{:.1f},{:.1f} ", kLeft + (kRight - kLeft) * static_cast<double>(i) / steps,
                    kBottom - (kBottom - kTop) * y);
  }
  return fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='2.2'/>\n", points,
                     color);
}

}  // namespace

std::string plot_of(const Outcome& outcome, int ranks) {
  double highest = 0;
  for (const Epoch& epoch : outcome.epochs) highest = std::max(highest, epoch.loss);
  const double loss_top = std::max(0.1, std::ceil(highest * 5) / 5);
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 720 390' width='720' height='390' "
      "font-family='sans-serif'>\n"
      "<style>text{{fill:#333;font-size:12px}}.h{{font-size:17px;font-weight:bold}}.r{{text-anchor:"
      "end}}.m{{text-anchor:middle}}</style>\n"
      "<rect width='720' height='390' fill='white'/><text x='{}' y='32' class='h'>Digits on {} "
      "ranks: {:.2f} % right</text>\n",
      kLeft, ranks, outcome.epochs.back().accuracy * 100);
  for (int i = 0; i <= 5; ++i) {
    const double y = kBottom - (kBottom - kTop) * i / 5;
    svg += fmt::format(
        "<line x1='{}' x2='{}' y1='{}' y2='{}' stroke='#e3e3e3'/><text x='{}' y='{}' class='r' "
        "style='fill:#c0532b'>{:.2f}</text>"
        "<text x='{}' y='{}' style='fill:#1f6fb4'>{} %</text>\n",
        kLeft, kRight, y, y, kLeft - 8, y + 4, loss_top * i / 5, kRight + 8, y + 4, 80 + 4 * i);
  }
  const std::size_t count = outcome.epochs.size();
  for (std::size_t i = 0; i < count; i += std::max<std::size_t>(1, count / 6)) {
    const double x = kLeft + (kRight - kLeft) * static_cast<double>(i) /
                                 std::max<double>(1, static_cast<double>(count) - 1);
    svg += fmt::format("<text x='{:.1f}' y='{}' class='m'>{}</text>\n", x, kBottom + 20, i + 1);
  }
  svg += curve(outcome, "#c0532b", 0, loss_top, [](const Epoch& epoch) { return epoch.loss; });
  svg += curve(outcome, "#1f6fb4", 0.8, 1, [](const Epoch& epoch) { return epoch.accuracy; });
  svg += fmt::format(
      "<text x='{}' y='{}' class='m'>epoch</text>\n<text x='{}' y='{}' "
      "style='fill:#c0532b'>training loss</text>\n"
      "<text x='{}' y='{}' class='r' style='fill:#1f6fb4'>test accuracy</text>\n</svg>\n",
      (kLeft + kRight) / 2, kBottom + 46, kLeft, kBottom + 46, kRight, kBottom + 46);
  return svg;
}

std::string json_of(const Outcome& outcome, const TrainOptions& options, int ranks) {
  nlohmann::json json{{"ranks", ranks},
                      {"batch", options.batch},
                      {"accumulate", options.accumulate},
                      {"seed", options.seed},
                      {"strategy", options.strategy.name},
                      {"model", options.model.name},
                      {"samples_per_second", outcome.samples_per_second},
                      {"communication_hidden", outcome.phases.hidden()},
                      {"weights_hash", fmt::format("{:016x}", outcome.weights_hash)},
                      {"steps", outcome.steps},
                      {"compute_s", outcome.phases.compute_s},
                      {"exposed_s", outcome.phases.exposed_s},
                      {"model_state_bytes", outcome.memory.model_states()},
                      {"epochs", nlohmann::json::array()}};
  if (const Straggler& late = outcome.straggler; late.rank >= 0)
    json["straggler"] = {
        {"rank", late.rank}, {"last_share", late.last_share}, {"time_share", late.time_share}};
  for (const Epoch& epoch : outcome.epochs)
    json["epochs"].push_back(
        {{"loss", epoch.loss}, {"accuracy", epoch.accuracy}, {"bytes", epoch.bytes}});
  return json.dump(2) + "\n";
}

}  // namespace tutti::trainer
