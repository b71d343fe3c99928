// Prepares an instruction with the native provider and launches it on memory of exactly its
// tensors. Ends the process when anything else was touched.
#pragma once

#include "tests/fuzz/kernel_instructions.h"
#include "tests/fuzz/kernel_mutation.h"

namespace dc::fuzz {

struct KernelOutcome {
  bool prepared = false;  // the provider has a kernel for it
  bool launched = false;  // and it was small enough to be run
  bool failed = false;    // its launch gave an error, of an index for example
  std::string error;      // why it was not prepared, or failed
};
// The choices say where tensors lie, what is in them and which rank this is.
KernelOutcome run_kernel(const KernelInstruction& instruction, Choices& choices);

// The instruction that the bytes choose: two for the row, then its changes.
KernelOutcome run_mutated(std::span<const uint8_t> bytes);

}  // namespace dc::fuzz
