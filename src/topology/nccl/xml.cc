// File: topology/nccl/xml.cc: bounds, line numbers, and a look at the first element.
#include "topology/nccl/xml.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::topology {

std::size_t Xml::line(std::size_t offset) const {
  return static_cast<std::size_t>(std::lower_bound(line_ends_.begin(), line_ends_.end(), offset) -
                                  line_ends_.begin()) +
         1;
}

std::string Xml::where(pugi::xml_node node) const {
  return fmt::format("{}:{}", source_, line(static_cast<std::size_t>(node.offset_debug())));
}

Result<Xml> Xml::parse(std::string_view text, std::string_view source) {
  Xml xml;
  xml.source_ = source;
  if (text.size() > kMostBytes) {
    return invalid("{}: XML of {} bytes; at most 32 MiB are read", source, text.size());
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') xml.line_ends_.push_back(i);
  }
  const auto parsed = xml.document_.load_buffer(
      text.data(), text.size(), pugi::parse_default | pugi::parse_declaration, pugi::encoding_utf8);
  if (!parsed) {
    return invalid("{}:{}: XML: {}", source,
                   xml.line(static_cast<std::size_t>(std::max<std::ptrdiff_t>(parsed.offset, 0))),
                   parsed.description());
  }
  xml.has_header_ = xml.document_.first_child().type() == pugi::node_declaration;
  if (!xml.root()) {
    return invalid("{}: XML without an element", source);
  }
  // A walk without recursion, whatever the nesting.
  int depth = 0;
  for (pugi::xml_node node = xml.root(); node;) {
    if (node.first_child()) {
      node = node.first_child();
      if (++depth > kMostDepth) {
        return xml.error(node, "elements nested more than {} deep", kMostDepth);
      }
      continue;
    }
    while (node && node != xml.root() && !node.next_sibling()) {
      node = node.parent();
      --depth;
    }
    if (!node || node == xml.root()) break;
    node = node.next_sibling();
  }
  return xml;
}

std::string_view first_element(std::string_view text) {
  text = text.substr(0, 65536);
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  for (;;) {
    const std::size_t start = text.find_first_not_of(" \t\r\n");
    if (start == std::string_view::npos || text[start] != '<') return {};
    text.remove_prefix(start + 1);
    std::size_t skip = 0;
    if (text.starts_with("!--")) {
      skip = text.find("-->");
    } else if (text.starts_with("!") || text.starts_with("?")) {
      skip = text.find('>');
    } else {
      return text.substr(0, text.find_first_of(" \t\r\n/>"));
    }
    if (skip == std::string_view::npos) return {};
    text.remove_prefix(text.find('>', skip) + 1);
  }
}

}  // namespace tutti::topology
