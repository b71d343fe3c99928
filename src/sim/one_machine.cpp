#include "src/sim/one_machine.h"

#include <algorithm>
#include <queue>

namespace dc::sim {
namespace {

using base::Nanos;

// Serves whatever is ready, the longest tail first, and lets a longer tail interrupt. Returns the
// tail of the job that ends the schedule.
Nanos critical_tail(const std::vector<Job>& by_head) {
  struct Waiting {
    Nanos tail, left;
    bool operator<(const Waiting& other) const { return tail < other.tail; }
  };
  std::priority_queue<Waiting> ready;
  Nanos now, makespan{-1}, critical;
  size_t next = 0;
  while (next < by_head.size() || !ready.empty()) {
    if (ready.empty()) now = std::max(now, by_head[next].head);
    for (; next < by_head.size() && by_head[next].head <= now; ++next)
      ready.push({by_head[next].tail, by_head[next].time});
    Waiting job = ready.top();
    ready.pop();
    const bool is_interrupted = next < by_head.size() && by_head[next].head < now + job.left;
    if (is_interrupted) {
      job.left -= by_head[next].head - now;
      now = by_head[next].head;
      ready.push(job);
      continue;
    }
    now += job.left;
    if (now + job.tail > makespan) {
      makespan = now + job.tail;
      critical = job.tail;
    }
  }
  return critical;
}

void sort_by_head(std::vector<Job>& jobs) {
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const Job& a, const Job& b) { return a.head < b.head; });
}

// At most `count` of the distinct tails, evenly spread, the smallest first.
std::vector<Nanos> some_tails(const std::vector<Job>& jobs, size_t count) {
  std::vector<Nanos> tails;
  tails.reserve(jobs.size());
  for (const Job& job : jobs) tails.push_back(job.tail);
  std::sort(tails.begin(), tails.end());
  tails.erase(std::unique(tails.begin(), tails.end()), tails.end());
  if (tails.size() <= count) return tails;
  std::vector<Nanos> some;
  for (size_t i = 0; i < count; ++i) some.push_back(tails[i * (tails.size() - 1) / (count - 1)]);
  return some;
}

}  // namespace

Binding one_machine(std::vector<Job> jobs) {
  sort_by_head(jobs);
  Binding best;
  best.tail = jobs.empty() ? Nanos{} : critical_tail(jobs);
  // The subset: jobs with at least this tail, from the last moment at which none of them is ready.
  Nanos time;
  Nanos most{-1};
  for (auto job = jobs.rbegin(); job != jobs.rend(); ++job) {
    if (job->tail < best.tail) continue;
    time += job->time;
    if (job->head + time <= most) continue;
    most = job->head + time;
    best.head = job->head;
    best.time = time;
  }
  return best;
}

double one_machine(std::vector<Job> jobs, const std::function<double(Nanos)>& more) {
  sort_by_head(jobs);
  double most = 0;
  for (const Nanos tail : some_tails(jobs, 64)) {
    Nanos time;
    for (auto job = jobs.rbegin(); job != jobs.rend(); ++job) {
      if (job->tail < tail) continue;
      time += job->time;
      const auto sum = static_cast<double>((job->head + time + tail).v);
      most = std::max(most, sum + more(job->head + tail));
    }
  }
  return most;
}

}  // namespace dc::sim
