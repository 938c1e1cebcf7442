#include "transport/ucx/library.h"

#include "base/driver_library.h"

namespace tutti::ucx {
namespace {

Result<Library> load() {
  constexpr const char* kName = "libucp.so.0";
  constexpr const char* kRemedy =
      "; install UCX (Debian: libucx0), or use another transport (TUTTI_TRANSPORT=tcp)";
  const DriverLibrary ucx(kName);
  if (!ucx.opened()) return Error{Code::kUnsupported, std::string("ucx: ") + dlerror() + kRemedy};
  Library loaded;
  const char* missing = nullptr;
  // Those of the libraries that it needs are found as well.
#define TUTTI_UCX_FUNCTION(name) \
  loaded.name = ucx.find(#name); \
  if (loaded.name == nullptr) missing = #name;
  TUTTI_UCX_FUNCTIONS(TUTTI_UCX_FUNCTION)
#undef TUTTI_UCX_FUNCTION
  if (missing != nullptr) {
    return Error{Code::kUnsupported,
                 std::string("ucx: ") + kName + " has no function " + missing + kRemedy};
  }
  return loaded;
}

}  // namespace

Result<const Library*> library() {
  static const Result<Library> loaded = load();
  if (!loaded) return loaded.error();
  return &*loaded;
}

}  // namespace tutti::ucx
