// File: support/said_aside.h: what the library says to people, on standard error.
#pragma once
#include <unistd.h>

#include <cstdio>
#include <string>

namespace tutti::test {

/// What the process says on standard error while `body` runs.
template <class Body>
std::string said_aside(const Body& body) {
  std::FILE* const file = std::tmpfile();
  const int kept = ::dup(STDERR_FILENO);
  ::dup2(::fileno(file), STDERR_FILENO);
  body();
  ::dup2(kept, STDERR_FILENO);
  ::close(kept);
  std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

}  // namespace tutti::test
