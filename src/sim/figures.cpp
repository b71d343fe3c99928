#include "src/sim/figures.h"

namespace dc::sim {

using cost::Source;
using runtime::plan::FigureOrigin;

FigureOrigin figure_origin(Source source) {
  switch (source) {
    case Source::Measured:
      return FigureOrigin::Measured;
    case Source::Interpolated:
      return FigureOrigin::Interpolated;
    case Source::Extrapolated:
      return FigureOrigin::Extrapolated;
    case Source::Analytic:
      return FigureOrigin::Table;
    case Source::Learned:
      return FigureOrigin::Learned;
    case Source::ClosedForm:
      return FigureOrigin::ClosedForm;
  }
  return FigureOrigin::Unknown;
}

// Readers that do not know where figures of fused kernels come from have them as part of two
// others.
void add_figures(const std::array<base::Nanos, cost::kSources>& by_source, int repeat,
                 runtime::plan::Prediction& prediction) {
  prediction.figures_ns.resize(runtime::plan::kFigureOrigins);
  const auto add = [&](Source source, Source as) {
    const int64_t time = (by_source[static_cast<size_t>(source)] * repeat).v;
    prediction.figures_ns[static_cast<size_t>(as)] += time;
    return time;
  };
  for (size_t i = 0; i < runtime::plan::kFigureOrigins; ++i)
    add(static_cast<Source>(i), static_cast<Source>(i));
  prediction.learned_ns += add(Source::Learned, Source::Interpolated);
  prediction.closed_form_ns += add(Source::ClosedForm, Source::Analytic);
}

}  // namespace dc::sim
