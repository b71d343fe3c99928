// A remark: what a pass or the search decided, as data, and as a sentence for people. Passes make
// them, the plan carries them; programs read the code, the subjects and the numbers, never the
// text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dc::base {

enum class SubjectKind : uint8_t {
  Parameter,   // id: index into the step's, and the plan's, parameters
  Collective,  // id: 0 all-gather, 1 reduce-scatter, 2 all-reduce; all of that kind
};
struct RemarkSubject {
  SubjectKind kind = SubjectKind::Parameter;
  int32_t id = 0;
  bool operator==(const RemarkSubject&) const = default;
};

// The name says the unit: "..._ns", "..._bytes"; others are counts.
struct RemarkNumber {
  std::string name;
  int64_t value = 0;
  bool operator==(const RemarkNumber&) const = default;
};

struct Remark {
  std::string pass;  // as in a chain; "auto": the search
  std::string code;  // what kind of decision it is, in kebab-case; one meaning each
  std::vector<RemarkSubject> subjects{};
  std::vector<RemarkNumber> numbers{};
  std::string text{};  // one sentence without the pass's name

  bool operator==(const Remark&) const = default;
  std::optional<int64_t> number(std::string_view name) const;
};

std::string_view name(SubjectKind kind);  // "parameter"
// "gathers-moved of collective 0: moved=3 exposed_before_ns=450000": all but pass and text.
std::string describe_facts(const Remark& remark);

}  // namespace dc::base
