// File: tools/words.h: the words that options of several commands take, out of the registries, for
// shells to complete (perf::offer).
#pragma once
#include <string>
#include <vector>

namespace tutti::tools {

std::vector<std::string> collective_words();
std::vector<std::string> contract_words();
std::vector<std::string> type_words();
/// The algorithms of all collectives, each name once.
std::vector<std::string> algorithm_words();
std::vector<std::string> protocol_words();
/// Models of machines, without a size.
std::vector<std::string> model_words();

}  // namespace tutti::tools
