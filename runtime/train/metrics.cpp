#include "runtime/train/metrics.h"

#include <cerrno>
#include <cstring>

#include "src/base/json_writer.h"

namespace dc::runtime {
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
  json.field("sums_in_rank_order", facts.sums_in_rank_order);
  json.field("arena_bytes", facts.arena_bytes);
  json.field("host_bytes", facts.host_bytes).field("disk_bytes", facts.disk_bytes);
  json.key("providers").begin_object();
  json.field("aten", facts.providers.aten).field("native", facts.providers.native);
  json.field("collectives", facts.providers.collectives).field("copies", facts.providers.copies);
  json.end_object();
  json.field("repairs", facts.providers.repairs);
  json.field("weights", facts.weights).field("data", facts.data);
  json.end_object();
}

void write_step(JsonWriter& json, const StepFacts& facts) {
  json.begin_object();
  json.field("step", facts.step).field("epoch", facts.epoch).field("loss", facts.loss);
  json.field("grad_norm", facts.grad_norm).field("lr", facts.lr).field("tokens", facts.tokens);
  json.field("step_ms", facts.step_ms);
  json.field("collective_ms", facts.collective_ms).field("exposed_ms", facts.exposed_ms);
  json.key("wire_bytes").begin_object();
  json.field("all_gather", facts.wire.all_gather);
  json.field("reduce_scatter", facts.wire.reduce_scatter);
  json.field("all_reduce", facts.wire.all_reduce);
  json.end_object();
  json.end_object();
}

}  // namespace

Result<std::unique_ptr<Metrics>> Metrics::create(const std::string& path, const RunFacts& facts) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (!file) {
    return Status(ErrorKind::CannotWrite, "DC6511",
                  path + ": metrics cannot be written here (" + std::strerror(errno) + ")");
  }
  std::unique_ptr<Metrics> metrics(new Metrics(file, path));
  write_header(metrics->line_, facts);
  DC_RETURN_IF_ERROR(metrics->write_line());
  return metrics;
}

Metrics::~Metrics() { std::fclose(file_); }

Status Metrics::add(const StepFacts& facts) {
  line_.clear();
  write_step(line_, facts);
  return write_line();
}

Status Metrics::write_line() {
  const std::string& line = line_.text();
  const bool written = std::fwrite(line.data(), 1, line.size(), file_) == line.size() &&
                       std::fputc('\n', file_) != EOF && std::fflush(file_) == 0;
  if (written) return base::ok_status();
  return Status(ErrorKind::Io, "DC6512",
                path_ + ": the metrics of a step cannot be written (" + std::strerror(errno) +
                    "); choose another place");
}

}  // namespace dc::runtime
