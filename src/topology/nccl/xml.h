// File: topology/nccl/xml.h: XML of strangers: parsed within bounds, with line numbers for
// errors.
//
// pugixml parses without recursion; the depth is checked here, so that readers may recurse. There
// are no external entities, and custom ones are not expanded. Only src/topology includes this.
#pragma once
#include <pugixml.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "topology/graph/words.h"

namespace tutti::topology {

class Xml {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{32} << 20;
  static constexpr int kMostDepth = 64;

  /// At most kMostBytes, nested at most kMostDepth deep; `source` is what errors call the text.
  static Result<Xml> parse(std::string_view text, std::string_view source);

  pugi::xml_node root() const { return document_.document_element(); }
  /// "source:line" of an element.
  std::string where(pugi::xml_node node) const;
  /// "source:line: what", as an error.
  template <class... Args>
  Error error(pugi::xml_node node, fmt::format_string<Args...> what, Args&&... args) const {
    return invalid("{}: {}", where(node), fmt::format(what, std::forward<Args>(args)...));
  }
  bool has_header() const { return has_header_; }

 private:
  std::size_t line(std::size_t offset) const;

  pugi::xml_document document_;
  std::string source_;
  std::vector<std::size_t> line_ends_;
  bool has_header_ = false;
};

/// The name of the first element, without parsing: for Reader::recognises. Empty if there is none
/// within the first 64 KiB.
std::string_view first_element(std::string_view text);

}  // namespace tutti::topology
