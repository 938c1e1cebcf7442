#include "tools/words.h"

#include <algorithm>

#include "algorithms/algorithm.h"
#include "plan/names.h"
#include "planner/machine_cost.h"
#include "topology/models/model.h"

namespace tutti::tools {

std::vector<std::string> collective_words() {
  std::vector<std::string> words;
  for (int i = 0; i < kCollectiveCount; ++i)
    words.emplace_back(to_string(static_cast<Collective>(i)));
  return words;
}

std::vector<std::string> contract_words() {
  std::vector<std::string> words;
  for (const Contract contract : {Contract::kDeterministic, Contract::kRelaxed})
    words.emplace_back(plan::to_string(contract));
  return words;
}

std::vector<std::string> type_words() {
  return {
#define TUTTI_DATA_TYPE(enumerator, ...) std::string(to_string(DataType::enumerator)),
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
  };
}

std::vector<std::string> algorithm_words() {
  std::vector<std::string> words;
  for (const Algorithm* algorithm : algorithms()) words.emplace_back(algorithm->name);
  std::ranges::sort(words);
  words.erase(std::unique(words.begin(), words.end()), words.end());
  return words;
}

std::vector<std::string> protocol_words() {
  std::vector<std::string> words;
  for (const auto list : {planner::protocols(), planner::kernel_protocols()}) {
    for (const planner::Protocol& protocol : list) words.emplace_back(protocol.name);
  }
  return words;
}

std::vector<std::string> model_words() {
  std::vector<std::string> words;
  for (const topology::Model* model : topology::models()) words.emplace_back(model->name);
  return words;
}

}  // namespace tutti::tools
