// What programs compiled against NVIDIA's header have in them is what our library takes them for.
#include <cstring>
#include <string>

#include "support/catch.h"

extern "C" {
struct nccl_fact {
  const char* what;
  long long value;
};
const nccl_fact* facts_of_ours(void);
const nccl_fact* facts_of_nvidias(void);
}

TEST_CASE("values and layouts are those of NVIDIA's header") {
  const nccl_fact* ours = facts_of_ours();
  const nccl_fact* theirs = facts_of_nvidias();
  std::size_t seen = 0;
  for (; ours[seen].what != nullptr; ++seen) {
    INFO(ours[seen].what);
    REQUIRE(theirs[seen].what != nullptr);
    CHECK(std::string(ours[seen].what) == theirs[seen].what);
    CHECK(ours[seen].value == theirs[seen].value);
  }
  CHECK(theirs[seen].what == nullptr);
  CHECK(seen > 60);
}
