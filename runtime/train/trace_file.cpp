#include "runtime/train/trace_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "runtime/comm/agreement.h"
#include "src/base/json_writer.h"

namespace dc::runtime::train {
namespace {

using base::ErrorKind;
using base::Status;

std::string part_path(const std::string& path, int rank) {
  return path + ".rank" + std::to_string(rank);
}

Status failed(ErrorKind kind, const std::string& path) {
  return Status(kind, "DC6531", path + ": " + std::strerror(errno));
}

Status write_part(const std::string& path, const exec::TraceRecorder& trace, int rank) {
  const std::string part = part_path(path, rank);
  std::FILE* file = std::fopen(part.c_str(), "we");
  if (!file) return failed(ErrorKind::CannotWrite, part);
  Status status = trace.write_events(file, rank == 0);
  if (std::fclose(file) != 0 && status.ok()) status = failed(ErrorKind::Io, part);
  return status;
}

Status append(std::FILE* to, const std::string& part) {
  std::FILE* from = std::fopen(part.c_str(), "re");
  if (!from) return failed(ErrorKind::Io, part);
  std::vector<char> chunk(1 << 16);
  size_t count = 0;
  bool good = true;
  while (good && (count = std::fread(chunk.data(), 1, chunk.size(), from)) > 0) {
    good = std::fwrite(chunk.data(), 1, count, to) == count;
  }
  good = good && !std::ferror(from);
  std::fclose(from);
  return good ? base::ok_status() : failed(ErrorKind::Io, part);
}

Status join(const std::string& path, const exec::TraceRecorder& trace, const TraceFacts& facts,
            int ranks) {
  const std::string temporary = path + ".partial";
  std::FILE* file = std::fopen(temporary.c_str(), "we");
  if (!file) return failed(ErrorKind::CannotWrite, temporary);
  base::JsonWriter about;
  about.begin_object().field("schema", exec::kTraceSchema);
  about.field("plan", facts.plan_digest).field("name", facts.plan_name);
  about.field("communicator", facts.communicator).field("ranks", ranks);
  about.field("dropped_records_of_rank_0", trace.dropped()).end_object();
  std::fprintf(file, "{\"displayTimeUnit\":\"ms\",\"otherData\":%s,\"traceEvents\":[\n",
               about.text().c_str());
  Status status;
  for (int rank = 0; rank < ranks && status.ok(); ++rank) {
    status = append(file, part_path(path, rank));
  }
  std::fputs("\n]}\n", file);
  if (std::fclose(file) != 0 && status.ok()) status = failed(ErrorKind::Io, temporary);
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) {
    status = failed(ErrorKind::CannotWrite, path);
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

}  // namespace

Status save_trace(const std::string& path, const exec::TraceRecorder& trace,
                  const TraceFacts& facts, comm::Communicator& control) {
  const int rank = control.rank().v;
  Status status = comm::agree(control, write_part(path, trace, rank), "writing its trace");
  if (status.ok()) {
    status = comm::agree(control, rank == 0 ? join(path, trace, facts, control.size()) : Status(),
                         "joining the traces");
  }
  unlink(part_path(path, rank).c_str());
  return status;
}

}  // namespace dc::runtime::train
