// Where the figures of a prediction come from, as plans say it.
#pragma once

#include <array>

#include "runtime/plan/plan.h"
#include "src/cost/cost_model.h"

namespace dc::sim {

runtime::plan::FigureOrigin figure_origin(cost::Source source);

// Adds serial times by cost::Source, of a program that runs `repeat` times.
void add_figures(const std::array<base::Nanos, cost::kSources>& by_source, int repeat,
                 runtime::plan::Prediction& prediction);

}  // namespace dc::sim
