#include "runtime/train/trace_file.h"

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "runtime/comm/agreement.h"
#include "src/base/file.h"
#include "src/base/json_writer.h"

namespace dc::runtime::train {
namespace {

using base::ErrorKind;
using base::Status;

Status failed(const std::string& path) {
  return Status(ErrorKind::Io, "DC6531",
                "the trace " + path + " cannot be written: " + std::strerror(errno) +
                    "; what --save wrote is not affected; make room there or give --trace another "
                    "place");
}

std::string head(const exec::TraceRecorder& trace, const TraceFacts& facts, int ranks) {
  base::JsonWriter about;
  about.begin_object().field("schema", exec::kTraceSchema);
  about.field("plan", facts.plan_digest).field("name", facts.plan_name);
  about.field("communicator", facts.communicator).field("ranks", ranks);
  about.field("dropped_records_of_rank_0", trace.dropped()).end_object();
  return R"({"displayTimeUnit":"ms","otherData":)" + about.text() + ",\"traceEvents\":[\n";
}

// This rank's part, behind those of the ranks before it.
Status append(const std::string& temporary, const std::string& path,
              const exec::TraceRecorder& trace, const TraceFacts& facts, int rank, int ranks) {
  std::FILE* file = std::fopen(temporary.c_str(), "ae");
  if (file == nullptr) return failed(path);
  if (rank == 0) std::fputs(head(trace, facts, ranks).c_str(), file);
  Status status = trace.write_events(file, rank == 0);
  if (rank + 1 == ranks) std::fputs("\n]}\n", file);
  const bool good = std::ferror(file) == 0;
  if (std::fclose(file) != 0 || !good) status = failed(path);
  return status;
}

}  // namespace

Status save_trace(const std::string& path, const exec::TraceRecorder& trace,
                  const TraceFacts& facts, comm::Communicator& control) {
  const int rank = control.rank().v, ranks = control.size();
  std::optional<base::OutputFile> file;
  Status status;
  if (rank == 0) {
    auto made = base::OutputFile::create(path);
    if (made.ok()) {
      file.emplace(std::move(made).value());
    } else {
      status = std::move(made).status();
    }
  }
  DC_RETURN_IF_ERROR(comm::agree(control, std::move(status), "making its trace"));
  DC_ASSIGN_OR_RETURN(const std::string temporary,
                      comm::broadcast_text(control, file ? file->temporary_path() : ""));
  for (int turn = 0; turn < ranks; ++turn) {
    status = turn == rank ? append(temporary, path, trace, facts, rank, ranks) : Status();
    DC_RETURN_IF_ERROR(comm::agree(control, std::move(status), "writing its trace"));
  }
  return comm::agree(control, file ? file->commit() : Status(), "moving its trace into place");
}

}  // namespace dc::runtime::train
