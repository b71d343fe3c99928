// The parts of verification. A part may rely on those that verify_meaning calls before it
// (verify.cpp). Not for other folders: call verify_meaning or load.
#pragma once

#include "runtime/plan/plan.h"

namespace dc::runtime::verify {

base::Status check_tensors(
    const plan::Plan& plan);  // slices in arenas, tensors in slices, nothing overflows
base::Status check_slice_kinds(const plan::Plan& plan);  // slices are for what uses them
base::Status check_overlap(
    const plan::Plan& plan);  // no two simultaneously live slices share bytes
base::Status check_instructions(
    const plan::Plan& plan);  // each instruction by itself: buffers, shapes, lists
base::Status check_order(
    const plan::Plan& plan);  // live ranges, writes before reads, signals before waits
base::Status check_variants(
    const plan::Plan& plan);                      // what runs between steps leaves state as it is
base::Status check_sums(const plan::Plan& plan);  // gradients are summed in the order it says
base::Status check_hazards(const plan::Plan& plan);  // level 3: streams meet where they share bytes
base::Status check_state(
    const plan::Plan& plan);  // parameters, inputs, step scalars, optimizer, durations
base::Status check_state_entries(
    const plan::Plan& plan);  // roles, placements, sources; called by check_state

}  // namespace dc::runtime::verify
