#include <algorithm>
#include <set>

#include "runtime/train/elements.h"
#include "runtime/train/weights.h"
#include "src/base/archive/safetensors.h"
#include "src/base/archive/tensor_record.h"
#include "src/base/archive/zip.h"

namespace dc::runtime {
namespace {

using base::DType;
using base::ErrorKind;
using base::Result;
using base::Status;
using base::archive::SafetensorsFile;
using base::archive::ZipArchive;

// Elements in memory, with whatever keeps that memory.
class StoredElements final : public ElementSource {
 public:
  StoredElements(std::shared_ptr<const void> owner, const uint8_t* data, DType dtype,
                 std::vector<int64_t> sizes, std::vector<int64_t> strides)
      : owner_(std::move(owner)),
        data_(data),
        dtype_(dtype),
        sizes_(std::move(sizes)),
        strides_(std::move(strides)),
        walk_(sizes_, strides_) {}

  Status read(int64_t first, int64_t count, DType through, DType to, void* out) const override {
    const int64_t in_bytes = base::byte_size(dtype_), out_bytes = base::byte_size(to);
    if (walk_.contiguous()) {
      convert(dtype_, data_ + first * in_bytes, through, to, out, count);
      return base::ok_status();
    }
    for (int64_t i = 0; i < count; ++i) {
      convert(dtype_, data_ + walk_.offset(first + i) * in_bytes, through, to,
              static_cast<std::byte*>(out) + i * out_bytes, 1);
    }
    return base::ok_status();
  }

 private:
  std::shared_ptr<const void> owner_;
  const uint8_t* data_;
  DType dtype_;
  std::vector<int64_t> sizes_, strides_;
  ElementWalk walk_;  // of the two before it
};

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= sizes[d];
  }
  return strides;
}

// Complaints about many tensors, so that the user sees all of them at once.
struct Complaints {
  std::string missing, unfit;
  int missing_count = 0, unfit_count = 0;

  void miss(const std::string& name) { missing += (missing_count++ ? ", " : "") + name; }
  void refuse(const std::string& what) { unfit += (unfit_count++ ? "; " : "") + what; }
  Status status(const std::string& path) const {
    if (unfit_count > 0) {
      return Status(ErrorKind::BadInput, "DC6421",
                    path + ": " + unfit + "; give weights of the model that was compiled");
    }
    if (missing_count == 0) return base::ok_status();
    return Status(ErrorKind::MissingInput, "DC6422",
                  path + " lacks " + std::to_string(missing_count) + " of the model's tensors: " +
                      missing + "; give a file that has them, or --weights init:SEED");
  }
};

// Buffers that the run reads from the weights; the others travel inside the plan.
std::vector<bool> wanted_buffers(const plan::Plan& plan) {
  std::vector<bool> wanted(plan.buffers.size(), false);
  for (const plan::StateEntry& entry : plan.state) {
    if (entry.source == plan::StateSource::Buffer && entry.buffer >= 0) {
      wanted[static_cast<size_t>(entry.buffer)] = true;
    }
  }
  return wanted;
}

std::unique_ptr<ElementSource> from_archive(const std::shared_ptr<const ZipArchive>& archive,
                                            const std::string& fqn,
                                            const plan::ArchiveRecord& record,
                                            const std::vector<int64_t>& sizes,
                                            Complaints& complaints) {
  const auto* entry = record.entry.empty() ? nullptr : archive->find(record.entry);
  if (!entry) {
    complaints.miss(fqn);
    return nullptr;
  }
  const base::archive::TensorRecord tensor{record.entry, record.dtype, record.sizes, record.strides,
                                           record.offset};
  Status within = base::archive::check_within(tensor, static_cast<int64_t>(entry->size));
  if (!within.ok() || record.sizes != sizes) {
    complaints.refuse("'" + fqn + "' does not fit its entry " + record.entry);
    return nullptr;
  }
  std::shared_ptr<const void> owner = archive;
  const uint8_t* data = nullptr;
  if (!entry->deflated) {
    auto bytes = archive->stored(*entry);
    if (bytes.ok()) data = bytes->data();
  } else if (auto bytes = archive->read(*entry); bytes.ok()) {
    auto inflated = std::make_shared<std::vector<uint8_t>>(std::move(bytes).value());
    data = inflated->data();
    owner = std::move(inflated);
  }
  if (!data) {
    complaints.refuse("entry " + record.entry + " of '" + fqn + "' cannot be read");
    return nullptr;
  }
  data += record.offset * base::byte_size(record.dtype);
  return std::make_unique<StoredElements>(std::move(owner), data, record.dtype, record.sizes,
                                          record.strides);
}

std::unique_ptr<ElementSource> from_tensors(const std::shared_ptr<const SafetensorsFile>& file,
                                            const std::vector<std::string>& names,
                                            const std::vector<int64_t>& sizes,
                                            Complaints& complaints) {
  const base::archive::SafeTensor* found = nullptr;
  for (const std::string& name : names) {
    if (!found) found = file->find(name);
  }
  if (!found) {
    complaints.miss(names.front());
    return nullptr;
  }
  if (found->shape != sizes) {
    complaints.refuse("'" + found->name + "' has another shape than the model's parameter");
    return nullptr;
  }
  return std::make_unique<StoredElements>(file, file->bytes(*found).data(), found->dtype, sizes,
                                          contiguous_strides(sizes));
}

// Stored entries are used in place, where nothing else would notice a damaged byte. Entries that
// several tensors share are checked once.
Status check_contents(const ZipArchive& archive, const plan::Plan& plan,
                      const std::vector<bool>& wanted, int rank) {
  std::set<std::string> entries;
  for (const plan::Parameter& parameter : plan.parameters) entries.insert(parameter.record.entry);
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    if (wanted[i]) entries.insert(plan.buffers[i].record.entry);
  }
  int index = 0;
  for (const std::string& name : entries) {
    if (index++ % plan.world() != rank) continue;
    const base::archive::ZipEntry* entry = archive.find(name);
    if (entry && !entry->deflated) DC_RETURN_IF_ERROR(archive.verify_crc(*entry));
  }
  return base::ok_status();
}

}  // namespace

Result<WeightSet> open_archive_weights(const std::string& path, const plan::Plan& plan, int rank) {
  DC_ASSIGN_OR_RETURN(auto opened, ZipArchive::open(path));
  const auto archive = std::make_shared<const ZipArchive>(std::move(opened));
  WeightSet set;
  Complaints complaints;
  for (const plan::Parameter& parameter : plan.parameters) {
    set.parameters.push_back(
        from_archive(archive, parameter.fqn, parameter.record, parameter.sizes, complaints));
  }
  const std::vector<bool> wanted = wanted_buffers(plan);
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const plan::Buffer& buffer = plan.buffers[i];
    set.buffers.push_back(
        wanted[i] ? from_archive(archive, buffer.fqn, buffer.record, buffer.sizes, complaints)
                  : nullptr);
  }
  DC_RETURN_IF_ERROR(complaints.status(path));
  DC_RETURN_IF_ERROR(check_contents(*archive, plan, wanted, rank));
  return set;
}

Result<WeightSet> open_tensor_weights(const std::string& path, const plan::Plan& plan) {
  DC_ASSIGN_OR_RETURN(auto opened, SafetensorsFile::open(path));
  const auto file = std::make_shared<const SafetensorsFile>(std::move(opened));
  WeightSet set;
  Complaints complaints;
  for (const plan::Parameter& parameter : plan.parameters) {
    std::vector<std::string> names = {parameter.fqn};
    names.insert(names.end(), parameter.aliases.begin(), parameter.aliases.end());
    set.parameters.push_back(from_tensors(file, names, parameter.sizes, complaints));
  }
  const std::vector<bool> wanted = wanted_buffers(plan);
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const plan::Buffer& buffer = plan.buffers[i];
    set.buffers.push_back(wanted[i] ? from_tensors(file, {buffer.fqn}, buffer.sizes, complaints)
                                    : nullptr);
  }
  DC_RETURN_IF_ERROR(complaints.status(path));
  return set;
}

}  // namespace dc::runtime
