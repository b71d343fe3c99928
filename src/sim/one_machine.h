// One machine, many jobs: the least time in which a resource can serve jobs that become ready at
// their heads and have their tails still to come elsewhere.
#pragma once

#include <functional>
#include <vector>

#include "src/base/units.h"

namespace dc::sim {

struct Job {
  base::Nanos head, time, tail;
};

// The subset of jobs that binds: none can begin before `head`, they take `time`, and `tail` follows
// the last of them whichever it is.
struct Binding {
  base::Nanos head, time, tail;
  base::Nanos sum() const { return head + time + tail; }
};

// The largest Binding::sum over all subsets: the makespan of Jackson's preemptive schedule. All
// zero without jobs. O(n log n).
Binding one_machine(std::vector<Job> jobs);

// The largest of sum() + `more`(head + tail) over subsets that are cut by a head and one of up to
// 64 tails; `more` is what else the resource spends, given the time before and after the subset.
double one_machine(std::vector<Job> jobs, const std::function<double(base::Nanos)>& more);

}  // namespace dc::sim
