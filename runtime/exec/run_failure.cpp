#include "runtime/exec/run_failure.h"

namespace dc::runtime::exec {

using base::ErrorKind;
using base::Status;

Status RunFailure::status() {
  if (!happened()) return base::ok_status();
  std::lock_guard lock(mutex_);
  return status_;
}

void RunFailure::add(Status status) {
  std::lock_guard lock(mutex_);
  const bool first = status_.ok();
  const bool explains =
      !first && status.kind() == ErrorKind::PeerDied && status_.kind() != ErrorKind::PeerDied;
  if (first || explains) status_ = std::move(status);
  happened_.store(true, std::memory_order_release);
}

void RunFailure::add(Status status, const plan::Program& program, const Command& command) {
  const auto index = static_cast<size_t>(command.instruction);
  std::string where = "at instruction " + std::to_string(command.instruction) + " of program '" +
                      program.name + "'";
  if (index < program.instructions.size()) {
    const plan::Instruction& instruction = program.instructions[index];
    if (!instruction.op.empty()) where += ", " + instruction.op;
    if (!instruction.module.empty()) where += ", module " + instruction.module;
  }
  status.add_context(std::move(where));
  add(std::move(status));
}

}  // namespace dc::runtime::exec
