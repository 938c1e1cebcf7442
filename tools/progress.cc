#include "tools/progress.h"

#include <signal.h>

namespace tutti::tools {
namespace {

volatile sig_atomic_t line_on = -1;  // The terminal.
volatile pid_t shows = 0;            // The process that writes there.

void on_interrupt(int number) {
  constexpr std::string_view kLine = "\ninterrupted\n";
  if (::getpid() == shows) (void)!::write(line_on, kLine.data(), kLine.size());
  ::signal(number, SIG_DFL);
  ::raise(number);
}

}  // namespace

void end_line_on_interrupt(int terminal) {
  struct sigaction action {};
  if (::sigaction(SIGINT, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  line_on = terminal;
  shows = ::getpid();
  action.sa_handler = on_interrupt;
  ::sigaction(SIGINT, &action, nullptr);
}

}  // namespace tutti::tools
