#include "src/frontend/weights.h"

#include "src/base/archive/tensor_record.h"
#include "src/frontend/arguments.h"
#include "src/frontend/item_stream.h"

namespace dc::frontend {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;
using base::archive::TensorRecord;

TensorRecord plain(const ir::ArchiveRecord& record) {
  return {record.entry, record.dtype, record.shape, record.strides, record.offset};
}

// Reads one table: {"config": {fqn: {"path_name", "use_pickle", "tensor_meta", ...}}}.
class TableReader : public ItemStream {
 public:
  TableReader(const ArchiveFiles& files, std::string folder,
              std::unordered_map<std::string, ir::ArchiveRecord>& records)
      : files_(files), folder_(std::move(folder)), records_(records) {
    expect("config/*", 0);
  }
  const Status& status() const { return status_; }

 protected:
  bool item(int, std::string_view key, TapeValue value) override {
    status_ = read_record(std::string(key), value);
    if (!status_.ok()) problem = "see above";
    return status_.ok();
  }

 private:
  Status read_record(const std::string& fqn, TapeValue value) {
    const TapeValue pickled = value.find("use_pickle");
    if (pickled.is(TokenKind::Bool) && pickled.integer() != 0) {
      return Status(ErrorKind::BadInput, "DC2021",
                    "tensor " + fqn +
                        " is stored as a Python pickle (a tensor subclass or script object); "
                        "replace it by a plain torch.Tensor and export again");
    }
    const TapeValue path = value.find("path_name");
    if (!path.is(TokenKind::String)) return malformed("tensor " + fqn + " has no path_name");
    if (!value.find("tensor_meta").is(TokenKind::Object)) return base::ok_status();
    DC_ASSIGN_OR_RETURN(const RawTensor tensor, read_tensor(value.find("tensor_meta")));
    const std::optional<base::DType> dtype = base::dtype_from_export(tensor.dtype);
    if (!dtype || !tensor.symbolic.empty()) {
      return malformed("tensor " + fqn + " has no plain type");
    }
    ir::ArchiveRecord record{"", *dtype, tensor.shape, tensor.strides, tensor.offset};
    const std::string name = folder_ + std::string(path.text());
    if (const base::archive::ZipEntry* entry = files_.zip.find(name);
        entry != nullptr && entry->size > 0) {
      record.entry = name;
      Status status = base::archive::check_within(plain(record), static_cast<int64_t>(entry->size));
      if (!status.ok()) return status.add_context("in tensor " + fqn);
    }
    if (!records_.emplace(fqn, std::move(record)).second) {
      return malformed("tensor " + fqn + " is given twice");
    }
    return base::ok_status();
  }

  const ArchiveFiles& files_;
  std::string folder_;
  std::unordered_map<std::string, ir::ArchiveRecord>& records_;
  Status status_;
};

}  // namespace

Result<Weights> Weights::read(const ArchiveFiles& files) {
  Weights weights;
  const auto read_tables = [&](const std::vector<std::string>& tables) -> Status {
    for (const std::string& table : tables) {
      DC_ASSIGN_OR_RETURN(const std::string text, read_text(files.zip, table));
      TableReader reader(files, table.substr(0, table.rfind('/') + 1), weights.records_);
      Status parsed = base::parse_json(text, table, reader);
      if (!reader.status().ok()) return Status(reader.status()).add_context("in " + table);
      DC_RETURN_IF_ERROR(std::move(parsed));
    }
    return base::ok_status();
  };
  DC_RETURN_IF_ERROR(read_tables(files.weights));
  DC_RETURN_IF_ERROR(read_tables(files.constants));
  return weights;
}

ir::ArchiveRecord Weights::find(const std::string& fqn) const {
  const auto found = records_.find(fqn);
  return found == records_.end() ? ir::ArchiveRecord() : found->second;
}

Result<std::vector<uint8_t>> contiguous_data(const ArchiveFiles& files,
                                             const ir::ArchiveRecord& record) {
  const base::archive::ZipEntry* entry = files.zip.find(record.entry);
  DC_CHECK(entry != nullptr);
  DC_RETURN_IF_ERROR(files.zip.verify_crc(*entry));
  DC_ASSIGN_OR_RETURN(const int64_t bytes, base::archive::contiguous_bytes(plain(record)));
  std::vector<uint8_t> data(static_cast<size_t>(bytes));
  DC_RETURN_IF_ERROR(base::archive::copy_contiguous(files.zip, plain(record), data));
  return data;
}

}  // namespace dc::frontend
