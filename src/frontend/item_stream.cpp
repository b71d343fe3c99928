#include "src/frontend/item_stream.h"

#include <algorithm>

namespace dc::frontend {

void ItemStream::expect(std::string_view path, int id) {
  int at = 0;
  while (!path.empty()) {
    const size_t slash = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, slash);
    path.remove_prefix(std::min(slash + 1, path.size()));
    int found = -1;
    for (const int next : steps_[static_cast<size_t>(at)].next) {
      if (steps_[static_cast<size_t>(next)].part == part) found = next;
    }
    if (found < 0) {
      found = static_cast<int>(steps_.size());
      steps_.push_back(Step{std::string(part), -1, {}});
      steps_[static_cast<size_t>(at)].next.push_back(found);
    }
    at = found;
  }
  steps_[static_cast<size_t>(at)].id = id;
}

// Index into steps_, the tree of expected paths, of the value that begins now: an object member
// with key `part`, or an array element. kSkip if no expected path leads to it.
int ItemStream::descend(std::string_view part) const {
  if (stack_.empty()) return 0;
  for (const int next : steps_[static_cast<size_t>(stack_.back())].next) {
    const std::string& wanted = steps_[static_cast<size_t>(next)].part;
    if (wanted == "*" || wanted == part) return next;
  }
  return kSkip;
}

template <typename Put>
bool ItemStream::scalar(Put put) {
  if (recorded_ > 0) {
    put();
    return true;
  }
  if (skipped_ > 0) return true;
  const int step = descend(!in_object_.empty() && in_object_.back() ? key_ : "");
  if (step == kSkip || steps_[static_cast<size_t>(step)].id < 0) return true;
  tape_.clear();
  put();
  return item(steps_[static_cast<size_t>(step)].id, key_, tape_.root());
}

bool ItemStream::null() {
  return scalar([this] { tape_.add(TokenKind::Null); });
}
bool ItemStream::boolean(bool value) {
  return scalar([this, value] { tape_.add(TokenKind::Bool, value); });
}
bool ItemStream::integer(int64_t value) {
  return scalar([this, value] { tape_.add(TokenKind::Integer, value); });
}
bool ItemStream::real(double value) {
  return scalar([this, value] { tape_.add(TokenKind::Real, 0, value); });
}
bool ItemStream::string(std::string_view value) {
  return scalar([this, value] { tape_.add_text(value); });
}

bool ItemStream::key(std::string_view value) {
  if (recorded_ > 0) {
    tape_.add_text(value);
  } else if (skipped_ == 0) {
    key_ = value;
  }
  return true;
}

bool ItemStream::open(TokenKind kind) {
  if (recorded_ > 0) {
    ++recorded_;
    tape_.open(kind);
    return true;
  }
  if (skipped_ > 0) {
    ++skipped_;
    return true;
  }
  const int step = descend(!in_object_.empty() && in_object_.back() ? key_ : "");
  if (step == kSkip) {
    skipped_ = 1;
    return true;
  }
  if (steps_[static_cast<size_t>(step)].id >= 0) {
    item_id_ = steps_[static_cast<size_t>(step)].id;
    item_key_ = key_;
    tape_.clear();
    tape_.open(kind);
    recorded_ = 1;
    return true;
  }
  stack_.push_back(step);
  in_object_.push_back(kind == TokenKind::Object);
  return true;
}

bool ItemStream::close() {
  if (recorded_ > 0) {
    tape_.close();
    if (--recorded_ > 0) return true;
    return item(item_id_, item_key_, tape_.root());
  }
  if (skipped_ > 0) {
    --skipped_;
    return true;
  }
  stack_.pop_back();
  in_object_.pop_back();
  return true;
}

bool ItemStream::begin_object() { return open(TokenKind::Object); }
bool ItemStream::end_object() { return close(); }
bool ItemStream::begin_array() { return open(TokenKind::Array); }
bool ItemStream::end_array() { return close(); }

}  // namespace dc::frontend
