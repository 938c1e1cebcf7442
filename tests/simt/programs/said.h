// File: simt/programs/said.h: how the programs of this folder end when something is wrong.
#pragma once
#include <cstdio>
#include <cstdlib>

/// Ends the program with a line unless `fine`; `why` may be null.
inline void require(bool fine, const char* what, const char* why = nullptr) {
  if (fine) return;
  std::fprintf(stderr, "%s: %s\n", what, why != nullptr ? why : "wrong");
  std::_Exit(EXIT_FAILURE);
}
