#include "trainer/strategies/strategy.h"

#include <array>

namespace tutti::trainer {

#define TUTTI_STRATEGY(name, text) std::unique_ptr<Strategy> make_##name(const Setup& setup);
#include "trainer/strategies/strategies.def"
#undef TUTTI_STRATEGY

std::span<const StrategyInfo> strategies() {
  static constexpr auto kAll = std::to_array<StrategyInfo>({
#define TUTTI_STRATEGY(name, text) {#name, text, make_##name},
#include "trainer/strategies/strategies.def"
#undef TUTTI_STRATEGY
  });
  return kAll;
}

Result<std::unique_ptr<Strategy>> make_strategy(const Setup& setup) {
  std::string known;
  for (const StrategyInfo& info : strategies()) {
    if (setup.options.name == info.name) return info.make(setup);
    known += (known.empty() ? "" : ", ") + std::string(info.name);
  }
  return Error{Code::kInvalidArgument,
               "no strategy " + setup.options.name + "; there are " + known};
}

}  // namespace tutti::trainer
