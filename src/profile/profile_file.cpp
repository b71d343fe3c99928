#include "src/profile/profile_file.h"

#include <iterator>
#include <limits>
#include <set>

#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/sha256.h"
#include "src/base/text.h"
#include "src/profile/profile_names.h"

namespace dc::profile {
namespace {

using base::ErrorKind;
using base::JsonValue;
using base::Measurements;
using base::Result;
using base::Status;

// The largest number that a profile may hold: 13 days in nanoseconds, or a pebibyte. With this
// limit sums over a whole plan cannot overflow.
constexpr int64_t kLargest = int64_t{1} << 50;
constexpr int64_t kLargestRate = int64_t{1} << 60;  // a second

// Every failure to read a profile has the same cure.
Status unreadable(const Status& why, const std::string& what) {
  return Status(why.kind(), why.code(),
                what + ": " + why.sentence() + "; measure again with dcc profile");
}

// Reads typed members of one object; the first failure is kept.
class Fields {
 public:
  explicit Fields(const JsonValue& object) : object_(object) {}
  std::string text(const char* key) {
    return take<std::string>(key, [](const JsonValue& value) { return value.to_string(); });
  }
  int32_t count(const char* key) {
    return static_cast<int32_t>(integer(key, 0, std::numeric_limits<int32_t>::max()));
  }
  // At least 1.
  int32_t number_of(const char* key) {
    return static_cast<int32_t>(integer(key, 1, std::numeric_limits<int32_t>::max()));
  }
  int64_t quantity(const char* key) { return integer(key, 0, kLargest); }
  int64_t rate(const char* key) { return integer(key, 0, kLargestRate); }
  base::KernelSignature kernel() {
    const std::string key = text("key"), provider = text("provider");
    if (!status_.ok()) return {};
    const auto known = base::provider_from_name(provider);
    if (!known) {
      status_ = Status(ErrorKind::BadInput, "DC2502",
                       "the provider '" + base::printable(provider) +
                           "' is unknown; known are aten, native and fused");
      return {};
    }
    const base::Space space = kernel_space();
    if (!status_.ok()) return {};
    auto signature = base::KernelSignature::parse(key, *known, space);
    if (signature) return std::move(*signature);
    status_ = Status(ErrorKind::BadInput, "DC2502",
                     "the key '" + base::printable(key) + "' describes no kernel");
    return {};
  }
  bool flag(const char* key) {
    return take<bool>(key, [](const JsonValue& value) { return value.to_bool(); });
  }
  base::Timing timing() {
    return {quantity("median_ns"), quantity("fastest_ns"), quantity("deviation_ns"),
            count("samples")};
  }
  // Of a member with the members of a timing.
  base::Timing timing(const char* key) {
    if (!status_.ok()) return {};
    const Result<const JsonValue*> member = object_.require(key);
    if (!member.ok()) {
      status_ = member.status();
      return {};
    }
    Fields fields(**member);
    const base::Timing timing = fields.timing();
    status_ = fields.status();
    return timing;
  }
  base::CollectiveLevel level() {
    if (object_.find("level") == nullptr) return base::CollectiveLevel::World;
    const std::string name = text("level");
    const auto level = base::collective_level(name);
    if (!level && status_.ok()) {
      status_ = Status(ErrorKind::BadInput, "DC2502",
                       "the level '" + base::printable(name) +
                           "' of a collective is unknown; known are world, inside and across");
    }
    return level.value_or(base::CollectiveLevel::World);
  }
  std::string collective_kind(const char* key) {
    std::string kind = text(key);
    const auto known =
        base::enum_value<base::CollectiveKind>(base::kCollectiveKindNames, std::string_view(kind));
    if (status_.ok() && (!known || !base::has_op(*known))) {
      status_ = Status(ErrorKind::BadInput, "DC2502",
                       "the collective '" + base::printable(kind) +
                           "' is unknown; known are all_gather, reduce_scatter and all_reduce");
    }
    return kind;
  }
  const Status& status() const { return status_; }

 private:
  // Rows without a space are of the device.
  base::Space kernel_space() {
    if (object_.find("space") == nullptr) return base::Space::Device;
    const std::string name = text("space");
    if (name != base::name(base::Space::Host) && status_.ok()) {
      status_ = Status(ErrorKind::BadInput, "DC2502",
                       "a kernel runs in the space '" + base::printable(name) +
                           "'; rows say host, or nothing for the device");
    }
    return base::Space::Host;
  }

  int64_t integer(const char* key, int64_t least, int64_t most) {
    const int64_t number =
        take<int64_t>(key, [](const JsonValue& value) { return value.to_integer(); });
    if (status_.ok() && (number < least || number > most)) {
      status_ = Status(ErrorKind::BadInput, "DC2502",
                       std::string(key) + " is " + std::to_string(number) + "; it is " +
                           std::to_string(least) + " to " + std::to_string(most));
    }
    return number;
  }
  template <typename T, typename F>
  T take(const char* key, F convert) {
    if (!status_.ok()) return T();
    Result<const JsonValue*> member = object_.require(key);
    if (!member.ok()) {
      status_ = member.status();
      return T();
    }
    Result<T> value = convert(**member);
    if (!value.ok()) {
      status_ = value.status();
      return T();
    }
    return std::move(value).value();
  }
  const JsonValue& object_;
  Status status_;
};

// What a row measures: two rows of one thing contradict each other.
std::string subject(const base::KernelSignature& signature) {
  return std::string(base::name(signature.provider())) + ' ' +
         std::string(base::name(signature.space())) + ' ' + signature.text();
}
std::string subject(const base::KernelMeasurement& row) { return subject(row.signature); }
std::string subject(const base::AloneMeasurement& row) { return subject(row.signature); }
std::string subject(const base::CollectiveMeasurement& row) {
  return row.kind + " of " + std::to_string(row.bytes) + " bytes between " +
         std::to_string(row.ranks) + " ranks (" + std::string(base::name(row.level)) + ")";
}
std::string subject(const base::TogetherMeasurement& row) {
  return subject(static_cast<const base::CollectiveMeasurement&>(row)) + " with " + row.other;
}
std::string subject(const base::CopyMeasurement& row) {
  return "a copy of " + std::to_string(row.bytes) + " bytes from " + row.from + " to " + row.to;
}

template <typename Row, typename Fill>
Status read_rows(const JsonValue& document, const char* key, std::vector<Row>& rows, Fill fill) {
  DC_ASSIGN_OR_RETURN(const JsonValue* list, document.require(key));
  DC_ASSIGN_OR_RETURN(const std::vector<JsonValue>* items, list->to_array());
  std::set<std::string> measured;
  for (const JsonValue& item : *items) {
    Fields fields(item);
    Row row;
    fill(fields, row);
    Status status = fields.status();
    if (status.ok() && !measured.insert(subject(row)).second) {
      status = Status(ErrorKind::BadInput, "DC2502",
                      base::printable(subject(row)) + " has been measured by a row before");
    }
    if (!status.ok()) {
      return Status(
          status.kind(), status.code(),
          "row " + std::to_string(rows.size() + 1) + " of " + key + ": " + status.sentence());
    }
    rows.push_back(std::move(row));
  }
  return {};
}

Status read_gpu(const JsonValue& row, base::GpuIdentity& gpu) {
  Fields fields(row);
  gpu.name = fields.text("name");
  gpu.compute_capability = fields.text("compute_capability");
  gpu.driver = fields.text("driver");
  gpu.multiprocessors = fields.count("multiprocessors");
  gpu.memory_bytes = fields.quantity("memory_bytes");
  if (row.find("clock_khz") != nullptr) gpu.clock_khz = fields.quantity("clock_khz");
  if (row.find("memory_clock_khz") != nullptr)
    gpu.memory_clock_khz = fields.quantity("memory_clock_khz");
  if (row.find("library_bytes") != nullptr) gpu.library_bytes = fields.quantity("library_bytes");
  return fields.status();
}

Status read_machine(const JsonValue& document, base::MachineIdentity& machine) {
  DC_ASSIGN_OR_RETURN(const JsonValue* row, document.require("machine"));
  Fields fields(*row);
  machine.cpu = fields.text("cpu");
  machine.cores = fields.count("cores");
  machine.software = fields.text("software");
  machine.communicator = fields.text("communicator");
  machine.launcher = fields.text("launcher");
  machine.ranks = fields.number_of("ranks");
  machine.threads = fields.number_of("threads");
  const bool names_device = row->find("device") != nullptr;  // files without it are of the CPU
  const std::string device = names_device ? fields.text("device") : "cpu";
  if (row->find("ranks_per_host") != nullptr)
    machine.ranks_per_host = fields.number_of("ranks_per_host");
  DC_RETURN_IF_ERROR(fields.status());
  if (const JsonValue* gpu = row->find("gpu")) {
    DC_RETURN_IF_ERROR(read_gpu(*gpu, machine.gpu.emplace()));
  }
  const auto kind = base::device_kind(device);
  if (!kind) {
    return Status(ErrorKind::BadInput, "DC2504",
                  "the profile is of device '" + device +
                      "', which this version does not know; measure it with this version's dcc");
  }
  machine.device = *kind;
  return {};
}

void read_collective(Fields& fields, base::CollectiveMeasurement& row) {
  row.kind = fields.collective_kind("kind");
  row.ranks = fields.number_of("ranks");
  row.bytes = fields.quantity("bytes");
  row.timing = fields.timing();
  row.level = fields.level();
}

Status read_tables(const JsonValue& document, Measurements& measurements) {
  DC_RETURN_IF_ERROR(read_rows(document, "kernels", measurements.kernels,
                               [](Fields& fields, base::KernelMeasurement& row) {
                                 row.signature = fields.kernel();
                                 row.timing = fields.timing();
                                 row.scratch_bytes = fields.quantity("scratch_bytes");
                               }));
  DC_RETURN_IF_ERROR(read_rows(document, "collectives", measurements.collectives, read_collective));
  // Older profiles have none of these tables.
  if (document.find("alone") != nullptr) {
    DC_RETURN_IF_ERROR(read_rows(document, "alone", measurements.alone,
                                 [](Fields& fields, base::AloneMeasurement& row) {
                                   row.signature = fields.kernel();
                                   row.warm = fields.timing("warm");
                                   row.cold = fields.timing("cold");
                                 }));
  }
  if (document.find("during_compute") != nullptr) {
    DC_RETURN_IF_ERROR(read_rows(document, "during_compute", measurements.during_compute,
                                 [](Fields& fields, base::DuringComputeMeasurement& row) {
                                   read_collective(fields, row);
                                   row.compute_permille = fields.count("compute_permille");
                                 }));
  }
  if (document.find("together") != nullptr) {
    DC_RETURN_IF_ERROR(read_rows(document, "together", measurements.together,
                                 [](Fields& fields, base::TogetherMeasurement& row) {
                                   read_collective(fields, row);
                                   row.other = fields.collective_kind("other");
                                 }));
  }
  return read_rows(document, "copies", measurements.copies,
                   [](Fields& fields, base::CopyMeasurement& row) {
                     row.from = fields.text("from");
                     row.to = fields.text("to");
                     row.bytes = fields.quantity("bytes");
                     row.timing = fields.timing();
                   });
}

Status read_step(const JsonValue& row, base::StepMeasurement& step) {
  DC_ASSIGN_OR_RETURN(const JsonValue* whole, row.require("whole"));
  DC_ASSIGN_OR_RETURN(const JsonValue* compute, row.require("compute"));
  Fields fields(row), whole_fields(*whole), compute_fields(*compute);
  step.plan_digest = fields.text("plan_digest");
  step.whole = whole_fields.timing();
  step.compute = compute_fields.timing();
  DC_RETURN_IF_ERROR(fields.status());
  DC_RETURN_IF_ERROR(whole_fields.status());
  return compute_fields.status();
}

Result<base::ProfileOrigin> origin_named(const JsonValue& value) {
  DC_ASSIGN_OR_RETURN(const std::string name, value.to_string());
  if (const auto origin = base::enum_value<base::ProfileOrigin>(kOrigins, name)) return *origin;
  return Status(ErrorKind::BadInput, "DC2502",
                "origin is '" + name + "'; known are measured, recorded, synthetic and calibrated");
}

// What older profiles do not say.
Status read_kind(const JsonValue& document, Measurements& measurements) {
  if (const JsonValue* origin = document.find("origin")) {
    DC_ASSIGN_OR_RETURN(measurements.origin, origin_named(*origin));
  }
  measurements.complete = {true, measurements.machine.ranks > 1, false, true};
  if (const JsonValue* complete = document.find("complete")) {
    Fields fields(*complete);
    for (const PartName& part : kParts) measurements.complete.*part.member = fields.flag(part.key);
    DC_RETURN_IF_ERROR(fields.status());
  }
  if (const JsonValue* rates = document.find("rates")) {
    Fields fields(*rates);
    measurements.rates.emplace();
    for (const RateName& rate : kRates) {
      if (rate.is_needed || rates->find(rate.key) != nullptr)
        (*measurements.rates).*rate.member =
            rate.is_time ? fields.quantity(rate.key) : fields.rate(rate.key);
    }
    DC_RETURN_IF_ERROR(fields.status());
  }
  if (const JsonValue* step = document.find("step")) {
    DC_RETURN_IF_ERROR(read_step(*step, measurements.step.emplace()));
  }
  return {};
}

}  // namespace

Result<Profile> parse_profile(const std::string& text, const std::string& what) {
  Result<JsonValue> parsed = base::parse_json_value(text, "profile");
  if (!parsed.ok()) return unreadable(parsed.status(), what);
  const JsonValue document = std::move(parsed).value();
  const JsonValue* format = document.find("format");
  if (!format || !format->is_string() || *format->to_string() != kFormat) {
    return Status(ErrorKind::BadInput, "DC2501",
                  what + " is not a profile; write one with `dcc profile`");
  }
  Fields head(document);
  const int64_t version = head.count("version");
  if (!head.status().ok()) return unreadable(head.status(), what);
  if (version != kProfileVersion) {
    return Status(ErrorKind::Mismatch, "DC2503",
                  what + " has version " + std::to_string(version) + ", this dcc reads version " +
                      std::to_string(kProfileVersion) + "; measure again with `dcc profile`");
  }
  Profile profile;
  profile.measurements.model_digest = head.text("model_digest");
  if (!head.status().ok()) return unreadable(head.status(), what);
  Status status = read_machine(document, profile.measurements.machine);
  if (status.ok()) status = read_tables(document, profile.measurements);
  if (status.ok()) status = read_kind(document, profile.measurements);
  if (!status.ok()) return unreadable(status, what);
  profile.digest = base::sha256_hex(text);
  return profile;
}

constexpr int64_t kMaxProfileBytes = int64_t{256} << 20;

Result<Profile> read_profile(const std::string& path) {
  DC_ASSIGN_OR_RETURN(const std::string text, base::read_file(path, kMaxProfileBytes));
  return parse_profile(text, path);
}

Status write_profile(const std::string& path, const Measurements& measurements) {
  return base::write_file_atomically(path, to_json(measurements));
}

}  // namespace dc::profile
