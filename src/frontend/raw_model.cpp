#include "src/frontend/raw_model.h"

namespace dc::frontend {

Name Names::intern(std::string_view text) {
  const auto found = numbers_.find(text);
  if (found != numbers_.end()) return found->second;
  const Name name = static_cast<Name>(texts_.size());
  texts_.emplace_back(text);
  numbers_.emplace(texts_.back(), name);
  return name;
}

}  // namespace dc::frontend
