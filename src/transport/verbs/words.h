// File: transport/verbs/words.h: what a completion that failed means to people.
#pragma once
#include <string>

#include "transport/verbs/library.h"

namespace tutti::verbs {

/// "no acknowledgement (its process has ended, ...)": what, and where to look. Pure but for the
/// library's own words for what is rare.
std::string in_words(const ibv_wc& completion);

}  // namespace tutti::verbs
