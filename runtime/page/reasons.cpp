#include "runtime/page/reasons.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace dc::runtime {
namespace {

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
}

// Tensors are also called "sum" and "view", as words of a sentence are.
bool is_name(std::string_view word) {
  return std::any_of(word.begin(), word.end(), [](char c) {
    return c == '.' || c == '_' || std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
}

}  // namespace

Reasons::Reasons(const plan::Plan& plan) : plan_(plan) {
  for (size_t r = 0; r < plan.remarks.size(); ++r) {
    const std::string& text = plan.remarks[r];
    for (size_t i = 0; i < text.size();) {
      size_t end = i;
      while (end < text.size() && in_word(text[end])) ++end;
      size_t last = end;  // a full stop ends a sentence
      while (last > i && text[last - 1] == '.') --last;
      if (is_name(std::string_view(text).substr(i, last - i))) {
        std::vector<size_t>& list = by_word_[text.substr(i, last - i)];
        if (list.empty() || list.back() != r) list.push_back(r);
      }
      i = end + 1;
    }
  }
}

std::vector<size_t> Reasons::of(const plan::Instruction& instruction) const {
  std::vector<size_t> found;
  const auto look_up = [&](const std::string& word) {
    const auto at = by_word_.find(word);
    if (at != by_word_.end()) found.insert(found.end(), at->second.begin(), at->second.end());
  };
  if (by_word_.empty()) return found;
  if (!instruction.module.empty()) look_up(instruction.module);
  for (const auto* list : {&instruction.reads, &instruction.writes}) {
    for (const int32_t id : *list) {
      const std::string& name = plan_.tensors[static_cast<size_t>(id)].name;
      look_up(name);
      const size_t dot = name.find('.');
      if (dot != std::string::npos) look_up(name.substr(dot + 1));
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace dc::runtime
