#include "src/frontend/shared_records.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "src/base/shape.h"

namespace dc::frontend {
namespace {

using base::ErrorKind;
using base::Status;

// Bytes of an entry that a tensor reaches.
struct Span {
  std::string entry;
  int64_t begin = 0, end = 0;
  std::string fqn;
  bool trained = false;
};

std::string canonical(const std::map<std::string, std::string>& ties, const std::string& fqn) {
  const auto tie = ties.find(fqn);
  return tie == ties.end() ? fqn : tie->second;
}

std::vector<Span> spans_of(const RawModel& model, const std::map<std::string, std::string>& ties,
                           const Weights& weights) {
  std::set<std::string> trained;
  for (const RawOutput& output : model.outputs) {
    if (output.kind == RawOutputKind::ParameterGradient && output.value != 0)
      trained.insert(canonical(ties, model.names.text(output.target)));
  }
  std::vector<Span> spans;
  for (const RawInput& input : model.inputs) {
    const bool is_state = input.kind == RawInputKind::Parameter ||
                          input.kind == RawInputKind::Buffer ||
                          input.kind == RawInputKind::Constant;
    const std::string& fqn = model.names.text(input.target);
    if (!is_state || ties.contains(fqn)) continue;
    const ir::ArchiveRecord record = weights.find(fqn);
    if (record.entry.empty()) continue;
    const int64_t element = base::byte_size(record.dtype);
    const int64_t begin = record.offset * element;
    const int64_t bytes = base::extent(record.shape, record.strides) * element;
    if (bytes > 0)
      spans.push_back({record.entry, begin, begin + bytes, fqn, trained.contains(fqn)});
  }
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::tie(a.entry, a.begin, a.end, a.fqn) < std::tie(b.entry, b.begin, b.end, b.fqn);
  });
  return spans;
}

}  // namespace

Status check_shared_records(const RawModel& model, const std::map<std::string, std::string>& ties,
                            const Weights& weights) {
  const std::vector<Span> spans = spans_of(model, ties, weights);
  // Those of the entry that reach farthest, of all and of the trained ones.
  const Span *farthest = nullptr, *trained = nullptr;
  for (const Span& span : spans) {
    if (farthest != nullptr && farthest->entry != span.entry) farthest = trained = nullptr;
    const Span* before = span.trained ? farthest : trained;
    if (before != nullptr && before->end > span.begin) {
      const Span& parameter = span.trained ? span : *before;
      const Span& other = span.trained ? *before : span;
      return Status(ErrorKind::BadInput, "DC2057",
                    other.fqn + " lies in the memory of parameter " + parameter.fqn +
                        ", whose updates it would follow in PyTorch; read the parameter itself in "
                        "forward, or give " +
                        other.fqn + " its own values with .clone(), and export again");
    }
    if (farthest == nullptr || span.end > farthest->end) farthest = &span;
    if (span.trained && (trained == nullptr || span.end > trained->end)) trained = &span;
  }
  return base::ok_status();
}

}  // namespace dc::frontend
