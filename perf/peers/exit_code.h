// File: perf/peers/exit_code.h: what loop.h's callbacks return for peers that throw.
#pragma once
#include <cstdio>
#include <exception>

/// What `call` returns; 1 after a line on stderr if it throws.
template <class Call>
int exit_code_of(const char* program, Call call) noexcept {
  try {
    return call();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return 1;
  }
}
