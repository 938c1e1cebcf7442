#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tutti {

void check_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "tutti: internal error at %s:%d: %s\n", file, line, expression);
  std::abort();
}

}  // namespace tutti
