// What launchers say, as they really say it; and what they get wrong.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "bootstrap/file_rendezvous.h"
#include "bootstrap/launch/launch.h"
#include "support/catch.h"
#include "support/environment.h"
#include "tutti/rendezvous.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Variables = std::map<std::string, std::string>;

const std::vector<std::string_view> kLauncherPrefixes{
    "TUTTI_",     "OMPI_",      "PMIX_",       "PMI_",    "MPI_LOCAL",     "RANK",
    "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD", "MASTER_", "TORCHELASTIC_", "SLURM_"};

Result<LaunchInfo> detect(const Variables& variables) {
  const test::Environment environment(kLauncherPrefixes, variables);
  return detect_launch();
}

const Variables kTutti{{"TUTTI_RANK", "1"},
                       {"TUTTI_RANK_COUNT", "4"},
                       {"TUTTI_LOCAL_RANK", "1"},
                       {"TUTTI_LOCAL_RANK_COUNT", "4"},
                       {"TUTTI_RENDEZVOUS", "/tmp/somewhere"},
                       {"TUTTI_JOB", "run-1@2"}};
const Variables kTorchrun{{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "node0"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RUN_ID", "none"},
                          {"TORCHELASTIC_RESTART_COUNT", "0"}};
const Variables kOpenMpi{
    {"OMPI_COMM_WORLD_RANK", "2"},       {"OMPI_COMM_WORLD_SIZE", "3"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
    {"PMIX_NAMESPACE", "1216151553"},    {"OMPI_MCA_ess_base_jobid", "1216151553"}};
const Variables kMpich{
    {"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kSlurm{{"SLURM_PROCID", "3"},
                       {"SLURM_NTASKS", "5"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_NODEID", "1"},
                       {"SLURM_JOB_ID", "77"},
                       {"SLURM_STEP_ID", "2"},
                       {"SLURM_STEP_NUM_NODES", "2"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2,3"},
                       {"SLURM_STEP_NODELIST", "node[07-08]"},
                       {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"}};

/// What one launcher says inside what another one says.
Variables together(Variables outer, const Variables& inner) {
  for (const auto& [name, value] : inner) outer[name] = value;
  return outer;
}

void check(const Result<LaunchInfo>& info, const std::string& launcher, int rank, int rank_count,
           int local_rank, int local_rank_count) {
  REQUIRE(info);
  CHECK(info->launcher == launcher);
  CHECK(info->rank.value == rank);
  CHECK(info->rank_count == rank_count);
  CHECK(info->local_rank == local_rank);
  CHECK(info->local_rank_count == local_rank_count);
  CHECK(info->job.size() <= 64);
}

TEST_CASE("each launcher is understood") {
  check(detect({}), "", 0, 1, 0, 1);
  check(detect(kTutti), "tutti", 1, 4, 1, 4);
  check(detect(kTorchrun), "torchrun", 5, 8, 1, 4);
  check(detect(kOpenMpi), "openmpi", 2, 3, 2, 3);
  check(detect(kMpich), "mpich", 3, 4, 1, 2);
  check(detect(kSlurm), "slurm", 3, 5, 1, 3);
  // By hand, without the local ones.
  check(detect({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), "torchrun", 1, 2, 0, 1);
  check(detect({{"TUTTI_RANK", "0"}, {"TUTTI_RANK_COUNT", "1"}}), "tutti", 0, 1, 0, 1);
}

TEST_CASE("where to meet and which job it is comes from the launcher, or from the user") {
  auto info = detect(kTorchrun);
  REQUIRE(info);
  CHECK(info->master_address == "node0");
  CHECK(info->master_port == 29500);
  CHECK_THAT(info->job, Catch::Contains("none") && Catch::Contains("node0-29500"));
  info = detect(together(kTutti, {{"TUTTI_RENDEZVOUS", ""}, {"MASTER_ADDR", "node3"}}));
  REQUIRE(info);  // tutti run --hosts.
  CHECK((info->rendezvous.empty() && info->master_address == "node3" && info->job == "run-1@2"));
  info = detect(kOpenMpi);
  REQUIRE(info);
  CHECK_THAT(info->job, Catch::StartsWith("openmpi-1216151553-"));
  CHECK(detect(kOpenMpi)->job == info->job);  // The same for all ranks of one launcher.
  info = detect(kSlurm);
  REQUIRE(info);
  CHECK(info->master_address == "node07");
  CHECK(info->job == "slurm-77.2");
  auto variables = kSlurm;
  variables.erase("SLURM_STEP_NODELIST");
  CHECK(detect(variables)->master_address == "10.0.0.9");
  for (const Variables& launcher : {kTutti, kTorchrun, kOpenMpi, kMpich, kSlurm}) {
    for (const std::string place : {"/shared/meeting", "node3:4711", "[fd00::2]:80"}) {
      const auto told =
          detect(together(launcher, {{"TUTTI_RENDEZVOUS", place}, {"TUTTI_JOB", "mine"}}));
      REQUIRE(told);
      CHECK(told->rendezvous == place);
      CHECK(told->job == "mine");
    }
  }
  CHECK(detect({{"TUTTI_JOB", std::string(200, 'j')}})->job.size() == 64);
}

TEST_CASE("of launchers that start each other, the innermost counts") {
  CHECK(detect(together(kSlurm, kTutti))->launcher == "tutti");
  CHECK(detect(together(together(kTorchrun, kOpenMpi), kTutti))->launcher == "tutti");
  CHECK(detect(together(kSlurm, kOpenMpi))->launcher == "openmpi");
  CHECK(detect(together(kSlurm, kMpich))->launcher == "mpich");
  CHECK(detect(together(kSlurm, kTorchrun))->launcher == "torchrun");
  CHECK(detect(together(kOpenMpi, kTorchrun))->launcher == "torchrun");
  // A wrapper under mpirun that sets what torch reads: still mpirun's ranks.
  auto by_hand = kTorchrun;
  by_hand.erase("TORCHELASTIC_RUN_ID");
  CHECK(detect(together(kOpenMpi, by_hand))->launcher == "openmpi");
  // Slurm's own PMI says nothing about this host; Slurm does.
  CHECK(detect(together(kSlurm, {{"PMI_RANK", "3"}, {"PMI_SIZE", "5"}}))->launcher == "slurm");
}

TEST_CASE("a Slurm allocation without a step starts no ranks") {
  auto batch = kSlurm;
  batch.erase("SLURM_STEP_ID");
  check(detect(batch), "", 0, 1, 0, 1);
}

TEST_CASE("Slurm: one node means one host, however many ranks") {
  auto step = kSlurm;
  step["SLURM_STEP_NUM_NODES"] = "1";
  step["SLURM_LOCALID"] = "3";
  step["SLURM_STEP_TASKS_PER_NODE"] = "5";
  check(detect(step), "slurm", 3, 5, 3, 5);
}

TEST_CASE("values that are malformed or do not go together are one line that names the variable") {
  struct Mistake {
    Variables variables;
    const char* names;
  };
  const Mistake mistakes[] = {
      {together(kTutti, {{"TUTTI_RANK", "one"}}), "TUTTI_RANK='one' is not a number from 0"},
      {together(kTutti, {{"TUTTI_RANK", "4"}}), "TUTTI_RANK=4 does not go with TUTTI_RANK_COUNT=4"},
      {together(kTutti, {{"TUTTI_RANK", "-1"}}), "TUTTI_RANK='-1'"},
      {together(kTutti, {{"TUTTI_RANK_COUNT", ""}}), "TUTTI_RANK_COUNT is not set"},
      {{{"TUTTI_RANK_COUNT", "2"}}, "TUTTI_RANK is not set"},
      {together(kTutti, {{"TUTTI_RENDEZVOUS", "nowhere"}}), "TUTTI_RENDEZVOUS='nowhere'"},
      {together(kTutti, {{"TUTTI_RENDEZVOUS", "host:0"}}), "TUTTI_RENDEZVOUS='host:0'"},
      {together(kTutti, {{"TUTTI_RENDEZVOUS", "fd00::2:80"}}), "TUTTI_RENDEZVOUS='fd00::2:80'"},
      {together(kTutti, {{"TUTTI_RANK", "1\n\x1b[31m"}}), "TUTTI_RANK='1??[31m' is not a number"},
      {together(kTutti, {{"TUTTI_RENDEZVOUS", "no\nwhere"}}), "TUTTI_RENDEZVOUS='no?where'"},
      {together(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2\n"}}), "TASKS_PER_NODE='2?'"},
      {{{"RANK", "1"}}, "WORLD_SIZE is not set"},
      {{{"WORLD_SIZE", "2"}}, "RANK is not set"},
      {together(kTorchrun, {{"WORLD_SIZE", "0"}}), "WORLD_SIZE='0'"},
      {together(kTorchrun, {{"WORLD_SIZE", "99999999999"}}), "WORLD_SIZE='99999999999'"},
      {together(kTorchrun, {{"MASTER_PORT", "70000"}}), "MASTER_PORT='70000'"},
      {together(kTorchrun, {{"LOCAL_RANK", "4"}}),
       "LOCAL_RANK=4 does not go with LOCAL_WORLD_SIZE=4"},
      {together(kTorchrun, {{"LOCAL_RANK", ""}}), "LOCAL_RANK is not set"},
      {together(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}),
       "LOCAL_WORLD_SIZE=9 does not go with WORLD_SIZE=8"},
      {together(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "2"}}),
       "OMPI_COMM_WORLD_RANK=2 does not go with OMPI_COMM_WORLD_SIZE=2"},
      {together(kMpich, {{"PMI_SIZE", "four"}}), "PMI_SIZE='four'"},
      {together(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(x"}}),
       "SLURM_STEP_TASKS_PER_NODE='2(x' does not say how many ranks node 1 has"},
      {together(kSlurm, {{"SLURM_NODEID", ""}}), "SLURM_NODEID is not set"},
      {together(kSlurm, {{"SLURM_LOCALID", "3"}}), "SLURM_LOCALID=3"},
  };
  for (const Mistake& mistake : mistakes) {
    INFO(mistake.names);
    const auto info = detect(mistake.variables);
    REQUIRE_FALSE(info);
    CHECK(info.error().code == Code::kInvalidArgument);
    CHECK_THAT(info.error().what, Catch::Contains(mistake.names));
    CHECK(info.error().what.find('\n') == std::string::npos);
  }
}

TEST_CASE("Slurm's compressed lists") {
  CHECK(bootstrap::first_host("node01") == "node01");
  CHECK(bootstrap::first_host("node[01-04,07],login1") == "node01");
  CHECK(bootstrap::first_host("r[2,5]n[10-12]x,y") == "r2n10x");
  CHECK(bootstrap::first_host("a,b[1-2]") == "a");
  CHECK(bootstrap::first_host("") == "");
  CHECK(bootstrap::first_host("broken[1-") == "broken1");
  CHECK(bootstrap::tasks_of_node("2(x3),1", 0) == 2);
  CHECK(bootstrap::tasks_of_node("2(x3),1", 2) == 2);
  CHECK(bootstrap::tasks_of_node("2(x3),1", 3) == 1);
  for (const char* text : {"", "2(x3),1", "x", "2(x)", "2(", "2(x3", "-1", ","})
    CHECK_FALSE(bootstrap::tasks_of_node(text, 4));
}

TEST_CASE("a process has one name as long as it lives") {
  const auto self = bootstrap::name_process(getpid());
  REQUIRE(self);
  CHECK(self->parent == getppid());
  CHECK(self->name == bootstrap::name_process(getpid())->name);
  CHECK_THAT(self->name, Catch::StartsWith(std::to_string(getpid()) + "@"));
  CHECK_FALSE(bootstrap::name_process(-1));
}

TEST_CASE("the secret comes from the environment") {
  CHECK(detect(kTorchrun)->secret.empty());
  for (const Variables& launcher : {kTutti, kTorchrun, kOpenMpi, kMpich, kSlurm})
    CHECK(detect(together(launcher, {{"TUTTI_SECRET", "of the job"}}))->secret == "of the job");
}

TEST_CASE("MPICH on several hosts names no job: the user has to, or a secret does") {
  const Variables at{{"TUTTI_RENDEZVOUS", "/tmp"}};
  const auto unnamed = detect(together(kMpich, at));
  REQUIRE(unnamed);
  const auto rendezvous = launch_rendezvous(*unnamed, Deadline::after(5s));
  REQUIRE_FALSE(rendezvous);
  CHECK(rendezvous.error().code == Code::kUnsupported);
  CHECK_THAT(rendezvous.error().what,
             Catch::Contains("set TUTTI_SECRET") && Catch::Contains("or TUTTI_JOB"));
  for (const char* const name : {"TUTTI_JOB", "TUTTI_SECRET"}) {
    const auto named = detect(together(together(kMpich, at), {{name, "test of launch"}}));
    REQUIRE(named);
    CHECK(launch_rendezvous(*named, Deadline::after(5s)));
  }
}

TEST_CASE("another user's runtime directory is not used") {
  std::string pattern = (std::filesystem::temp_directory_path() / "tutti-test-XXXXXX").string();
  const std::string theirs = mkdtemp(pattern.data());
  const std::string fallback = "/tmp/tutti-" + std::to_string(geteuid());
  const auto directory_with = [](const std::string& runtime) {
    const test::Environment environment({{"XDG_RUNTIME_DIR"}}, {{"XDG_RUNTIME_DIR", runtime}});
    return bootstrap::user_directory();
  };
  CHECK(*directory_with(theirs) == theirs + "/tutti");
  std::filesystem::remove_all(theirs);
  CHECK(*directory_with(theirs) == fallback);  // Not there.
  // Root can give one away; others are not root.
  const bool root = geteuid() == 0;
  if (root) {
    REQUIRE(mkdir(theirs.c_str(), 0700) == 0);
    REQUIRE(chown(theirs.c_str(), 65534, 65534) == 0);
  }
  CHECK(*directory_with(root ? theirs : "/") == fallback);
  std::filesystem::remove_all(theirs);
}

TEST_CASE("ranks on several hosts, and no word of where to meet: an error with the remedy") {
  const auto info = detect(kMpich);
  REQUIRE(info);
  const auto rendezvous = launch_rendezvous(*info, Deadline::after(5s));
  REQUIRE_FALSE(rendezvous);
  CHECK(rendezvous.error().code == Code::kUnsupported);
  CHECK_THAT(rendezvous.error().what,
             Catch::Contains("'mpich'") && Catch::Contains("set TUTTI_RENDEZVOUS to"));
}

}  // namespace
}  // namespace tutti
