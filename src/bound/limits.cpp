#include "src/bound/limits.h"

#include <initializer_list>
#include <utility>

namespace dc::bound {

// A collective takes its stream at least as long as its link.
bool may_weigh(Resource resource, const Limits& limits, Weighing weighing) {
  const bool by_stream = weighing == Weighing::Streams && limits.one_queue;
  switch (resource) {
    case Resource::Queue:
    case Resource::Refresh:
    case Resource::HostQueue:
      return by_stream;
    case Resource::Ranks:
    case Resource::Inside:
      return !by_stream;
    case Resource::Compute:
    case Resource::Update:
    case Resource::Head:
    case Resource::ToHost:
    case Resource::FromHost:
      return true;
  }
  return false;
}

namespace {

// The largest of several linear functions of the weights.
class Largest {
 public:
  explicit Largest(const Work& weights) : weights_(weights) {}

  // `ones` have the factor 1, as links of copies do; `links`: of the links of collectives.
  void add(std::initializer_list<Resource> ones, double links,
           std::initializer_list<std::pair<Resource, double>> scaled = {}) {
    Norm one;
    for (const Resource resource : ones) one.slope[resource] = 1;
    for (const auto& [resource, factor] : scaled) one.slope[resource] = factor;
    for (const Resource link : {Resource::Ranks, Resource::Inside}) one.slope[link] = links;
    for (const Resource link : {Resource::ToHost, Resource::FromHost}) one.slope[link] = 1;
    for (size_t r = 0; r < kResources; ++r) one.value += one.slope.ns[r] * weights_.ns[r];
    if (one.value > result.value) result = one;
  }

  Norm result;

 private:
  const Work& weights_;
};

}  // namespace

Norm norm(const Work& weights, const Limits& limits, Weighing weighing) {
  using enum Resource;
  Largest largest(weights);
  if (weighing == Weighing::LinksInContention || !limits.one_queue) {
    for (const Resource kernels : {Compute, Update}) {
      largest.add({}, 1 / limits.collective, {{kernels, 1 / limits.compute}});
      largest.add({kernels}, 0);
    }
    largest.add({Head}, 1);
    return largest.result;
  }
  for (const Resource stream : {Queue, Refresh}) {
    for (const Resource one : {Compute, Head}) largest.add({one, stream, HostQueue}, 0);
    if (!limits.has_barrier) largest.add({Update, stream, HostQueue}, 0);
  }
  for (const Resource kernels : {Compute, Update}) largest.add({kernels, Refresh}, 0);
  return largest.result;
}

}  // namespace dc::bound
