// The fused kernels against what they stand for, step by step on the host, bit for bit: all-reduce
// with residual and RMSNorm, reduce-scatter with a step of SGD. Several calls in a row, as
// residuals, masters and momenta live on.
#include <random>
#include <string>

#include "simt/fused_cases.h"
#include "support/catch.h"
#include "support/sample.h"

namespace tutti {
namespace {

using test::DeviceRanks;

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16};

exec::CudaMeshOptions options_for(int ranks) {
  exec::CudaMeshOptions options;
  for (int rank = 0; rank < ranks; ++rank) options.devices.push_back(test::device_of(rank));
  options.lanes = 3;
  options.slot_bytes = 1024;
  options.threads = test::kThreads;
  return options;
}

TEST_CASE("all-reduce with residual and RMSNorm has the bits of its parts") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  for (int n = 1; n <= 8; ++n) {
    std::string complaint;
    const auto ranks = DeviceRanks::open(options_for(n), complaint);
    REQUIRE(complaint == "");
    test::Sample sample(test::share(4));
    for (const DataType type : kTypes) {
      sample.add("", [&random, &ranks, type, n] {
        test::shuffle_threads(random() % 2 == 0 ? 0 : random());
        test::check_access(!test::kSanitized && random() % 4 == 0);
        // Fewer rows than ranks and more; rows that leave threads idle, and several units a thread.
        const test::NormCase norm{type, random() % 20,
                                  cuda::unit_elements(type) * (1 + random() % 200),
                                  random() % 2 == 0 ? 0.25F : 1e-5F, random() % 2 == 0};
        INFO(to_string(type) << ", " << n << " ranks, " << norm.rows << " x " << norm.columns);
        REQUIRE(test::run_norm(*ranks, n, norm, random()) == "");
      });
    }
    sample.run(random);
  }
  test::check_access(false);
  test::shuffle_threads(0);
}

TEST_CASE("reduce-scatter with a step of SGD has the bits of its parts") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  for (int n = 1; n <= 8; ++n) {
    std::string complaint;
    const auto ranks = DeviceRanks::open(options_for(n), complaint);
    REQUIRE(complaint == "");
    test::Sample sample(test::share(4));
    for (const DataType type : kTypes) {
      sample.add("", [&random, &ranks, type, n] {
        test::shuffle_threads(random() % 2 == 0 ? 0 : random());
        test::check_access(!test::kSanitized && random() % 4 == 0);
        const test::SgdCase sgd{type, random() % (random() % 3 == 0 ? 50 : 5000), 0.125F,
                                random() % 2 == 0 ? 0.9F : 0.0F, random() % 2 == 0 ? 0.01F : 0.0F};
        INFO(to_string(type) << ", " << n << " ranks, " << sgd.count);
        REQUIRE(test::run_sgd(*ranks, n, sgd, random()) == "");
      });
    }
    sample.run(random);
  }
  test::check_access(false);
  test::shuffle_threads(0);
}

TEST_CASE("what the fused kernels do not take is refused") {
  std::string complaint;
  const auto ranks = DeviceRanks::open(options_for(1), complaint);
  REQUIRE(complaint == "");
  exec::CudaRmsNorm norm;
  norm.call.type = DataType::kInt32;
  norm.call.peer_inputs = {nullptr};
  norm.call.peer_outputs = {nullptr};
  norm.residuals = {nullptr};
  const auto said_of = [&] {
    const Status status = ranks->mesh().launch_rms_norm(0, norm, ranks->stream(0));
    return status ? "" : status.error().what;
  };
  REQUIRE(said_of() ==
          "an all-reduce with RMSNorm of int32; it takes float32, float16 and bfloat16");
  norm.call.type = DataType::kBfloat16;
  norm.rows = 1;
  norm.columns = 12;
  REQUIRE(said_of() ==
          "an all-reduce with RMSNorm: rows of 12 bfloat16, or not aligned; whole "
          "units of 16 bytes are possible");
}

}  // namespace
}  // namespace tutti
