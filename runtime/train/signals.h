// SIGTERM and SIGINT: the first asks for a stop after the current step, the second ends at once.
#pragma once

namespace dc::runtime::train {

// Keeps both signals pending, also across exec; call it first in main.
void hold_stop_signals();
// Installs the handlers and lets through what was held. A SIGINT that is ignored stays so.
void watch_stop_signals();
bool stop_requested();

// The rule, apart from the process: launchers forward what a terminal or a job manager also sends
// to every process of a group, so a signal from the parent and one from elsewhere count as one
// request; two from the same side are two.
struct StopCounts {
  int from_parent = 0, from_elsewhere = 0;
  bool second() const { return from_parent > 1 || from_elsewhere > 1; }
};

}  // namespace dc::runtime::train
