// Any bytes: parsing gives a plan or an error, a plan prints to a text that parses to the same
// plan, and verifying it ends. What verifies goes through the passes, and still verifies.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "plan/passes/passes.h"
#include "plan/text/text.h"
#include "plan/verify/verify.h"

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti;
  const auto plan = plan::parse({reinterpret_cast<const char*>(data), size});
  if (!plan) {
    require(plan.error().what.find('\n') == std::string::npos, "an error of several lines");
    return 0;
  }
  const auto again = plan::parse(plan::to_text(*plan));
  require(again && *again == *plan, "a plan that does not read back as it was printed");
  if (!plan::verify(*plan)) return 0;
  require(static_cast<bool>(plan::verify(plan::fuse(*plan))), "fuse breaks a plan");
  const plan::Limits twice{.scratch_chunks = 2 * plan::Limits{}.scratch_chunks};
  require(static_cast<bool>(plan::verify(plan::replicate(*plan, 2), twice)),
          "replicate breaks a plan");
  for (const auto& lowered : {plan::direct(*plan), plan::multicast(*plan)})
    require(!lowered || plan::verify(*lowered), "a pass breaks a plan");
  return 0;
}
