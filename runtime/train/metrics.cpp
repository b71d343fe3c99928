#include "runtime/train/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/json_writer.h"

namespace dc::runtime::train {
namespace {

using base::ErrorKind;
using base::JsonWriter;
using base::Result;
using base::Status;

void write_header(JsonWriter& json, const RunFacts& facts) {
  json.begin_object();
  json.field("schema", "dcrun-metrics/1");
  json.field("plan", facts.plan_digest).field("name", facts.plan_name).field("chain", facts.chain);
  json.field("world", facts.world).field("threads", facts.threads);
  json.field("accumulation", facts.accumulation);
  json.field("launcher", facts.launcher).field("communicator", facts.communicator);
  json.field("sums_in_rank_order", facts.sums_in_rank_order).field("hosts", facts.hosts);
  for (const base::Space space : base::kSpaces) {
    const bool device = space == base::Space::Device;
    json.field((device ? "arena" : std::string(base::name(space))) + "_bytes",
               facts.arena_bytes[space]);
  }
  json.field("save_bytes", facts.save_bytes);
  json.key("providers").begin_object();
  json.field("aten", facts.providers.aten).field("native", facts.providers.native);
  json.field("fused", facts.providers.fused);
  json.field("collectives", facts.providers.collectives).field("copies", facts.providers.copies);
  json.end_object();
  json.field("repairs", facts.providers.repairs);
  json.field("weights", facts.weights).field("data", facts.data).field("save", facts.save);
  json.key("start").begin_object();
  json.field("files_ms", facts.start.files_ms).field("memory_ms", facts.start.memory_ms);
  json.field("kernels_ms", facts.start.kernels_ms).field("weights_ms", facts.start.weights_ms);
  json.end_object();
  json.end_object();
}

void write_wire(JsonWriter& json, const comm::Traffic& wire, bool several_hosts) {
  json.key("wire_bytes").begin_object();
  json.field("all_gather", wire.all_gather);
  json.field("reduce_scatter", wire.reduce_scatter);
  json.field("all_reduce", wire.all_reduce);
  json.end_object();
  if (several_hosts) json.field("across_hosts_bytes", wire.across_hosts);
}

void write_step(JsonWriter& json, const StepFacts& facts, bool several_hosts) {
  json.begin_object();
  json.field("step", facts.step).field("epoch", facts.epoch).field("loss", facts.loss);
  json.field("grad_norm", facts.grad_norm).field("lr", facts.lr).field("tokens", facts.tokens);
  json.field("step_ms", facts.step_ms);
  if (facts.host_ms) json.field("host_ms", *facts.host_ms);
  json.field("collective_ms", facts.collective_ms).field("exposed_ms", facts.exposed_ms);
  write_wire(json, facts.wire, several_hosts);
  json.end_object();
}

void write_evaluation(JsonWriter& json, const EvaluationFacts& facts, bool several_hosts) {
  json.begin_object();
  json.field("step", facts.step).field("eval_loss", facts.loss);
  json.field("eval_samples", facts.samples).field("eval_ms", facts.ms);
  json.field("collective_ms", facts.collective_ms).field("exposed_ms", facts.exposed_ms);
  write_wire(json, facts.wire, several_hosts);
  json.end_object();
}

void write_hosts(JsonWriter& json, const AcrossHosts& sent) {
  json.begin_object();
  json.field("step", sent.step).field("steps", sent.steps);
  json.key("hosts").begin_array();
  for (const AcrossHosts::Host& host : sent.hosts) {
    json.begin_object().field("first_rank", host.first_rank).field("ranks", host.ranks);
    json.field("across_hosts_bytes", host.bytes).end_object();
  }
  json.end_array().end_object();
}

// Whether the text begins with a row of one of the first `steps` steps.
bool begins_with_row(std::string_view text, int64_t steps) {
  constexpr std::string_view kRow = R"({"step":)";
  int64_t step = 0;
  return text.starts_with(kRow) &&
         std::from_chars(text.data() + kRow.size(), text.data() + text.size(), step).ec ==
             std::errc() &&
         step <= steps;
}

// Bytes of the header and of the rows up to `steps`; a last line that was cut short does not count,
// and behind the last row nothing is read. Empty if the text does not begin with a header of
// metrics.
std::optional<int64_t> kept_bytes(std::string_view text, int64_t steps) {
  constexpr std::string_view kHeader = R"({"schema":"dcrun-metrics/)";
  if (!text.starts_with(kHeader)) return std::nullopt;
  size_t end = 0;
  while (end == 0 || begins_with_row(text.substr(end), steps)) {
    const size_t next = text.find('\n', end);
    if (next == std::string_view::npos) break;
    end = next + 1;
  }
  return static_cast<int64_t>(end);
}

// Whether the header says that its run was to save there.
bool saves_to(std::string_view text, const std::string& save) {
  const auto header = base::parse_json_value(text.substr(0, text.find('\n')), "metrics");
  const base::JsonValue* said = header.ok() ? header->find("save") : nullptr;
  std::string wanted;
  base::append_json_string(wanted, save);
  return said != nullptr && said->dump() == wanted;
}

}  // namespace

Result<std::unique_ptr<Metrics>> Metrics::go_on(const std::string& path, int64_t steps,
                                                const std::string& save, bool overwrite) {
  DC_ASSIGN_OR_RETURN(auto metrics, open(path, true));  // which no other run shortens then
  struct stat info {};
  if (fstat(metrics->claim_.descriptor(), &info) != 0 || !S_ISREG(info.st_mode)) return metrics;
  // Read through a mapping: that of a long run may be larger than the memory.
  DC_ASSIGN_OR_RETURN(const base::MappedFile file, base::MappedFile::open(path));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  const std::optional<int64_t> bytes = kept_bytes(text, steps);
  const bool of_another = steps == 0 && !overwrite && !saves_to(text, save);
  if (!text.empty() && (!bytes || of_another)) return refuse_to_replace(path, "--metrics");
  metrics->kept_bytes_ = steps > 0 ? bytes.value_or(0) : 0;
  return metrics;
}

Result<std::unique_ptr<Metrics>> Metrics::open(const std::string& path, bool overwrite) {
  const bool is_new = access(path.c_str(), F_OK) != 0;
  if (!overwrite) DC_RETURN_IF_ERROR(refuse_to_replace(path, "--metrics"));
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    return Status(ErrorKind::CannotWrite, "DC6511",
                  path + ": metrics cannot be written here (" + std::strerror(errno) +
                      "); choose another place");
  }
  DC_ASSIGN_OR_RETURN(Claim claim, Claim::file(descriptor, path));
  // Another run may have written it and ended since the first look.
  if (!overwrite) DC_RETURN_IF_ERROR(refuse_to_replace(path, "--metrics"));
  return std::unique_ptr<Metrics>(new Metrics(std::move(claim), path, is_new));
}

Metrics::~Metrics() {
  if (is_new_) unlink(path_.c_str());
}

Status Metrics::begin(const RunFacts& facts) {
  struct stat info {};
  if (fstat(claim_.descriptor(), &info) == 0 && S_ISREG(info.st_mode) &&
      ftruncate(claim_.descriptor(), kept_bytes_) != 0) {
    return failed();
  }
  is_new_ = false;
  several_hosts_ = facts.hosts > 1;
  if (kept_bytes_ > 0) return base::ok_status();
  line_.clear();
  write_header(line_, facts);
  return write_line();
}

Status Metrics::add(const StepFacts& facts) {
  line_.clear();
  write_step(line_, facts, several_hosts_);
  return write_line();
}

Status Metrics::add(const EvaluationFacts& facts) {
  line_.clear();
  write_evaluation(line_, facts, several_hosts_);
  return write_line();
}

Status Metrics::add(const AcrossHosts& sent) {
  line_.clear();
  write_hosts(line_, sent);
  return write_line();
}

Status Metrics::write_line() {
  // The line and its end in one call, so that a reader never sees half of it.
  constexpr char kEnd = '\n';
  const std::string& text = line_.text();
  std::array<iovec, 2> parts = {iovec{const_cast<char*>(text.data()), text.size()},
                                iovec{const_cast<char*>(&kEnd), 1}};
  size_t left = text.size() + 1;
  while (left > 0) {
    const ssize_t written = writev(claim_.descriptor(), parts.data(), parts.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failed();
    left -= static_cast<size_t>(written);
    for (size_t i = 0, skip = static_cast<size_t>(written); i < parts.size(); ++i) {
      const size_t part = std::min(skip, parts[i].iov_len);
      parts[i].iov_base = static_cast<char*>(parts[i].iov_base) + part;
      parts[i].iov_len -= part;
      skip -= part;
    }
  }
  return base::ok_status();
}

Status Metrics::failed() const {
  return Status(ErrorKind::Io, "DC6512",
                path_ + ": the metrics of a step cannot be written (" + std::strerror(errno) +
                    "); choose another place");
}

}  // namespace dc::runtime::train
