// File: topology/readers/hwloc_text.cc: see the header.
#include "topology/readers/hwloc_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace tutti::topology {

std::string fact_key(std::string_view name) {
  std::string key;
  for (const char c : name) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool keep = upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    key += upper ? static_cast<char>(c - 'A' + 'a') : keep ? c : '_';
  }
  return key;
}

int trailing_number(std::string_view name) {
  const std::size_t start = name.find_last_not_of("0123456789") + 1;
  int value = -1;
  std::from_chars(name.data() + start, name.data() + name.size(), value);
  return value;
}

// hwloc's GB/s are the signalling rate after line coding; ours are what pcie_bandwidth says.
// 2.5 and 5 GT/s make multiples of a quarter, the faster ones do not.
double hwloc_payload(double link_speed) {
  const bool old = std::fmod(link_speed, 0.25) == 0;
  // What hwloc says is a float: no more than six digits of it mean anything.
  return std::round(link_speed * 0.75 * (old ? 1 : 130.0 / 128) * 1e4) / 1e4;
}

// hwloc 3 writes what hwloc 2 reads, but for the kinds of OS devices, which became bits.
std::string hwloc_version_2(const Xml& xml) {
  static constexpr std::array<std::pair<int, const char*>, 6> kKinds{
      {{16, "2"}, {32, "3"}, {4, "1"}, {8, "5"}, {64, "4"}, {1, "0"}}};
  struct Walker : pugi::xml_tree_walker {
    bool for_each(pugi::xml_node& node) override {
      pugi::xml_attribute type = node.attribute("osdev_type");
      if (!type) return true;
      const int bits = type.as_int();
      type.set_value("6");
      // An adapter that is both Ethernet and InfiniBand is what verbs see of it.
      if ((bits & 32) != 0) {
        type.set_value("3");
        return true;
      }
      for (const auto& [bit, kind] : kKinds) {
        if ((bits & bit) == 0) continue;
        type.set_value(kind);
        break;
      }
      return true;
    }
  } walker;
  struct Text : pugi::xml_writer {
    void write(const void* data, std::size_t size) override {
      text.append(static_cast<const char*>(data), size);
    }
    std::string text;
  } out;
  pugi::xml_node root = xml.root();
  root.traverse(walker);
  root.attribute("version").set_value("2.0");
  root.print(out, "", pugi::format_raw);
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n" +
         out.text;
}

}  // namespace tutti::topology
