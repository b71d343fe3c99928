#include "runtime/exec/trace_reader.h"

#include <cmath>
#include <limits>
#include <map>

#include "src/base/file.h"
#include "src/base/json_events.h"

namespace dc::runtime::exec {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

constexpr size_t kMaxTraceBytes = size_t{8} << 30;
constexpr double kLatest = 1e15;  // microseconds; 30 years

// The members of one event that are looked at; those that were not there stay as they are.
struct RawEvent {
  std::string phase, program;
  double ts = -1, dur = -1;
  int64_t pid = -1, tid = -1, step = -1, run = -1, index = -1;
};

// Follows the document as it is parsed: {"otherData":{...},"traceEvents":[{...,"args":{...}},...]}.
class TraceParser final : public base::JsonEvents {
 public:
  TraceParser(const plan::Plan& plan, TraceFile& trace) : plan_(plan), trace_(trace) {
    for (size_t p = 0; p < plan.programs.size(); ++p) {
      programs_[plan.programs[p].name] = static_cast<int32_t>(p);
    }
  }
  std::string schema, plan_digest;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool integer(int64_t value) override { return number(static_cast<double>(value), value); }
  bool real(double value) override { return number(value, -1); }
  bool string(std::string_view value) override {
    if (in_head()) {
      if (key_ == "schema") schema = value;
      if (key_ == "plan") plan_digest = value;
      if (key_ == "communicator") trace_.communicator = value;
    }
    if (in_event() && key_ == "ph") event_.phase = value;
    if (in_args() && key_ == "program") event_.program = value;
    return true;
  }
  bool key(std::string_view value) override {
    key_ = value;
    return true;
  }
  bool begin_object() override {
    open();
    if (in_event()) event_ = RawEvent();
    return true;
  }
  bool end_object() override {
    const bool ended = in_event();
    path_.pop_back();
    return !ended || event_.phase != "X" || add();
  }
  bool begin_array() override {
    open();
    return true;
  }
  bool end_array() override {
    path_.pop_back();
    return true;
  }

 private:
  void open() {
    path_.push_back(key_);
    key_.clear();  // elements of an array have no key
  }
  bool in_head() const { return path_.size() == 2 && path_[1] == "otherData"; }
  bool in_event() const { return path_.size() == 3 && path_[1] == "traceEvents"; }
  bool in_args() const {
    return path_.size() == 4 && path_[1] == "traceEvents" && path_[3] == "args";
  }
  bool number(double value, int64_t whole) {
    if (in_head() && key_ == "ranks") {
      trace_.ranks = static_cast<int32_t>(std::min<int64_t>(whole, plan_.world()));
    }
    if (in_event()) {
      if (key_ == "pid") event_.pid = whole;
      if (key_ == "tid") event_.tid = whole;
      if (key_ == "ts") event_.ts = value;
      if (key_ == "dur") event_.dur = value;
    }
    if (in_args()) {
      if (key_ == "step") event_.step = whole;
      if (key_ == "run") event_.run = whole;
      if (key_ == "index") event_.index = whole;
    }
    return true;
  }
  bool add() {
    const auto program = programs_.find(event_.program);
    const bool known =
        program != programs_.end() && event_.pid >= 0 && event_.pid < plan_.world() &&
        event_.tid >= 0 && event_.tid < static_cast<int64_t>(plan_.streams.size()) &&
        event_.index >= 0 &&
        event_.index <
            static_cast<int64_t>(
                plan_.programs[static_cast<size_t>(program->second)].instructions.size());
    const bool sane = event_.ts >= 0 && event_.ts < kLatest && event_.dur >= 0 &&
                      event_.dur < kLatest && event_.step >= 0 &&
                      event_.step <= std::numeric_limits<int32_t>::max() && event_.run >= 0 &&
                      event_.run <= std::numeric_limits<int32_t>::max();
    if (!known || !sane) {
      problem = "it has an event that this plan cannot have made";
      return false;
    }
    TraceEvent& event = trace_.events.emplace_back();
    event.rank = static_cast<int32_t>(event_.pid);
    event.stream = static_cast<int32_t>(event_.tid);
    event.step = static_cast<int32_t>(event_.step);
    event.run = static_cast<int32_t>(event_.run);
    event.program = program->second;
    event.instruction = static_cast<int32_t>(event_.index);
    event.begin_ns = std::llround(event_.ts * 1000.0);
    event.end_ns = event.begin_ns + std::llround(event_.dur * 1000.0);
    return true;
  }

  const plan::Plan& plan_;
  TraceFile& trace_;
  std::map<std::string, int32_t> programs_;  // by name
  std::vector<std::string> path_;            // keys of the open objects and arrays
  std::string key_;
  RawEvent event_;
};

}  // namespace

Result<TraceFile> read_trace(const std::string& path, const plan::Loaded& loaded) {
  DC_ASSIGN_OR_RETURN(const base::MappedFile file, base::MappedFile::open(path));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  TraceFile trace;
  TraceParser parser(loaded.plan, trace);
  const Status parsed = base::parse_json(text, path, parser, {kMaxTraceBytes, 100});
  constexpr const char* kCure = "; record one with dcrun --trace";
  // A trace of another plan may hold events that this one cannot have made: the digest comes first.
  if (parser.schema == kTraceSchema && parser.plan_digest != loaded.digest) {
    return Status(ErrorKind::Mismatch, "DC6623",
                  path + " is a trace of plan " + parser.plan_digest.substr(0, 12) +
                      ", and this is plan " + loaded.digest.substr(0, 12) + kCure);
  }
  if (!parsed.ok()) {
    return Status(parsed.kind(), "DC6622", path + ": " + parsed.sentence() + kCure);
  }
  if (parser.schema != kTraceSchema) {
    return Status(ErrorKind::BadInput, "DC6622",
                  path + " is not a trace that this version of dcrun wrote" + kCure);
  }
  return trace;
}

}  // namespace dc::runtime::exec
