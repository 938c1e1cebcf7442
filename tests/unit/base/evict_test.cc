// Which unauthenticated connection is closed when there are too many.
#include "base/net/evict.h"

#include <vector>

#include "support/catch.h"

namespace tutti {
namespace {

TEST_CASE("silent connections go first, the oldest of the source that has most") {
  const std::vector<Unproven> all{{1, true, "10.0.0.1"},  {2, false, "10.0.0.2"},
                                  {3, false, "10.0.0.9"}, {4, false, "10.0.0.9"},
                                  {5, true, "10.0.0.1"},  {6, true, "10.0.0.1"}};
  CHECK(whom_to_evict(all) == 3);
}

TEST_CASE("where all have spoken, the source that has most gives way, too") {
  const std::vector<Unproven> all{
      {1, true, "10.0.0.1"}, {2, true, "10.0.0.9"}, {3, true, "10.0.0.9"}, {4, true, "10.0.0.2"}};
  CHECK(whom_to_evict(all) == 2);
  CHECK(whom_to_evict({all.data(), 1}) == 1);
}

TEST_CASE("of equal sources the oldest connection goes") {
  const std::vector<Unproven> all{{7, false, "10.0.0.2"}, {8, false, "10.0.0.1"}};
  CHECK(whom_to_evict(all) == 7);
}

}  // namespace
}  // namespace tutti
