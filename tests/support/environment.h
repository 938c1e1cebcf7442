// File: support/environment.h: environment variables for the length of a test.
#pragma once
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::test {

/// Removes the variables that begin with one of `prefixes`, sets these, and puts everything back.
class Environment {
 public:
  Environment(const std::vector<std::string_view>& prefixes,
              const std::map<std::string, std::string>& variables) {
    for (char** entry = environ; *entry != nullptr; ++entry) before_.emplace_back(*entry);
    for (const std::string& entry : before_) {
      const std::string name = entry.substr(0, entry.find('='));
      for (const std::string_view prefix : prefixes) {
        if (name.starts_with(prefix)) unsetenv(name.c_str());
      }
    }
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    clearenv();
    for (const std::string& entry : before_) {
      const auto equals = entry.find('=');
      setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<std::string> before_;
};

}  // namespace tutti::test
