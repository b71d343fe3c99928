#include "src/fusion/timeline.h"

#include <cmath>
#include <queue>
#include <tuple>

namespace dc::fusion {
namespace {

using base::Nanos;

// Successors of every group, and how many each waits for, in flat lists.
class Waiting {
 public:
  explicit Waiting(const Draft& draft) : waits_(draft.groups().size()) {
    const auto groups = draft.groups();
    first_.reserve(groups.size() + 1);
    for (size_t i = 0; i < groups.size(); ++i) {
      first_.push_back(after_.size());
      if (groups[i] == nullptr) continue;
      draft.each_successor(static_cast<int32_t>(i), [this](int32_t to) {
        after_.push_back(to);
        ++waits_[static_cast<size_t>(to)];
      });
    }
    first_.push_back(after_.size());
  }
  bool waits(size_t group) const { return waits_[group] > 0; }
  // Adds what need not wait any more.
  void end(size_t group, std::vector<int32_t>& ready) {
    for (size_t i = first_[group]; i < first_[group + 1]; ++i) {
      if (--waits_[static_cast<size_t>(after_[i])] == 0) ready.push_back(after_[i]);
    }
  }

 private:
  std::vector<size_t> first_;
  std::vector<int32_t> after_, waits_;
};

class Player {
 public:
  Player(const Draft& draft, Order order, Moments* moments)
      : draft_(draft), order_(order), moments_(moments), waiting_(draft) {
    end_.resize(draft.groups().size());
    if (moments_ != nullptr) moments_->begin.assign(end_.size(), {});
  }

  Nanos compute() {
    std::vector<int32_t> ready;
    for (size_t i = 0; i < end_.size(); ++i) {
      if (draft_.groups()[i] != nullptr && !waiting_.waits(i))
        ready.push_back(static_cast<int32_t>(i));
    }
    Nanos now;
    int64_t round = 0;
    while (true) {
      for (const int32_t group : ready) queue_.emplace(key(group, round), group);
      ready.clear();
      ++round;
      if (queue_.empty()) break;
      const int32_t group = std::get<1>(queue_.top());
      queue_.pop();
      if (moments_ != nullptr) {
        moments_->begin[static_cast<size_t>(group)] = now;
        moments_->order.push_back(group);
      }
      now += draft_.groups()[static_cast<size_t>(group)]->time;
      end_[static_cast<size_t>(group)] = now;
      waiting_.end(static_cast<size_t>(group), ready);
    }
    return now;
  }

  Nanos end(int32_t kernel) const { return end_[static_cast<size_t>(draft_.owner(kernel))]; }
  std::vector<Nanos> take_ends() { return std::move(end_); }

 private:
  using Key = std::pair<int64_t, int32_t>;
  Key key(int32_t number, int64_t round) const {
    const Group& group = *draft_.groups()[static_cast<size_t>(number)];
    if (order_ == Order::FirstReady) return {round, group.own.front()};
    return {group.members.back(), group.own.front()};
  }

  const Draft& draft_;
  Order order_;
  Moments* moments_;
  Waiting waiting_;
  std::priority_queue<std::pair<Key, int32_t>, std::vector<std::pair<Key, int32_t>>, std::greater<>>
      queue_;
  std::vector<Nanos> end_;  // by group
};

}  // namespace

Nanos LinearTime::time(base::Bytes bytes) const {
  return {std::llround(ns_per_byte * static_cast<double>(bytes.v) + ns)};
}

LinearTime fit_line(std::span<const SizeTime> points) {
  if (points.empty()) return {};
  double x = 0, y = 0;
  const auto count = static_cast<double>(points.size());
  for (const SizeTime& point : points) {
    x += static_cast<double>(point.bytes.v) / count;
    y += static_cast<double>(point.time.v) / count;
  }
  double square = 0, product = 0;
  for (const SizeTime& point : points) {
    const double dx = static_cast<double>(point.bytes.v) - x;
    square += dx * dx;
    product += dx * (static_cast<double>(point.time.v) - y);
  }
  if (square == 0 || product <= 0) return {0, y};
  const double slope = product / square;
  if (y >= slope * x) return {slope, y - slope * x};
  return {y / x, 0};
}

Timeline play(const Draft& draft, const LinearTime& collective, Order order, Moments* moments) {
  const std::vector<Reduction>& reductions = draft.problem().reductions;
  if (moments != nullptr) *moments = {};
  Player player(draft, order, moments);
  Timeline result;
  result.compute = player.compute();
  struct Bucket {
    Nanos ready;
    base::Bytes bytes;
    Nanos started, ended;
  };
  std::vector<Bucket> buckets(reductions.size());
  std::vector<int32_t> queue;
  for (size_t i = 0; i < reductions.size(); ++i) {
    const int32_t number = draft.bucket(static_cast<int32_t>(i));
    if (number == static_cast<int32_t>(i)) queue.push_back(number);
    Nanos produced;
    for (const int32_t kernel : reductions[i].after)
      produced = std::max(produced, player.end(kernel));
    Bucket& bucket = buckets[static_cast<size_t>(number)];
    bucket.ready = std::max(bucket.ready, produced);
    bucket.bytes += reductions[i].bytes;
    if (moments != nullptr) moments->produced.push_back(produced);
  }
  std::ranges::stable_sort(
      queue, {}, [&](int32_t number) { return buckets[static_cast<size_t>(number)].ready; });
  Nanos free;
  for (const int32_t number : queue) {
    Bucket& bucket = buckets[static_cast<size_t>(number)];
    const Nanos time = collective.time(bucket.bytes);
    bucket.started = std::max(free, bucket.ready);
    free = bucket.ended = bucket.started + time;
    result.communication += time;
  }
  result.time = std::max(result.compute, free);
  if (moments != nullptr) {
    moments->end = player.take_ends();
    for (size_t i = 0; i < reductions.size(); ++i) {
      const Bucket& bucket = buckets[static_cast<size_t>(draft.bucket(static_cast<int32_t>(i)))];
      moments->started.push_back(bucket.started);
      moments->ended.push_back(bucket.ended);
    }
  }
  return result;
}

}  // namespace dc::fusion
