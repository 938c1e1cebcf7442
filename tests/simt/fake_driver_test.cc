// The fake drivers for NVML and CUDA's driver, asked by the readers of src/topology as these ask
// the real ones: they say what they were told.
#include <cstdlib>

#include "support/catch.h"
#include "topology/capture/machines.h"

TEST_CASE("the stand-ins say what they were told") {
  using namespace tutti::topology;
  // Read once, when something is first asked: a machine for each run of this program.
  setenv("SIMT_MACHINE", "gb200-nvl72", 0);
  const auto machine = load_machine(std::getenv("SIMT_MACHINE"));
  REQUIRE(machine);
  const auto told = library_answers(machine->graph);
  REQUIRE(told);
  const auto nvml = read_nvml(nullptr);  // The program itself: they are linked in.
  REQUIRE(nvml);
  CHECK(nvml->driver == "simulated");
  CHECK(nvml->gpus == told->nvml.gpus);
  const auto cuda = read_cuda(nullptr);
  REQUIRE(cuda);
  CHECK(cuda->gpus == told->cuda.gpus);
}
