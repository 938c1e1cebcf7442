// Whether a machine is too busy to measure on: over recorded texts and rounds.
#include "perf/sweep/noise.h"

#include "support/catch.h"

namespace tutti::perf {
namespace {

std::string words(std::vector<std::string> samples, int cpus) { return busy_words(samples, cpus); }

}  // namespace

TEST_CASE("a machine is busy while others run on half of its CPUs") {
  CHECK(words({"14.21 9.80 4.02 15/912 4711"}, 2) == "load 14 on 2 CPUs");
  // The mean of a minute lags behind: what runs now decides.
  CHECK(words({"0.10 0.20 0.30 9/912 4711"}, 2) == "load 8 on 2 CPUs");
  CHECK(words({"14.21 9.80 4.02 1/912 4711"}, 2) == "");
  CHECK(words({"1.00 0.20 0.30 2/912 4711"}, 1) == "load 1 on 1 CPU");
  CHECK(words({"1.00 0.20 0.30 2/912 4711"}, 2) == "load 1 on 2 CPUs");
  CHECK(words({"3.00 3.00 3.00 4/912 4711"}, 64) == "");
  // One moment says little.
  const std::string quiet = "0.00 0.00 0.00 1/100 1", loud = "0.00 0.00 0.00 9/100 1";
  CHECK(words({quiet, quiet, loud}, 2) == "");
  CHECK(words({loud, quiet, loud}, 2) == "load 8 on 2 CPUs");
  CHECK(words({}, 2) == "");
  // A launcher's four ranks of this host are no others.
  CHECK(busy_words(std::vector<std::string>{"4.00 1.00 1.00 5/100 1"}, 2, 4) == "load 4 on 2 CPUs");
  CHECK(busy_words(std::vector<std::string>{"4.00 1.00 1.00 4/100 1"}, 2, 4) == "");
  CHECK(words({"", "nonsense"}, 2) == "");
}

TEST_CASE("figures whose rounds disagree show a busy machine") {
  const std::vector<double> steady{10, 11, 10, 12, 10}, once{10, 11, 90, 12, 10},
      often{10, 50, 90, 12, 45};
  Noise quiet;
  for (int i = 0; i < 9; ++i) quiet.add(i % 2 == 0 ? steady : once);
  quiet.add(often);
  CHECK(quiet.verdict() == "");
  Noise busy;
  for (int i = 0; i < 12; ++i) busy.add(i % 3 == 0 ? often : steady);
  CHECK(busy.verdict() == "in 4 of 12 figures the usual round took more than 2 times the fastest");
  Noise nothing;
  nothing.add(std::vector<double>{10});  // One round says nothing.
  CHECK(nothing.verdict() == "");
}

TEST_CASE("a link that is much slower than the memory shows a busy machine") {
  Noise noise;
  noise.compare("copies between two threads", 5.0, "copies of memory", 9.9);
  CHECK(noise.verdict() == "");
  noise.compare("copies between two threads", 0.762, "copies of memory", 8.1);
  CHECK(noise.verdict() ==
        "copies between two threads: 0.762 GB/s, where copies of memory reach 8.1");
}

}  // namespace tutti::perf
