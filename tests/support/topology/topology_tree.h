// File: support/topology/topology_tree.h: machines made up of files, for the probe's tests.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/catch.h"
#include "topology/probe/sources/file_tree.h"

namespace tutti::topology {

struct TempDir {
  std::string path = (std::filesystem::temp_directory_path() / "tutti-probe-XXXXXX").string();
  TempDir() { REQUIRE(mkdtemp(path.data()) != nullptr); }
  ~TempDir() { std::filesystem::remove_all(path); }
};

// A tree of tests/data/topology: lines of `path = content` or `path -> target`.
inline void load(MemoryTree& tree, const std::string& name) {
  const char* const source = std::getenv("TEST_SOURCE_DIR");
  std::ifstream file(std::string(source == nullptr ? "." : source) + "/tests/data/topology/" +
                     name + ".tree");
  REQUIRE(file);
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t space = line.find(' ');
    REQUIRE(space != std::string::npos);
    const std::string path = line.substr(0, space);
    if (line.compare(space, 4, " -> ") == 0) {
      tree.add_link(path, line.substr(space + 4));
      continue;
    }
    REQUIRE(line.compare(space, 2, " =") == 0);
    std::string content = line.size() > space + 3 ? line.substr(space + 3) : "";
    for (std::size_t at; (at = content.find("\\n")) != std::string::npos;) {
      content.replace(at, 2, "\n");
    }
    tree.add_file(path, content + "\n");
  }
}

inline void write_out(const MemoryTree& tree, const std::string& root) {
  for (const auto& [path, item] : tree.items()) {
    if (item.kind == FileTree::Kind::kDirectory) std::filesystem::create_directories(root + path);
    if (item.kind == FileTree::Kind::kLink) std::filesystem::create_symlink(item.text, root + path);
    if (item.kind == FileTree::Kind::kFile) std::ofstream(root + path) << item.text;
  }
}

}  // namespace tutti::topology
