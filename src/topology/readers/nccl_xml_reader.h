// File: topology/readers/nccl_xml_reader.h: the insides of the reader of NCCL's topology files.
//
// The model: <cpu> is a NUMA node, <pci> a node by its class, <gpu>/<nic>/<net> fill the node of
// their <pci> (nccl_xml_reader.cc). Links between GPUs are gathered first and made at the end, for
// their targets may come later in the file (nccl_xml_links.cc). Where NCCL would silently guess, a
// finding says so, once per kind.
#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "topology/graph/finding.h"
#include "topology/readers/xml.h"

namespace tutti::topology {

/// A whole number, or `otherwise` where the text is none.
int whole_number(std::string_view text, int otherwise);
/// A number above 0, or 0 where the text is none.
double positive_number(std::string_view text);

/// It has more than 20 functions: one for each element of the file.
class NcclReader {
 public:
  NcclReader(Xml xml, std::string_view text, std::string_view source)
      : xml_(std::move(xml)), text_(text), source_(source) {}
  Result<Imported> read();

 private:
  Status cpu(pugi::xml_node element);
  Status children(pugi::xml_node element, NodeId parent, NodeId numa);
  Status pci(pugi::xml_node element, NodeId parent, NodeId numa);
  Status gpu(pugi::xml_node element, NodeId node, NodeId numa);
  Status nic(pugi::xml_node element, NodeId parent, bool merge);
  void net(pugi::xml_node element, NodeId node);
  Status peers();
  Status peer(pugi::xml_node element, NodeId gpu, NodeId numa);
  Status gpu_pair(pugi::xml_node element, LinkKind kind, NodeId gpu, NodeId other, int count);
  Status pci_links();
  NodeId nvswitch(std::string_view target, std::string_view type, NodeId host);
  void sockets();
  void finish();
  NodeKind kind_of(pugi::xml_node element, std::string_view type) const;
  void facts(pugi::xml_node element, NodeId node, std::string_view skip = "");
  void pci_link(pugi::xml_node element, NodeId parent, NodeId node);
  NodeId host_of(pugi::xml_node element);
  std::string_view fact(NodeId node, const char* key) const {
    return topology::fact(made_.graph[node], key);
  }
  std::string unique(std::string name, std::string_view suffix);
  void found(Severity severity, std::string_view code, pugi::xml_node element,
             std::string_view what, std::string_view remedy = "");

  struct Seen {
    std::size_t finding;
    int times;
  };
  struct Pair {
    LinkKind kind;
    NodeId a, b;
    int forward = 0, backward = 0;
  };
  Xml xml_;
  std::string_view text_;
  std::string_view source_;
  Imported made_;
  std::map<std::string, NodeId> by_bus_;  // "<host> <address>"
  std::map<std::string, NodeId> hosts_;   // By host_hash.
  std::set<std::string> names_;
  std::map<std::string, Seen, std::less<>> seen_;
  struct GpuElement {
    pugi::xml_node element;
    NodeId node, numa;
  };
  std::vector<GpuElement> gpus_;
  std::vector<std::pair<pugi::xml_node, NodeId>> pcilinks_;  // <pcilink> elements.
  std::vector<Pair> pairs_;
  std::map<std::tuple<LinkKind, NodeId, NodeId>, std::size_t> pair_of_;
  NodeId plane_;
};

}  // namespace tutti::topology
