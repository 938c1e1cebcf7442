// Settings from the environment: every knob, what it takes and what it does not.
#include <map>

#include "base/log.h"
#include "base/settings/settings_table.h"
#include "support/catch.h"
#include "support/environment.h"

namespace tutti {
namespace {

using test::Environment;

Result<Settings> read(const std::map<std::string, std::string>& variables) {
  const Environment environment({"TUTTI_"}, variables);
  auto settings = Settings::from_environment();
  log::set_levels(log::all_at(log::Level::kWarn));
  return settings;
}

TEST_CASE("nothing set, or set to nothing, is the default") {
  std::map<std::string, std::string> empty;
  for (const SettingRow& row : setting_rows({})) empty[std::string(row.variable)] = "";
  for (const auto& settings : {read({}), read(empty)}) {
    REQUIRE(settings);
    CHECK(settings->to_string() == Settings{}.to_string());
  }
}

TEST_CASE("what no variable sets comes from the program's own source, and is checked likewise") {
  const Environment environment({"TUTTI_"}, {{"TUTTI_LANES", "3"}, {"TUTTI_TRANSPORT", ""}});
  const auto otherwise = [](std::string_view variable) -> std::string {
    if (variable == "TUTTI_LANES") return "5";
    if (variable == "TUTTI_TRANSPORT") return "^verbs";
    return variable == "TUTTI_TIMEOUT_MS" ? "1234" : "";
  };
  const auto settings = settings_or(otherwise);
  REQUIRE(settings);
  CHECK(settings->lanes == 3);
  CHECK(settings->transport == "^verbs");
  CHECK(settings->timeout == std::chrono::milliseconds(1234));
  CHECK(settings->gpudirect == Settings{}.gpudirect);
  const auto wrong =
      settings_or([](std::string_view variable) { return variable == "TUTTI_SPIN" ? "x" : ""; });
  REQUIRE(!wrong);
  CHECK(wrong.error().what.find("TUTTI_SPIN='x'") != std::string::npos);
  CHECK(check_setting("TUTTI_LANES", "64"));
  CHECK(check_setting("TUTTI_LANES", "65").error().what.find("from 0 to 64") != std::string::npos);
  CHECK(!check_setting("TUTTI_NONE", "1"));
}

TEST_CASE("log lines take the form and the place of another library") {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  log::write_as(file, [](log::Level level) {
    return level == log::Level::kOff ? std::string() : "head " + std::to_string(int(level)) + " ";
  });
  log::set_levels(log::all_at(log::Level::kInfo));
  log::debug(log::Part::kNet, "not {}", "written");
  log::info(log::Part::kNet, "an {}", "info");
  log::write(log::Part::kNet, log::Level::kOff, "without a head");
  log::set_levels(log::all_at(log::Level::kWarn));
  log::info(log::Part::kNet, "not written");
  log::warn(log::Part::kNet, "a warning");
  std::rewind(file);
  char text[256] = {};
  const std::size_t read = std::fread(text, 1, sizeof text - 1, file);
  CHECK(std::string(text, read) == "head 2 an info\nwithout a head\nhead 3 a warning\n");
  log::write_as(stderr, [](log::Level) { return std::string("[tutti] "); });
}

namespace {

struct Domain {
  std::vector<std::string> takes, refuses;
};

/// By variable.
std::map<std::string, Domain> setting_domains() {
  return {
      {"TUTTI_TIMEOUT_MS",
       {{"1", "1000000000"}, {"0", "-1", "1000000001", "1s", " 1", "1 ", "1.5"}}},
      {"TUTTI_CONTRACT", {{"deterministic", "relaxed"}, {"Relaxed", "strict"}}},
      {"TUTTI_ALGORITHM",
       {{"ring", "all_reduce=ring,broadcast=binomial", "^ring,gather=^direct"},
        {"Ring", "ring;tree", "a b", "a\nb"}}},
      {"TUTTI_WIRE",
       {{"plain", "float16", "bfloat16:stochastic", "int8", "float8:nearest"},
        {"int4", "Int8", "int8:", "int8:up", "plain:nearest"}}},
      {"TUTTI_TRANSPORT",
       {{"shared_memory", "^verbs,ucx"}, {"shared-memory", std::string(257, 'a')}}},
      {"TUTTI_SLOT_BYTES",
       {{"0", "1", "64K", "1024M", "1073741824"},
        {"1025M", "1073741825", "-1", "K", "1k", "1G", "99999999999999999999M"}}},
      {"TUTTI_SLOT_COUNT", {{"0", "1024"}, {"-1", "1025"}}},
      {"TUTTI_READ_FROM", {{"0", "off", "128K", "1024M"}, {"-1", "1025M", "Off", "on", "128k"}}},
      {"TUTTI_UNEXPECTED_BYTES", {{"0", "64K", "1048576M"}, {"-1", "1048577M", "off", "1k"}}},
      {"TUTTI_LANES", {{"0", "64"}, {"-1", "65"}}},
      {"TUTTI_LEAST_LANES", {{"0", "64"}, {"-1", "65"}}},
      {"TUTTI_MOST_LANES", {{"0", "64"}, {"-1", "65"}}},
      {"TUTTI_PLAN",
       {{"a.plan", "/tmp/my plan.txt,b=1", "grün.plan"},
        {",a", "a,", "a,,b", "a\nb", std::string(4097, 'a')}}},
      {"TUTTI_GROUPS",
       {{"2", "4096", "2,4", "8,32,4096"},
        {"0", "1", "-2", "4097", "2,3", "4,4", "8,4", "2,", ",2", "2,,4", "2 4", "x",
         "2,4,8,16,32,64,128,256,512"}}},
      {"TUTTI_WEIGHTS",
       {{"1", "0,1", "1024,0,1", "3,2,1"}, {"0", "0,0", "-1,2", "1025", "1,", ",", "1;2"}}},
      {"TUTTI_SPIN", {{"-1", "0", "1000000000"}, {"-2", "1000000001", "0x10"}}},
      {"TUTTI_ADAPT", {{"on", "off"}, {"auto", "On", "1"}}},
      {"TUTTI_TUNING",
       {{"off", "/a path/x.json", "/grün/図"}, {"a\nb", "a\x7f", std::string(4097, 'a')}}},
      {"TUTTI_TOPOLOGY",
       {{"off", "/a path/x.topo", "/grün/図"}, {"a\nb", "a\x7f", std::string(4097, 'a')}}},
      {"TUTTI_TOPOLOGY_DUMP",
       {{"/a path/x.xml", "/grün/図"}, {"a\nb", "a\x7f", std::string(4097, 'a')}}},
      {"TUTTI_TOPOLOGY_DUMP_RANK", {{"0", "7", "1048576"}, {"-1", "1048577", "all"}}},
      {"TUTTI_NET_INTERFACES", {{"eth0,ib*", "^docker0"}, {"a\nb", std::string(257, 'a')}}},
      {"TUTTI_GPUDIRECT", {{"auto", "on", "off"}, {"yes", "On", "1", "auto,on"}}},
      {"TUTTI_PEERS", {{"auto", "nvlink", "off"}, {"on", "NVLink", "pcie", "auto,off"}}},
      {"TUTTI_RDMA_DEVICES",
       {{"mlx5_0,rxe*", "^mlx5_3", "mlx5_0:2", "mlx5_*:2"},
        {"a\nb", std::string(257, 'a'), "mlx5_0 mlx5_1", "^", "mlx5_0:x", "a*b", ",mlx5_0",
         "*:1"}}},
      {"TUTTI_RDMA_GID_INDEX", {{"-1", "0", "255"}, {"-2", "256", "0x3", "3,4", "3 "}}},
      {"TUTTI_RDMA_TRAFFIC_CLASS", {{"-1", "0", "106", "255"}, {"-2", "256", "0x3", "3 "}}},
      {"TUTTI_RDMA_SERVICE_LEVEL", {{"-1", "0", "15"}, {"-2", "16", "0x3", "3 "}}},
      {"TUTTI_FLIGHT", {{"/a path", "/grün/図"}, {"a\nb", "a\x7f", std::string(4097, 'a')}}},
      {"TUTTI_TRACE", {{"/a path.json", "/grün/図"}, {"a\nb", "a\x7f", std::string(4097, 'a')}}},
      {"TUTTI_LOG",
       {{"trace", "debug", "info", "warn", "error", "off", "info,net=debug", "net=off,plans=info"},
        {"warning", "WARN", "3", "net", "tcp=info", "net=", "net=info,warn", "info,", ","}}},
  };
}

}  // namespace

TEST_CASE("every setting takes its edges, and refuses what lies beyond in one line that helps") {
  const auto domains = setting_domains();
  for (const SettingRow& row : setting_rows({})) {
    const std::string variable(row.variable);
    INFO(variable);
    REQUIRE(domains.count(variable) == 1);  // A new setting needs a line above.
    for (const std::string& value : domains.at(variable).takes) {
      INFO(value);
      CHECK(read({{variable, value}}));
    }
    for (const std::string& value : domains.at(variable).refuses) {
      INFO(value);
      const auto settings = read({{variable, value}});
      REQUIRE_FALSE(settings);
      CHECK(settings.error().code == Code::kInvalidArgument);
      CHECK_THAT(settings.error().what,
                 Catch::StartsWith(variable + "='" + shown_value(value) + "'") &&
                     Catch::EndsWith("it takes " + std::string(row.accepts)));
      CHECK(settings.error().what.find('\n') == std::string::npos);
    }
  }
}

TEST_CASE("each variable sets its own field") {
  const auto settings = read({{"TUTTI_TIMEOUT_MS", "1500"},
                              {"TUTTI_CONTRACT", "relaxed"},
                              {"TUTTI_ALGORITHM", "ring"},
                              {"TUTTI_TRANSPORT", "in_process"},
                              {"TUTTI_SLOT_BYTES", "64K"},
                              {"TUTTI_SLOT_COUNT", "3"},
                              {"TUTTI_LANES", "2"},
                              {"TUTTI_PLAN", "a.plan,b.plan"},
                              {"TUTTI_GROUPS", "4,8"},
                              {"TUTTI_WEIGHTS", "1,0,2"},
                              {"TUTTI_SPIN", "0"},
                              {"TUTTI_TUNING", "off"},
                              {"TUTTI_FLIGHT", "/records"},
                              {"TUTTI_TRACE", "/calls.json"},
                              {"TUTTI_LOG", "off"}});
  REQUIRE(settings);
  CHECK(settings->timeout == std::chrono::milliseconds(1500));
  CHECK(settings->contract == Contract::kRelaxed);
  CHECK(settings->algorithm == "ring");
  CHECK(settings->transport == "in_process");
  CHECK(settings->flight == "/records");
  CHECK(settings->trace == "/calls.json");
  CHECK(settings->slot_bytes == 65536);
  CHECK(settings->slot_count == 3);
  CHECK(settings->lanes == 2);
  CHECK(settings->plan == "a.plan,b.plan");
  CHECK(settings->groups == std::vector<int>{4, 8});
  CHECK(settings->weights == std::vector<int>{1, 0, 2});
  CHECK(settings->spin == 0);
  CHECK(settings->tuning == "off");
  CHECK(settings->log == "off");
}

TEST_CASE("as text, each setting has its value and where it is from") {
  const Environment environment({"TUTTI_"}, {{"TUTTI_LANES", "2"}, {"TUTTI_SPIN", "7"}});
  auto settings = Settings::from_environment();
  REQUIRE(settings);
  settings->slot_count = 5;
  settings->spin = 8;
  const std::string text = settings->to_string();
  for (const char* line :
       {"timeout_ms = 60000  (default)\n", "lanes = 2  (TUTTI_LANES)\n",
        "slot_count = 5  (program)\n", "spin = 8  (program)\n", "algorithm = any  (default)\n"}) {
    CHECK_THAT(text, Catch::Contains(line));
  }
}

TEST_CASE("reading the settings sets the level of the log") {
  for (const auto& [text, level] : std::map<std::string, log::Level>{
           {"trace", log::Level::kTrace}, {"error", log::Level::kError}}) {
    const Environment environment({"TUTTI_"}, {{"TUTTI_LOG", text}});
    REQUIRE(Settings::from_environment());
    CHECK(log::enabled(log::Part::kNet, level));
    CHECK(log::enabled(log::Part::kNet, log::Level::kInfo) == (level == log::Level::kTrace));
  }
  log::set_levels(log::all_at(log::Level::kWarn));
}

}  // namespace
}  // namespace tutti
