#include "transport/verbs/library.h"

#include <string>

#include "base/check.h"
#include "base/driver_library.h"

namespace tutti::verbs {
namespace {

constexpr const char* kName = "libibverbs.so.1";

struct Loaded {
  Library functions;
  std::string missing;  // Why it can't be used; empty: it can.
};

Loaded load() {
  Loaded loaded;
  const DriverLibrary driver(kName);
  if (!driver.opened()) {
    loaded.missing = std::string("verbs: there is no ") + kName + "; install rdma-core";
    return loaded;
  }
#define TUTTI_VERBS_BIND(name)                       \
  loaded.functions.name = driver.find("ibv_" #name); \
  if (loaded.functions.name == nullptr)              \
    loaded.missing = std::string("verbs: ") + kName + " lacks ibv_" #name "; install a newer one";
  TUTTI_VERBS_FUNCTIONS(TUTTI_VERBS_BIND)
#undef TUTTI_VERBS_BIND
  loaded.functions.reg_dmabuf_mr = driver.find("ibv_reg_dmabuf_mr");
  return loaded;
}

Loaded& loaded() {
  static Loaded once = load();
  return once;
}

}  // namespace

Result<const Library*> load_library() {
  if (!loaded().missing.empty()) return Error{Code::kUnsupported, loaded().missing};
  return &loaded().functions;
}

const Library& library() {
  TUTTI_CHECK(loaded().missing.empty());
  return loaded().functions;
}

void use_library(const Library& other) { loaded() = {.functions = other, .missing = {}}; }

}  // namespace tutti::verbs
