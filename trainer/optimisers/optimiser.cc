#include "trainer/optimisers/optimiser.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trainer/optimisers/optimisers.h"

namespace tutti::trainer {

Result<std::unique_ptr<Optimiser>> make_optimiser(const OptimiserOptions& options) {
#define TUTTI_OPTIMISER(text, make, rate) \
  if (options.name == #text) return make(options);
#include "trainer/optimisers/optimisers.def"
#undef TUTTI_OPTIMISER
  std::string known;
#define TUTTI_OPTIMISER(text, make, rate) known += known.empty() ? #text : ", " #text;
#include "trainer/optimisers/optimisers.def"
#undef TUTTI_OPTIMISER
  return Error{Code::kInvalidArgument, "no optimiser " + options.name + "; there are " + known};
}

double default_rate(const std::string& optimiser) {
#define TUTTI_OPTIMISER(text, make, rate) \
  if (optimiser == #text) return rate;
#include "trainer/optimisers/optimisers.def"
#undef TUTTI_OPTIMISER
  return 0;
}

Result<Updater> Updater::make(const OptimiserOptions& options, Ledger& ledger,
                              std::vector<Run> runs, std::size_t units) {
  Updater updater;
  TUTTI_TRY(updater.optimiser_, make_optimiser(options));
  updater.runs_ = std::move(runs);
  updater.units_ = units;
  for (const Run& run : updater.runs_) {
    updater.offsets_.push_back(updater.total_);
    updater.total_ += run.size;
  }
  TUTTI_TRY(updater.states_,
            Floats::make(ledger, Holds::kOptimiser, updater.total_ * updater.optimiser_->states()));
  return updater;
}

Optimiser::Place Updater::place(std::size_t index) {
  Optimiser::Place place{.run = runs_[index]};
  for (std::size_t s = 0; s < optimiser_->states(); ++s)
    place.states[s] = states_.data() + s * total_ + offsets_[index];
  return place;
}

Status Updater::update(const Step& step, const std::function<Status(std::span<double>)>& sum,
                       const std::vector<char>* used) {
  std::vector<double> norms;
  const auto updated = [&](const Run& run) { return used == nullptr || (*used)[run.unit] != 0; };
  if (optimiser_->by_unit()) {
    norms.assign(2 * units_, 0);
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      if (updated(runs_[i])) optimiser_->prepare(place(i), step, norms.data() + 2 * runs_[i].unit);
    }
    if (sum) TUTTI_RETURN_IF_ERROR(sum(norms));
  }
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    if (!updated(runs_[i])) continue;
    double trust = 1;
    if (!norms.empty()) {
      const double* norm = norms.data() + 2 * runs_[i].unit;
      if (norm[0] > 0 && norm[1] > 0) trust = std::sqrt(norm[0] / norm[1]);
    }
    optimiser_->update(place(i), step, trust);
  }
  return ok();
}

std::vector<Piece> Updater::pieces(Held held) const {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    const Run& run = runs_[i];
    pieces.push_back({"weights", run.begin, {run.weights, run.size}, held});
    for (std::size_t s = 0; s < optimiser_->states(); ++s) {
      float* values = const_cast<float*>(states_.data()) + s * total_ + offsets_[i];
      pieces.push_back({"state " + std::to_string(s), run.begin, {values, run.size}, held});
    }
  }
  return pieces;
}

double rate_at(const RateOptions& options, double epoch, int epochs, std::size_t batch) {
  const double peak = options.reference_batch == 0
                          ? options.peak
                          : options.peak * static_cast<double>(batch) /
                                static_cast<double>(options.reference_batch);
  const double warm_up = options.warm_up_epochs;
  if (epoch < warm_up) return peak * (0.1 + 0.9 * epoch / warm_up);
  const double way = (epoch - warm_up) / std::max(1.0, epochs - warm_up);
  return peak * (0.01 + 0.99 * 0.5 * (1 + std::cos(std::numbers::pi * way)));
}

}  // namespace tutti::trainer
