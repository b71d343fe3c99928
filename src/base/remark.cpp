#include "src/base/remark.h"

#include "src/base/enum_names.h"

namespace dc::base {

std::optional<int64_t> Remark::number(std::string_view name) const {
  for (const RemarkNumber& number : numbers) {
    if (number.name == name) return number.value;
  }
  return std::nullopt;
}

std::string_view name(SubjectKind kind) {
  static constexpr auto kNames = enum_names<SubjectKind>({"parameter", "collective"});
  return kNames[static_cast<size_t>(kind)];
}

std::string describe_facts(const Remark& remark) {
  std::string out = remark.code;
  for (size_t i = 0; i < remark.subjects.size(); ++i) {
    const RemarkSubject& subject = remark.subjects[i];
    const bool again = i > 0 && remark.subjects[i - 1].kind == subject.kind;
    out += i == 0 ? " of " : ",";
    if (!again) out += std::string(name(subject.kind)) + " ";
    out += std::to_string(subject.id);
  }
  for (size_t i = 0; i < remark.numbers.size(); ++i) {
    const RemarkNumber& number = remark.numbers[i];
    out += (i == 0 ? ": " : " ") + number.name + "=" + std::to_string(number.value);
  }
  return out;
}

}  // namespace dc::base
