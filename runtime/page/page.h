// `dcc inspect --as=timeline`: a plan over time as one HTML page that needs nothing else.
#pragma once

#include <string>

#include "runtime/page/chosen_step.h"
#include "runtime/plan/file.h"

namespace dc::runtime::page {

// What the page shows, as JSON ("dcc-timeline/1"): every instruction with its predicted times and,
// with a `real` step, its measured ones; the slices; remarks. Columns are packed (columns.h).
// `loaded` must have a timeline.
std::string timeline_json(const plan::Loaded& loaded, const exec::TraceFile* trace,
                          const ChosenStep* real);

// The page. Mismatch (76) for a plan of a schema without predicted times. `trace`: null or one of
// this plan; BadInput (65) if it has no whole step.
base::Result<std::string> timeline_page(const plan::Loaded& loaded, const exec::TraceFile* trace);

}  // namespace dc::runtime::page
