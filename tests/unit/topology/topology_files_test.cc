// Where the probe's files come from: the notations of sysfs, file trees, archives.
#include <iterator>

#include "support/catch.h"
#include "support/topology/topology_tree.h"
#include "topology/capture/archive.h"
#include "topology/probe/probe.h"
#include "topology/probe/sources/sysfs.h"

using namespace tutti;
using namespace tutti::topology;
namespace fs = std::filesystem;

TEST_CASE("The notations of sysfs are understood, or not known") {
  CHECK(parse_bus("0000:07:00.0") == "0000:07:00.0");
  CHECK(parse_bus("00000000:E7:1F.7") == "0000:e7:1f.7");
  CHECK(parse_bus("10000:00:02.0") == "10000:00:02.0");
  for (const char* text : {"", "07:00.0", "0000:07:20.0", "0000:07:00.8", "0000:07:00.00",
                           "pci0000:16", "0000:0g:00.0", "000000000:07:00.0"}) {
    INFO(text);
    CHECK(parse_bus(text).empty());
  }
  CHECK(buses_on("/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0/net/eth0") ==
        std::vector<std::string>{"0000:16:01.0", "0000:17:00.0"});
  CHECK(parse_link_speed("16.0 GT/s PCIe\n") == 16);
  CHECK(parse_link_speed("2.5 GT/s") == 2.5);
  for (const char* text :
       {"", "Unknown", "Unknown speed", "16", "7 GT/s", "-16 GT/s", "nan GT/s"}) {
    INFO(text);
    CHECK(parse_link_speed(text) == 0);
  }
  CHECK(parse_link_width("16\n") == 16);
  for (const char* text : {"", "0", "255", "3", "-16", "16x"}) CHECK(parse_link_width(text) == 0);
  CHECK(parse_cpu_list("0-2,8\n") == std::vector<int>{0, 1, 2, 8});
  CHECK(parse_cpu_list("3-1").empty());
  CHECK(parse_cpu_list("0-999999999").empty());
  CHECK(parse_infiniband_rate("400 Gb/sec (4X NDR)") == 400000);
  CHECK(parse_infiniband_rate("2.5 Gb/sec (1X SDR)") == 2500);
  for (const char* text : {"", "400", "-1 Gb/sec", "inf Gb/sec", "1e9 Gb/sec"}) {
    CHECK(parse_infiniband_rate(text) == 0);
  }
  CHECK(line_value("model name\t: Xeon\nmodel\t\t: 85\n", "model") == "85");
  CHECK(line_value("simd_count 304\n", "simd_count") == "304");
  CHECK(line_value("simd_counts 304\n", "simd_count").empty());
  CHECK(parse_integer(" 0x10\n") == 16);
  CHECK(!parse_integer("99999999999999999999"));
}

TEST_CASE("Configuration space tells ports, link rates and ACS") {
  std::string bytes(4096, '\0');
  CHECK(parse_config_space("").port == ConfigSpace::Port::kUnknown);
  bytes[0x34] = 0x60;
  bytes[0x60] = 0x10;
  bytes[0x62] = 0x62;  // Version 2, downstream port.
  bytes[0x6c] = 0x05;  // 32 GT/s x16.
  bytes[0x6d] = 0x01;
  bytes[0x72] = static_cast<char>(0x81);  // 2.5 GT/s x8.
  bytes[0x100] = 0x0d;
  bytes[0x102] = 0x01;
  auto found = parse_config_space(bytes);
  CHECK(found.port == ConfigSpace::Port::kDownstream);
  CHECK(found.maximum == PcieRate{32, 16});
  CHECK(found.current == PcieRate{2.5, 8});
  CHECK(found.acs == false);
  bytes[0x106] = 0x1d;
  CHECK(parse_config_space(bytes).acs == true);
  found = parse_config_space(bytes.substr(0, 256));
  CHECK(found.port == ConfigSpace::Port::kDownstream);
  CHECK(!found.acs.has_value());
  CHECK(parse_config_space(bytes.substr(0, 64)).port == ConfigSpace::Port::kUnknown);
  bytes[0x61] = 0x60;  // Lists that never end.
  bytes[0x102] = 0x01;
  bytes[0x103] = 0x10;
  CHECK(parse_config_space(bytes).port == ConfigSpace::Port::kDownstream);
  CHECK(parse_config_space(std::string(4096, '\xff')).port == ConfigSpace::Port::kUnknown);
}

TEST_CASE("Links of a tree stay inside, and loops end") {
  CHECK(normal_path("//a/./c/../b/") == "/a/b");
  CHECK(normal_path("../../etc") == "/etc");
  MemoryTree tree;
  tree.add_file("/a/b/file", "text");
  tree.add_link("/a/up", "../../../../../../a/b");
  tree.add_link("/a/absolute", "/a/up/file");
  tree.add_link("/loop", "/loop2");
  tree.add_link("/loop2", "loop");
  tree.add_link("/grow", "grow/x");
  CHECK(tree.real_path("/a/up/file") == "/a/b/file");
  CHECK(tree.read("/a/absolute") == "text");
  CHECK(!tree.real_path("/loop"));
  CHECK(!tree.real_path("/grow"));
  CHECK(!tree.read("/a/b"));
  CHECK(!tree.read("/a/b/file/more"));
  CHECK(tree.list("/") == std::vector<std::string>{"a", "grow", "loop", "loop2"});
  CHECK(tree.list("/a/up") == std::vector<std::string>{"file"});
  const TempDir dir;
  std::ofstream(dir.path + "/secret") << "outside";
  fs::create_directories(dir.path + "/top");
  fs::create_symlink("../secret", dir.path + "/top/out");
  fs::create_symlink(dir.path + "/secret", dir.path + "/top/out2");
  const auto disk = disk_tree(dir.path + "/top");
  CHECK(!disk->read("/out"));
  CHECK(!disk->read("/out2"));
}

TEST_CASE("Names that sort between a directory and what is in it do not hide anything") {
  MemoryTree tree;
  for (const char* path : {"/d/a", "/d/a-b", "/d/a.c/x", "/d/a0", "/d/b/y/z"}) {
    tree.add_file(path, "");
  }
  CHECK(tree.list("/d") == std::vector<std::string>{"a", "a-b", "a.c", "a0", "b"});
  MemoryTree nested;
  for (const char* path : {"/d/a/x", "/d/a-b", "/d/a0"}) nested.add_file(path, "");
  CHECK(nested.list("/d") == std::vector<std::string>{"a", "a-b", "a0"});
}

TEST_CASE("Archives of others: a directory around all, damage, and what is too large") {
  const TempDir dir;
  const std::string file = dir.path + "/a.tar";
  MemoryTree inner, outer;
  load(inner, "sysfs-mi300x");
  for (const auto& [path, item] : inner.items()) {
    if (item.kind == FileTree::Kind::kFile) outer.add_file("/machine7" + path, item.text);
    if (item.kind == FileTree::Kind::kLink) outer.add_link("/machine7" + path, item.text);
  }
  REQUIRE(write_archive(outer, file));
  const auto read = probe_archive(file);
  REQUIRE(read);
  CHECK(read->graph == probe_tree(inner).graph);

  const auto refused = [&](const Result<Imported>& result, const std::string& part) {
    REQUIRE(!result);
    INFO(result.error().what);
    CHECK(result.error().code == Code::kInvalidArgument);
    CHECK(result.error().what.find(part) != std::string::npos);
    CHECK(result.error().what.find('\n') == std::string::npos);
  };
  refused(probe_archive(dir.path + "/none.tar"), "none.tar");
  std::ofstream(file) << "this is no archive, whatever its name says";
  refused(probe_archive(file), "archive");
  std::ofstream(file, std::ios::trunc).flush();
  refused(probe_archive(file), "archive");
  MemoryTree large;
  large.add_file("/sys/large", std::string(FileTree::kMostBytes + 1, 'x'));
  REQUIRE(write_archive(large, dir.path + "/large.tar.gz"));  // Some kilobytes.
  refused(probe_archive(dir.path + "/large.tar.gz"), "larger than 4 MiB");
  MemoryTree other;
  other.add_file("/opt/letter", "dear");
  other.add_file("/etc/passwd", "root");
  REQUIRE(write_archive(other, file));
  refused(probe_archive(file), "neither sys nor proc");
}

TEST_CASE("An archive cut off or changed anywhere is read or refused") {
  const TempDir dir;
  MemoryTree tree;
  load(tree, "sysfs-vm");
  REQUIRE(write_archive(tree, dir.path + "/a.tar.gz"));
  std::ifstream file(dir.path + "/a.tar.gz", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  REQUIRE(bytes.size() > 100);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x55);
    for (const std::string& text : {changed, bytes.substr(0, at)}) {
      const auto read = read_archive(text, "a.tar.gz");
      if (!read) CHECK(read.error().what.rfind("a.tar.gz: ", 0) == 0);
    }
  }
}
