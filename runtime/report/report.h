// What `dcc compile` and `dcc inspect` say about a plan, most important first: as text for people
// and as JSON for programs. For verified plans.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/plan/plan.h"
#include "src/base/json_writer.h"

namespace dc::runtime::plan {

struct ParameterFacts {
  int64_t count = 0, elements = 0, bytes = 0;  // whole, in the model's dtypes
  int64_t trainable_elements = 0;
  int64_t resident = 0;       // parameters that every rank holds whole
  int64_t gathered = 0;       // parameters of which a rank holds a shard, gathered when used
  int64_t sharded_state = 0;  // trainable parameters whose optimizer state is sharded
};
ParameterFacts parameter_facts(const Plan& plan);

// Without a profile the workspace of kernels is an upper bound from shapes.
bool scratch_is_estimated(const Plan& plan);

std::string to_text(const Plan& plan);  // stable, complete: `dcc inspect --as=text`
std::string to_json(const Plan& plan);
std::string summary(const Plan& plan);  // the report with notes

// `dcc compile`. Its first line: step, memory, what limits
// it.
std::string report(const Plan& plan);
// Digests and versions: what `--verbose` adds.
std::string identity(const Plan& plan);

// Parameters, where they and the optimizer's state lie, the optimizer.
std::string training_report(const Plan& plan);
// How long a step is predicted to take, near which bounds, from which figures.
std::string timing_report(const Prediction& prediction);
// "compute (99.8 % of the step)"; empty if no time is predicted.
std::string limited_by(const Prediction& prediction);
void write_timing(base::JsonWriter& json,
                  const Prediction& prediction);  // members of an open object

// "pass", "code", "subjects", "numbers", "text": members of an open object.
void write_remark(base::JsonWriter& json, const base::Remark& remark);
// Members "plan" to "notes" of an open object: the shape "dcc.compile/2" promises.
void write_report(base::JsonWriter& json, const Plan& plan);

}  // namespace dc::runtime::plan
