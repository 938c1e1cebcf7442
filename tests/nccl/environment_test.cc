// NCCL's own variables: what each becomes, what is refused, and the page that says so.
#include "compat/nccl/environment.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "base/settings/settings_table.h"
#include "compat/nccl/comm.h"
#include "compat/nccl/debug.h"
#include "support/catch.h"
#include "support/environment.h"

using namespace tutti::nccl;

namespace {

/// What the variables make of a setting; "-" if one is refused.
std::string becomes(const char* setting, const Values& set) {
  const Environment read = read_variables(set);
  if (!read.complaints.empty()) return "-";
  const auto found = read.settings.find(setting);
  return found == read.settings.end() ? "" : found->second;
}

std::string page(const std::string& path = "docs/nccl.md") {
  std::ifstream file(std::string(std::getenv("TEST_SOURCE_DIR")) + "/" + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("lists of interfaces and RDMA devices have NCCL's meaning") {
  const auto interfaces = [](const char* text) {
    return becomes("TUTTI_NET_INTERFACES", {{"NCCL_SOCKET_IFNAME", text}});
  };
  CHECK(interfaces("eth") == "eth*");
  CHECK(interfaces("eth,ib") == "eth*,ib*");
  CHECK(interfaces("=eth0,eth1") == "eth0,eth1");
  CHECK(interfaces("^docker,lo") == "^docker*,lo*");
  CHECK(interfaces("^=docker0") == "^docker0");
  CHECK(interfaces("eth0:1,,eth1") == "eth0*,eth1*");
  for (const char* bad : {"^", "=", ",", "eth 0", "a*", "10.0.0.0/8", "eth0;ls", "=^eth", "eth:x"})
    CHECK(interfaces(bad) == "-");
  const auto devices = [](const char* text) {
    return becomes("TUTTI_RDMA_DEVICES", {{"NCCL_IB_HCA", text}});
  };
  CHECK(devices("mlx5") == "mlx5*");
  CHECK(devices("=mlx5_0:1,mlx5_1:2") == "mlx5_0:1,mlx5_1:2");
  CHECK(devices("mlx5_0:1,bnxt") == "mlx5_0*:1,bnxt*");
  CHECK(devices("^=mlx5_3") == "^mlx5_3");
  CHECK(devices("^mlx5_1:2") == "^mlx5_1*:2");
  for (const char* bad : {"mlx5_0:0", "mlx5_0:256", ":1", "mlx5 0"}) CHECK(devices(bad) == "-");
  const auto gid = [](const char* text) {
    return becomes("TUTTI_RDMA_GID_INDEX", {{"NCCL_IB_GID_INDEX", text}});
  };
  CHECK(gid("3") == "3");
  CHECK(gid("-1") == "-1");
  CHECK(gid("255") == "255");
  for (const char* bad : {"256", "-2", "three", "3,4"}) CHECK(gid(bad) == "-");
  const auto traffic_class = [](const char* text) {
    return becomes("TUTTI_RDMA_TRAFFIC_CLASS", {{"NCCL_IB_TC", text}});
  };
  for (const char* good : {"-1", "0", "106", "255"}) CHECK(traffic_class(good) == good);
  for (const char* bad : {"256", "-2", "high", "0x6a"}) CHECK(traffic_class(bad) == "-");
  const auto service_level = [](const char* text) {
    return becomes("TUTTI_RDMA_SERVICE_LEVEL", {{"NCCL_IB_SL", text}});
  };
  for (const char* good : {"-1", "0", "15"}) CHECK(service_level(good) == good);
  for (const char* bad : {"16", "-2", "high"}) CHECK(service_level(bad) == "-");
}

TEST_CASE("the deadline is a day, unless one is set") {
  const tutti::test::Environment environment({"TUTTI_"}, {});
  auto settings = settings_of_environment();
  REQUIRE(settings);
  CHECK(settings->timeout == std::chrono::hours(24));
  setenv("TUTTI_TIMEOUT_MS", "2000", 1);
  settings = settings_of_environment();
  unsetenv("TUTTI_TIMEOUT_MS");
  REQUIRE(settings);
  CHECK(settings->timeout == std::chrono::seconds(2));
  // As the pages say.
  CHECK_THAT(page("README.md"), Catch::Contains("Under `libnccl.so.2` it is a\n  day"));
  CHECK_THAT(page("docs/operations/diagnosing.md"),
             Catch::Contains("In programs of NCCL it is a day,"));
}

TEST_CASE("variables that go together make one setting") {
  constexpr const char* kInterfaces = "TUTTI_NET_INTERFACES";
  CHECK(becomes(kInterfaces, {{"NCCL_SOCKET_FAMILY", "AF_INET"}}) == "^::/0");
  CHECK(becomes(kInterfaces, {{"NCCL_SOCKET_FAMILY", "af_inet6"}}) == "^0.0.0.0/0");
  CHECK(becomes(kInterfaces, {{"NCCL_SOCKET_FAMILY", "AF_INET"}, {"NCCL_SOCKET_IFNAME", "eth"}}) ==
        "eth*,^::/0");
  CHECK(becomes(kInterfaces, {{"NCCL_SOCKET_FAMILY", "AF_INET"}, {"NCCL_SOCKET_IFNAME", "^lo"}}) ==
        "^lo*,::/0");
  constexpr const char* kTransport = "TUTTI_TRANSPORT";
  CHECK(becomes(kTransport, {{"NCCL_IB_DISABLE", "1"}}) == "^verbs");
  CHECK(becomes(kTransport, {{"NCCL_IB_DISABLE", "0"}}).empty());
  CHECK(becomes("TUTTI_ALGORITHM", {{"NCCL_NVLS_ENABLE", "0"}}) == "^nvls");
  CHECK(becomes("TUTTI_ALGORITHM", {{"NCCL_NVLS_ENABLE", "2"}}).empty());
  CHECK(becomes(kTransport, {{"NCCL_NET", "socket"}}) == "^verbs");
  CHECK(becomes(kTransport, {{"NCCL_NET", "IB"}}).empty());
  CHECK(becomes(kTransport, {{"NCCL_IB_DISABLE", "1"}, {"NCCL_NET", "IB"}}) == "^verbs");
  CHECK(becomes(kTransport, {{"NCCL_NET", "AWS Libfabric"}}) == "-");
  CHECK(becomes("TUTTI_TOPOLOGY", {{"NCCL_TOPO_FILE", "/opt/a b.xml"}}) == "/opt/a b.xml");
  CHECK(becomes("TUTTI_TOPOLOGY", {{"NCCL_TOPO_FILE", "/opt/grün.xml"}}) == "/opt/grün.xml");
  CHECK(becomes("TUTTI_TOPOLOGY", {{"NCCL_TOPO_FILE", "a\x7f"}}) == "-");
  CHECK(becomes("TUTTI_TOPOLOGY", {{"NCCL_TOPO_FILE", "off"}}) == "./off");
  CHECK(becomes("TUTTI_TOPOLOGY_DUMP", {{"NCCL_TOPO_DUMP_FILE", "x.xml"}}) == "x.xml");
  CHECK(becomes("TUTTI_TOPOLOGY_DUMP_RANK", {{"NCCL_TOPO_DUMP_FILE_RANK", "7"}}) == "7");
  CHECK(becomes("TUTTI_TOPOLOGY_DUMP_RANK", {{"NCCL_TOPO_DUMP_FILE_RANK", "-1"}}) == "-");
  const auto least = [](const Values& set) { return becomes("TUTTI_LEAST_LANES", set); };
  const auto most = [](const Values& set) { return becomes("TUTTI_MOST_LANES", set); };
  CHECK(most({{"NCCL_MAX_CTAS", "4"}}) == "4");
  CHECK(most({{"NCCL_MAX_CTAS", "100000"}}) == "64");
  CHECK(most({{"NCCL_MAX_CTAS", "8"}, {"NCCL_MAX_NCHANNELS", "16"}}) == "8");
  CHECK(most({{"NCCL_MIN_CTAS", "4"}}).empty());
  CHECK(most({{"NCCL_MAX_CTAS", "0"}}) == "-");
  CHECK(least({{"NCCL_MIN_CTAS", "20"}}) == "20");
  CHECK(least({{"NCCL_MIN_CTAS", "20"}, {"NCCL_MIN_NCHANNELS", "4"}}) == "20");
  CHECK(least({{"NCCL_MIN_NCHANNELS", "65"}}) == "-");
  CHECK(least({{"NCCL_MAX_CTAS", "8"}}).empty());
  const auto direct = [](const char* text) {
    return becomes("TUTTI_GPUDIRECT", {{"NCCL_NET_GDR_LEVEL", text}});
  };
  CHECK(direct("LOC") == "off");
  CHECK(direct("phb") == "auto");
  CHECK(direct("SYS") == "on");
  CHECK(direct("6") == "-");
  const auto peers = [](const Values& set) { return becomes("TUTTI_PEERS", set); };
  CHECK(peers({{"NCCL_P2P_DISABLE", "1"}}) == "off");
  CHECK(peers({{"NCCL_P2P_DISABLE", "0"}}).empty());
  CHECK(peers({{"NCCL_P2P_LEVEL", "nvl"}}) == "nvlink");
  CHECK(peers({{"NCCL_P2P_LEVEL", "LOC"}}) == "off");
  CHECK(peers({{"NCCL_P2P_LEVEL", "PHB"}}) == "auto");
  CHECK(peers({{"NCCL_P2P_LEVEL", "PHB"}, {"NCCL_P2P_DISABLE", "1"}}) == "off");
  CHECK(peers({{"NCCL_P2P_LEVEL", "NVL"}, {"NCCL_P2P_DISABLE", "0"}}) == "nvlink");
  CHECK(peers({{"NCCL_P2P_LEVEL", "FAR"}}) == "-");
}

TEST_CASE("NCCL_DEBUG is a level of the log, and a file's name has the host and the process") {
  const auto read = [](const char* text) { return read_variables({{"NCCL_DEBUG", text}}); };
  CHECK(debug_level(read_variables({})) == DebugLevel::kNone);
  CHECK(debug_level(read("version")) == DebugLevel::kVersion);
  CHECK(read("VERSION").settings.at("TUTTI_LOG") == "warn");
  CHECK(debug_level(read("WARN")) == DebugLevel::kWarn);
  CHECK(debug_level(read("Info")) == DebugLevel::kInfo);
  CHECK(read("info").settings.at("TUTTI_LOG") == "info");
  CHECK(debug_level(read("ABORT")) == DebugLevel::kInfo);
  CHECK(debug_level(read("TRACE")) == DebugLevel::kTrace);
  CHECK(read("TRACE").settings.at("TUTTI_LOG") == "trace");
  CHECK(debug_level(read("LOUD")) == DebugLevel::kNone);
  CHECK(read("LOUD").complaints.size() == 1);
  CHECK(expand_file_name("/tmp/%h.%p.%%.%x%", "node1", 42) == "/tmp/node1.42.%.%x%");
}

TEST_CASE("NCCL_DEBUG_SUBSYS leaves other parts their warnings") {
  const auto levels = [](const char* subsystems, const char* level = "INFO") {
    return becomes("TUTTI_LOG", {{"NCCL_DEBUG", level}, {"NCCL_DEBUG_SUBSYS", subsystems}});
  };
  CHECK(levels("NET") == "warn,net=info");
  CHECK(levels("net,Coll", "TRACE") == "warn,calls=trace,net=trace");
  CHECK(levels("INIT") == "warn,join=info,nccl=info");
  CHECK(levels("BOOTSTRAP") == "warn,join=info");
  CHECK(levels("ENV") == "warn,settings=info");
  CHECK(levels("P2P") == "warn,devices=info");
  CHECK(levels("GRAPH") == "warn,devices=info,plans=info");
  CHECK(levels("TUNING") == "warn,plans=info");
  CHECK(levels("ALL") == "info");
  CHECK(levels("^SHM,REG") == "info");
  CHECK(levels("SHM,PROXY,,RAS") == "warn,devices=info");
  CHECK(levels("REG") == "warn");
  CHECK(levels("^NET") ==
        "warn,calls=info,devices=info,join=info,nccl=info,plans=info,"
        "settings=info");
  CHECK(levels("^INIT,ENV,P2P,GRAPH") ==
        "warn,calls=info,devices=info,join=info,nccl=info,"
        "net=info,plans=info");
  CHECK(levels("^ALL") == "warn");
  for (const char* level : {"WARN", "VERSION"}) CHECK(levels("NET", level) == "warn");
  CHECK(becomes("TUTTI_LOG", {{"NCCL_DEBUG_SUBSYS", "NET"}}).empty());
  for (const char* bad : {"^", ",", "NETS", "NET INIT", "NET,^INIT"}) CHECK(levels(bad) == "-");
}

TEST_CASE("a program's configuration counts where the environment says nothing") {
  const auto settings = [](const ncclConfig_t& config) {
    const auto read = read_config(&config, {});
    REQUIRE(read);
    const auto made = settings_for(*read);
    REQUIRE(made);
    return *made;
  };
  const tutti::test::Environment environment({"TUTTI_", "NCCL_"}, {});
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  CHECK(settings(config).transport.empty());
  CHECK(settings(config).rdma_traffic_class == -1);
  config.netName = "IB";
  CHECK(settings(config).transport.empty());
  config.netName = "socket";
  config.trafficClass = 7;
  CHECK(settings(config).transport == "^verbs");
  CHECK(settings(config).rdma_traffic_class == 7);
  CHECK(settings(config).rdma_service_level == 7);
  config.trafficClass = 106;
  CHECK(settings(config).rdma_traffic_class == 106);
  CHECK(settings(config).rdma_service_level == -1);
  // What is made of it has the same.
  const auto parent = read_config(&config, {});
  REQUIRE(parent);
  const auto child = read_config(nullptr, *parent);
  REQUIRE(child);
  CHECK(child->transport == "^verbs");
  CHECK(child->traffic_class == 106);
  setenv("TUTTI_TRANSPORT", "^ucx", 1);
  setenv("TUTTI_RDMA_TRAFFIC_CLASS", "3", 1);
  CHECK(settings(config).transport == "^ucx");
  CHECK(settings(config).rdma_traffic_class == 3);
  config.netName = "AWS Libfabric";
  const auto refused = read_config(&config, {});
  REQUIRE(!refused);
  CHECK(result_of(refused.error(), 0) == ncclInvalidUsage);
  CHECK_THAT(refused.error().what, Catch::Contains("config.netName is 'AWS Libfabric'; it is "));
  // NCCL_NET goes before it, whatever it is.
  setenv("NCCL_NET", "IB", 1);
  CHECK(settings(config).transport == "^ucx");
}

TEST_CASE("an address is a host and a port") {
  const auto shown = [](const char* text) {
    const auto place = parse_place(text);
    return place ? place->host + " " + std::to_string(place->port) : "-";
  };
  CHECK(shown("10.0.0.1:29500") == "10.0.0.1 29500");
  CHECK(shown("node-1.cluster:1") == "node-1.cluster 1");
  CHECK(shown("[fe80::1%eth0]:65535") == "fe80::1%eth0 65535");
  for (const char* bad : {"", ":", "host", "host:", ":1", "host:0", "host:65536", "fe80::1:99999",
                          "a b:1", "[]:1", "host:1x"})
    CHECK(shown(bad) == "-");
  CHECK(!parse_place(std::string(101, 'a') + ":1"));
}

TEST_CASE("what is refused, and what has no meaning, is told in one line each") {
  const Environment read = read_variables({{"NCCL_IB_DISABLE", "yes\n"},
                                           {"NCCL_SOCKET_IFNAME", std::string(5000, 'a')},
                                           {"NCCL_ALGO", "Ring"},
                                           {"NCCL_BUFFSIZE", "4194304"},
                                           {"NCCL_PROTO", ""},
                                           {"NCCL_VERSION", "2.30"},
                                           {"NCCL_MAX_CTAS", "8"}});
  REQUIRE(read.complaints.size() == 2);
  for (const std::string& line : read.complaints) {
    CHECK(line.size() < 400);
    CHECK(line.find('\n') == std::string::npos);
  }
  CHECK(read.complaints[1] == "NCCL_IB_DISABLE='yes?' has no effect: it takes 0 or 1");
  CHECK(read.ignored ==
        "variables without a meaning here: NCCL_ALGO (instead: TUTTI_ALGORITHM, with other "
        "names), NCCL_BUFFSIZE");
  CHECK(read.notes ==
        std::vector<std::string>{"NCCL_MAX_CTAS set by environment to 8 (TUTTI_MOST_LANES=8)"});
  Values many;
  for (int i = 0; i < 1000; ++i) many["NCCL_X" + std::to_string(i) + std::string(100, 'y')] = "1";
  CHECK(read_variables(many).ignored.size() < 2000);
  CHECK(read_variables(many).ignored.find(" and 984 more") != std::string::npos);
}

TEST_CASE("configuration files give what the environment does not") {
  Values set{{"NCCL_DEBUG", "WARN"}};
  add_configuration(set,
                    "# NCCL_ALGO=Ring\nNCCL_DEBUG=INFO\nNCCL_IB_HCA==mlx5_0\r\nPATH=/x\n"
                    "NCCL_NET\nNCCL_SOCKET_IFNAME=eth0");
  CHECK(set ==
        Values{{"NCCL_DEBUG", "WARN"}, {"NCCL_IB_HCA", "=mlx5_0"}, {"NCCL_SOCKET_IFNAME", "eth0"}});
  std::string much;
  for (int i = 0; i < 1000; ++i) much += "NCCL_X" + std::to_string(i) + "=1\n";
  add_configuration(set, much + "NCCL_Y=" + std::string(5000, 'y'));
  CHECK(set.size() <= 3 + 256);
}

TEST_CASE("no text is too odd") {
  std::mt19937 random(20261125);
  constexpr std::string_view kLetters = "^=:,*/0123456789 ethIB_AF%[]\n\x01\xff";
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (std::size_t length = random() % 40; length > 0; --length)
      text += kLetters[random() % kLetters.size()];
    Values set;
    for (const Variable& variable : variables()) set.emplace(variable.name, text);
    const Environment read = read_variables(set);
    for (const auto& [setting, value] : read.settings) CHECK(tutti::check_setting(setting, value));
    for (const std::string& line : read.complaints)
      CHECK(std::ranges::all_of(line, [](char c) { return c >= ' ' && c < 127; }));
    CHECK(read.ignored.size() < 2000);
    add_configuration(set, text);
    static_cast<void>(expand_file_name(text, "host", 1));
  }
}

TEST_CASE("ranks that are reached alike are in one line") {
  const std::string description =
      "communicator of 5 ranks\nto rank 1: NVLink\nto rank 2: NVLink\nto rank 3: NVLink\n"
      "to rank 4: host memory\nplans chosen:\n  all_reduce: ring\n";
  CHECK(fold_description(description, false) == std::vector<std::string>{"communicator of 5 ranks",
                                                                         "to ranks 1-3: NVLink",
                                                                         "to rank 4: host memory"});
  CHECK(fold_description(description, true) ==
        std::vector<std::string>{"plans chosen:", "  all_reduce: ring"});
  CHECK(fold_description("to rank 0: a\nplans: none chosen yet\n", true) ==
        std::vector<std::string>{"plans: none chosen yet"});
}

TEST_CASE("the page has the table of the variables") {
  std::string table = "| variable | becomes | takes | meaning |\n|---|---|---|---|\n";
  for (const Variable& variable : variables()) {
    const std::string setting =
        variable.setting.empty() ? "" : "`" + std::string(variable.setting) + "`";
    table += "| `" + std::string(variable.name) + "` | " + setting + " | " +
             (variable.takes.empty() ? "no meaning here" : std::string(variable.takes)) + " | " +
             std::string(variable.note) + " |\n";
  }
  INFO("docs/nccl.md should have:\n" << table);
  CHECK(page().find("\n\n" + table + "\n") != std::string::npos);
}
