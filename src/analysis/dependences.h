// The dependences between the nodes of a program, which every pass that moves nodes must keep. A
// node follows the writers of what it reads, and the readers and writers of what it writes. The
// done of a collective counts as a use of the start's operands, because peers may read them until
// then.
#pragma once

#include <cstdint>
#include <vector>

#include "src/analysis/schedule_view.h"
#include "src/analysis/storage.h"

namespace dc::analysis {

// By position: the earlier positions it must follow, perhaps with repetitions.
using Dependences = std::vector<std::vector<int32_t>>;
// Of the view only the order is asked.
Dependences dependences(const ir::Graph& graph, const StorageMap& storages,
                        const ScheduleView& view);

}  // namespace dc::analysis
