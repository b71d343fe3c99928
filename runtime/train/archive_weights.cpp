#include <set>
#include <tuple>

#include "runtime/train/stored_elements.h"
#include "runtime/train/weights.h"
#include "src/base/archive/step_digest.h"
#include "src/base/archive/weight_table.h"
#include "src/base/archive/zip.h"
#include "src/base/json.h"

namespace dc::runtime::train {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;
using base::archive::TensorRecord;
using base::archive::WeightTable;
using base::archive::ZipArchive;

// The tensors that a plan wants from one archive.
class ArchiveReader {
 public:
  ArchiveReader(std::shared_ptr<const ZipArchive> archive, const WeightTable& table,
                const plan::Plan& plan)
      : archive_(std::move(archive)), table_(table), plan_(plan) {}

  std::unique_ptr<ElementSource> find(const WantedTensor& wanted) {
    const TensorRecord* record = nullptr;
    std::string name;
    for (const std::string& candidate : wanted.names) {
      if (record == nullptr && (record = table_.find(candidate)) != nullptr) name = candidate;
    }
    const auto* entry = record == nullptr ? nullptr : archive_->find(record->entry);
    if (entry == nullptr || (entry->size == 0 && !is_empty(*record))) {
      complaints.miss(wanted.names.front());
      return nullptr;
    }
    if (record->sizes != wanted.sizes) {
      complaints.refuse_shape(name, record->sizes, wanted.sizes);
      return nullptr;
    }
    if (base::is_floating(record->dtype) != base::is_floating(wanted.dtype)) {
      complaints.refuse("'" + name + "' is " + std::string(base::name(record->dtype)) +
                        " but the plan's is " + std::string(base::name(wanted.dtype)));
      return nullptr;
    }
    if (!base::archive::check_within(*record, static_cast<int64_t>(entry->size)).ok()) {
      complaints.refuse("'" + name + "' does not fit its entry " + record->entry);
      return nullptr;
    }
    return read(name, *record, *entry);
  }

  // The names of the archive but those of tensors that the plan takes by another name: a buffer
  // that a module registers twice has one record under two names, of which a plan knows the first.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const std::string& name : table_.weights()) {
      const TensorRecord* record = table_.find(name);
      if (record == nullptr || !taken_.contains(key_of(*record))) names.push_back(name);
    }
    return names;
  }

  // Checks the CRC of uncompressed entries: they are mapped and read in place, where nothing else
  // would notice a damaged byte. The ranks divide the entries among them; an entry that several
  // tensors use is checked once.
  Status check_contents(int rank) const {
    int index = 0;
    for (const std::string& name : entries_) {
      if (index++ % plan_.world() != rank) continue;
      const base::archive::ZipEntry* entry = archive_->find(name);
      if (!entry->deflated) DC_RETURN_IF_ERROR(archive_->verify_crc(*entry));
    }
    return base::ok_status();
  }

  WeightComplaints complaints;

 private:
  using Key =
      std::tuple<std::string, base::DType, std::vector<int64_t>, std::vector<int64_t>, int64_t>;
  static Key key_of(const TensorRecord& record) {
    return {record.entry, record.dtype, record.sizes, record.strides, record.offset};
  }

  static bool is_empty(const TensorRecord& record) {
    for (const int64_t size : record.sizes) {
      if (size == 0) return true;
    }
    return false;
  }

  std::unique_ptr<ElementSource> read(const std::string& name, const TensorRecord& record,
                                      const base::archive::ZipEntry& entry) {
    std::shared_ptr<const void> owner = archive_;
    const uint8_t* data = nullptr;
    if (!entry.deflated) {
      auto bytes = archive_->stored(entry);
      if (bytes.ok()) data = bytes->data();
    } else if (auto bytes = archive_->read(entry); bytes.ok()) {
      auto inflated = std::make_shared<std::vector<uint8_t>>(std::move(bytes).value());
      data = inflated->data();
      owner = std::move(inflated);
    }
    if (!data) {
      complaints.refuse("entry " + record.entry + " of '" + name + "' cannot be read");
      return nullptr;
    }
    entries_.insert(record.entry);
    taken_.insert(key_of(record));
    data += record.offset * base::byte_size(record.dtype);
    return std::make_unique<StoredElements>(std::move(owner), data, record.dtype, record.sizes,
                                            record.strides);
  }

  std::shared_ptr<const ZipArchive> archive_;
  const WeightTable& table_;
  const plan::Plan& plan_;
  std::set<std::string> entries_;  // that the plan's tensors lie in
  std::set<Key> taken_;            // records of the plan's tensors
};

// Mismatch unless the archive's step is the one that was compiled.
Status check_same_step(const ZipArchive& archive, const plan::Plan& plan) {
  DC_ASSIGN_OR_RETURN(const base::archive::StepDigest digest, base::archive::step_digest(archive));
  std::string parts;
  for (size_t i = 0; i < digest.size(); ++i) {
    if (i < plan.step_digest.size() && plan.step_digest[i] == digest[i]) continue;
    parts += (parts.empty() ? "" : ", ") + std::string(base::archive::kStepParts[i]);
  }
  if (parts.empty()) return base::ok_status();
  return Status(ErrorKind::Mismatch, "DC6424",
                archive.path() + " is not the model that the plan was compiled from: its " + parts +
                    " differ; compile it again with dcc compile, or, if only its weights are "
                    "meant, use --weights-only-by-name");
}

// An optimizer that had taken steps is exported with a checkpoint, which weights alone leave
// behind.
std::string moments_left_behind(const ZipArchive& archive) {
  for (const base::archive::ZipEntry& entry : archive.entries()) {
    if (archive.below_root(entry) != "extra/dcc.json") continue;
    const auto bytes = archive.read(entry);
    if (!bytes.ok()) return "";
    const auto document = base::parse_json_value(
        {reinterpret_cast<const char*>(bytes->data()), bytes->size()}, archive.path());
    const base::JsonValue* step = document.ok() ? document->find("optimizer_step") : nullptr;
    const auto count = step == nullptr ? Result<int64_t>(0) : step->to_integer();
    if (!count.ok() || *count == 0) return "";
    return "its optimizer had taken " + std::to_string(*count) +
           " steps, and this run begins without its moments; to go on with them, use --resume and "
           "the checkpoint that the export wrote";
  }
  return "";
}

}  // namespace

Result<WeightSet> open_archive_weights(const std::string& path, const plan::Plan& plan,
                                       const WeightRequest& request) {
  DC_ASSIGN_OR_RETURN(auto opened, ZipArchive::open(path));
  const auto archive = std::make_shared<const ZipArchive>(std::move(opened));
  DC_ASSIGN_OR_RETURN(const WeightTable table, WeightTable::read(*archive));
  ArchiveReader reader(archive, table, plan);
  WeightSet set;
  for (const plan::Parameter& parameter : plan.parameters) {
    set.parameters.push_back(reader.find(wanted(parameter)));
  }
  const std::vector<bool> is_wanted = wanted_buffers(plan);
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    set.buffers.push_back(is_wanted[i] ? reader.find(wanted(plan.buffers[i])) : nullptr);
  }
  reader.complaints.find_unused(reader.names(), plan);
  DC_RETURN_IF_ERROR(reader.complaints.status(path, request.only_by_name));
  if (!request.only_by_name && request.rank == 0) {
    DC_RETURN_IF_ERROR(check_same_step(*archive, plan));
  }
  set.unused = reader.complaints.unused_text();
  if (request.rank == 0) set.left_behind = moments_left_behind(*archive);
  DC_RETURN_IF_ERROR(reader.check_contents(request.rank));
  return set;
}

}  // namespace dc::runtime::train
