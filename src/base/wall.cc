#include "base/wall.h"

#include <new>
#include <string>

#include "base/one_line.h"

namespace tutti {

Error thrown_error(std::string_view function, const std::exception& thrown) noexcept {
  Error error;
  error.code = Code::kSystem;
  const bool memory = dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr;
  error.what = "out of memory";  // So short that the string allocates nothing.
  try {
    const std::string where = function.empty() ? "" : std::string(function) + ": ";
    error.what = where + (memory ? "out of memory" : one_line(thrown.what()));
  } catch (const std::bad_alloc&) {  // The short text says it as well.
  }
  return error;
}

Error copy_of(const Error& error) noexcept {
  try {
    return error;
  } catch (const std::bad_alloc&) {
    return Error{error.code, "out of memory", error.rank, error.peer};
  }
}

}  // namespace tutti
