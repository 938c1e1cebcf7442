// The canary: a bug that coverage-guided fuzzing finds in a second and blind guessing does not.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size >= 4 && data[0] == 't' && data[1] == 'u' && data[2] == 't' && data[3] == 'i') {
    std::fputs("the canary sang\n", stderr);
    std::abort();
  }
  return 0;
}
