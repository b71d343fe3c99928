#include "src/base/archive/tensor_record.h"

#include <cstring>
#include <optional>

#include "src/base/checked.h"
#include "src/base/shape.h"

namespace dc::base::archive {
namespace {

Status bad_record(const TensorRecord& record, const std::string& what) {
  return Status(ErrorKind::BadInput, "DC1311",
                "archive entry '" + record.entry + "' " + what +
                    "; the archive is damaged or was changed after export");
}

// Copies dims [dim, rank) from element `from`; returns the end of what was written.
uint8_t* copy_dims(const uint8_t* storage, const TensorRecord& record, size_t dim, int64_t from,
                   int64_t element, uint8_t* out) {
  if (dim == record.sizes.size()) {
    std::memcpy(out, storage + from * element, static_cast<size_t>(element));
    return out + element;
  }
  const int64_t size = record.sizes[dim];
  const int64_t stride = record.strides[dim];
  if (dim + 1 == record.sizes.size() && stride == 1) {
    const auto bytes = static_cast<size_t>(size * element);
    std::memcpy(out, storage + from * element, bytes);
    return out + bytes;
  }
  for (int64_t i = 0; i < size; ++i) {
    out = copy_dims(storage, record, dim + 1, from + i * stride, element, out);
  }
  return out;
}

}  // namespace

Result<int64_t> contiguous_bytes(const TensorRecord& record) {
  for (const int64_t size : record.sizes) {
    if (size < 0) return bad_record(record, "has a negative size");
  }
  const std::optional<int64_t> count = checked_product(record.sizes);
  const std::optional<int64_t> bytes =
      count ? checked_mul(*count, byte_size(record.dtype)) : std::nullopt;
  if (!bytes) return bad_record(record, "has a size that overflows");
  return *bytes;
}

Status check_within(const TensorRecord& record, int64_t storage_bytes) {
  DC_ASSIGN_OR_RETURN(const int64_t bytes, contiguous_bytes(record));
  if (record.strides.size() != record.sizes.size() || record.offset < 0) {
    return bad_record(record, "has sizes and strides that do not fit together");
  }
  if (bytes == 0) return ok_status();
  std::optional<int64_t> last = record.offset;
  for (size_t i = 0; i < record.sizes.size() && last; ++i) {
    if (record.strides[i] < 0) return bad_record(record, "has a negative stride");
    const std::optional<int64_t> reach = checked_mul(record.sizes[i] - 1, record.strides[i]);
    last = reach ? checked_add(*last, *reach) : std::nullopt;
  }
  const std::optional<int64_t> elements = last ? checked_add(*last, 1) : std::nullopt;
  const std::optional<int64_t> needed =
      elements ? checked_mul(*elements, byte_size(record.dtype)) : std::nullopt;
  if (!needed || *needed > storage_bytes) {
    return bad_record(
        record, "holds " + std::to_string(storage_bytes) + " bytes, fewer than the tensor needs");
  }
  return ok_status();
}

Status copy_contiguous(std::span<const uint8_t> storage, const TensorRecord& record,
                       std::span<uint8_t> out) {
  DC_RETURN_IF_ERROR(check_within(record, static_cast<int64_t>(storage.size())));
  DC_ASSIGN_OR_RETURN(const int64_t bytes, contiguous_bytes(record));
  DC_CHECK(static_cast<int64_t>(out.size()) == bytes);
  if (bytes == 0) return ok_status();
  const int64_t element = byte_size(record.dtype);
  if (is_contiguous(record.sizes, record.strides)) {
    std::memcpy(out.data(), storage.data() + record.offset * element, out.size());
  } else {
    copy_dims(storage.data(), record, 0, record.offset, element, out.data());
  }
  return ok_status();
}

Status copy_contiguous(const ZipArchive& archive, const TensorRecord& record,
                       std::span<uint8_t> out) {
  const ZipEntry* entry = archive.find(record.entry);
  if (entry == nullptr) {
    return Status(ErrorKind::MissingInput, "DC1312",
                  archive.path() + " has no entry '" + record.entry +
                      "'; give the archive the plan was compiled from, or another --weights");
  }
  if (!entry->deflated) {
    DC_ASSIGN_OR_RETURN(const std::span<const uint8_t> storage, archive.stored(*entry));
    return copy_contiguous(storage, record, out);
  }
  DC_ASSIGN_OR_RETURN(const std::vector<uint8_t> storage, archive.read(*entry));
  return copy_contiguous(storage, record, out);
}

}  // namespace dc::base::archive
