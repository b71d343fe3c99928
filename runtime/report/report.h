// What `dcc compile` and `dcc inspect` say about a plan, most important first: as text for people
// and as JSON for programs. For verified plans.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/plan/plan.h"
#include "src/base/json_writer.h"

namespace dc::runtime::report {

struct ParameterFacts {
  int64_t count = 0, elements = 0, bytes = 0;  // whole, in the model's dtypes
  int64_t trainable_elements = 0;
  int64_t resident = 0;       // parameters that every rank holds whole
  int64_t gathered = 0;       // parameters of which a rank holds a shard, gathered when used
  int64_t sharded_state = 0;  // trainable parameters whose optimizer state is sharded
};
ParameterFacts parameter_facts(const plan::Plan& plan);

// Without a profile the workspace of kernels is an upper bound from shapes.
bool scratch_is_estimated(const plan::Plan& plan);

std::string to_text(const plan::Plan& plan);  // stable, complete: `dcc inspect --as=text`
std::string to_json(const plan::Plan& plan);
std::string summary(const plan::Plan& plan);  // the report with notes

// `dcc compile`. Its first line: step, memory, what limits
// it.
std::string report(const plan::Plan& plan);
// Digests and versions: what `--verbose` adds.
std::string identity(const plan::Plan& plan);

// Parameters, where they and the optimizer's state lie, the optimizer.
std::string training_report(const plan::Plan& plan);
// How long a step is predicted to take, near which bounds, from which figures.
std::string timing_report(const plan::Prediction& prediction);
// Serial time by where its figures come from. `prediction` must say so.
struct FigureShare {
  const char *key, *words;  // of JSON; for people
  int64_t time_ns;
};
std::vector<FigureShare> figure_shares(const plan::Prediction& prediction);
// "compute (99.8 % of the step)"; empty if no time is predicted.
std::string limited_by(const plan::Prediction& prediction);
void write_timing(base::JsonWriter& json,
                  const plan::Prediction& prediction);  // members of an open object

// "pass", "code", "subjects", "numbers", "text": members of an open object.
void write_remark(base::JsonWriter& json, const base::Remark& remark);
// Members "plan" to "notes" of an open object: the shape "dcc.compile/2" promises.
void write_report(base::JsonWriter& json, const plan::Plan& plan);

}  // namespace dc::runtime::report
