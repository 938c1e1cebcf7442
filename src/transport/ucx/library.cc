#include "transport/ucx/library.h"

#include <dlfcn.h>

namespace tutti::ucx {
namespace {

Result<Library> load() {
  constexpr const char* kName = "libucp.so.0";
  constexpr const char* kRemedy =
      "; install UCX (Debian: libucx0), or use another transport (TUTTI_TRANSPORT=tcp)";
  void* const handle = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return Error{Code::kUnsupported, std::string("ucx: ") + dlerror() + kRemedy};
  Library loaded;
  const char* missing = nullptr;
  const auto bind = [&](auto& function, const char* name) {
    // Those of the libraries that it needs are found as well.
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr) missing = name;
  };
#define TUTTI_UCX_FUNCTION(name) bind(loaded.name, #name);
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
