// File: support/topology/topology_texts.h: texts that tests give to the readers, under the name
// "m".
#pragma once
#include <string>
#include <string_view>
#include <utility>

#include "support/catch.h"
#include "topology/readers/reader.h"

namespace tutti::test {

inline topology::Imported read(const std::string& text) {
  auto imported = topology::import(text, "m");
  INFO(text << (imported ? "" : imported.error().what));
  REQUIRE(imported);
  return *std::move(imported);
}

/// Why a text is refused, or "accepted".
inline std::string refusal(const std::string& text) {
  const auto imported = topology::import(text, "m");
  return imported ? "accepted" : imported.error().what;
}

/// The first finding with this code; null if there is none.
inline const topology::Finding* find(const topology::Findings& findings, std::string_view code) {
  for (const topology::Finding& finding : findings) {
    if (finding.code == code) return &finding;
  }
  return nullptr;
}

}  // namespace tutti::test
