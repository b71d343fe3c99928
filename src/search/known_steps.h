// KnownSteps: steps that chains made on their way, the latest used of them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "src/ir/step.h"

namespace dc::search {

using SharedStep = std::shared_ptr<const ir::Step>;

// Of all programs.
int64_t node_count(const ir::Step& step);
// A large one alone takes hundreds of megabytes.
inline constexpr int64_t kLarge = 60'000;  // nodes

class KnownSteps {
 public:
  // Null if it is not known.
  SharedStep find(const std::string& key);
  // Forgets those that were not used for longest, where all have too many nodes together.
  void keep(const std::string& key, const SharedStep& step);

 private:
  struct Known {
    SharedStep step;
    int64_t nodes = 0, used = 0;  // the latter: when, by the clock
  };

  std::map<std::string, Known> known_;
  int64_t nodes_ = 0, clock_ = 0;
};

}  // namespace dc::search
