// The names of gloo that torch's ProcessGroupGloo.hpp mentions. torch comes without gloo's headers,
// and layout.cc needs no more of them than this. CMake puts it where that header looks for gloo's.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace gloo {

class Algorithm {};
class Context {
 public:
  void setTimeout(std::chrono::milliseconds) {}
};

namespace rendezvous {
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string&, const std::vector<char>&) = 0;
  virtual std::vector<char> get(const std::string&) = 0;
  virtual void wait(const std::vector<std::string>&) = 0;
  virtual void wait(const std::vector<std::string>&, const std::chrono::milliseconds&) = 0;
};
}  // namespace rendezvous

namespace transport {
class Device {};
class UnboundBuffer {};
}  // namespace transport

}  // namespace gloo
