// What a rank that joins hears of the others' end.
#include "comm/watching.h"

#include "support/catch.h"

namespace tutti {
namespace {

TEST_CASE("why a job has failed is said at each look, not only at the first") {
  const auto rendezvous = memory_rendezvous();
  const CommunicatorConfig config = watching({Rank{0}, 1, {}}, *rendezvous, "world");
  CHECK(config.look());
  REQUIRE(rendezvous->fail({Code::kPeerFailed, "rank 6 has ended", Rank{}, Rank{6}}));
  Status first = ok();
  for (const Deadline end = Deadline::after(std::chrono::minutes(1)); first && !end.passed();)
    first = config.look();
  REQUIRE_FALSE(first);
  const Status second = config.look();
  REQUIRE_FALSE(second);
  CHECK(second.error().peer == Rank{6});
}

}  // namespace
}  // namespace tutti
