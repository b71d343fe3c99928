// FlatBuffers to plan structs, by the lists of their fields. Trusts nothing: the FlatBuffers
// verifier first, then every enum, then the ids.
#include <cstring>
#include <type_traits>

#include "runtime/plan/bad_plan.h"
#include "runtime/plan/file.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/schema_fields.h"
#include "runtime/plan/schema_version.h"
#include "runtime/plan/structure.h"
#include "src/base/file.h"
#include "src/base/sha256.h"

namespace dc::runtime::plan {
namespace {

namespace fb = dc::schema;
using base::Status;
using FbString = const flatbuffers::String*;
template <typename T>
using FbVector = const flatbuffers::Vector<T>*;
template <typename T>
using FbTables = FbVector<flatbuffers::Offset<T>>;

constexpr int kMaxDepth = 16;
constexpr int64_t kMaxExpansion =
    64;  // copied bytes per payload byte: sharing is fine, bombs are not

class Decoder {
 public:
  explicit Decoder(int64_t payload_bytes) : budget_(payload_bytes * kMaxExpansion + (1 << 16)) {}
  Status run(const fb::Plan& from, Plan& to);

 private:
  // The first failure sticks; decoding goes on with harmless values.
  void fail(const char* code, const std::string& what) {
    if (status_.ok()) status_ = bad_plan(code, what);
  }
  bool spend(size_t bytes) {
    budget_ -= static_cast<int64_t>(bytes);
    if (budget_ < 0) fail("DC3008", "it expands far beyond its size");
    return budget_ >= 0;
  }

  template <typename T>
  void get(T from, T& to) {
    to = from;
  }
  // The only numbers without sign of 32 bits are sets of axes. 0: all axes.
  void get(uint32_t from, uint32_t& to) { to = from == 0 ? kAllAxes : from; }
  void get(FbString from, std::string& to) {
    if (from && spend(from->size())) to = from->str();
  }
  template <typename T>
  void get(FbVector<T> from, std::vector<T>& to) {
    if (!from || !spend(from->size() * sizeof(T))) return;
    // Copied as bytes: the verifier does not promise that elements are aligned.
    to.resize(from->size());
    if (!to.empty()) std::memcpy(to.data(), from->Data(), to.size() * sizeof(T));
    for (T& value : to) value = flatbuffers::EndianScalar(value);
    if constexpr (std::is_same_v<T, uint32_t>) {
      for (T& axes : to) get(axes, axes);
    }
  }
  void get(FbTables<flatbuffers::String> from, std::vector<std::string>& to) {
    if (!from || !spend(from->size() * sizeof(std::string))) return;
    to.resize(from->size());
    for (size_t i = 0; i < to.size(); ++i)
      get(from->Get(static_cast<flatbuffers::uoffset_t>(i)), to[i]);
  }
  template <typename Table, typename Struct>
  void get(FbTables<Table> from, std::vector<Struct>& to) {
    if (!from || !spend(from->size())) return;
    to.reserve(from->size());
    for (const Table* item : *from) get(item, to.emplace_back());
  }
  template <typename Table, typename Struct>
  void get(const Table* from, Struct& to) {
    if (from) fill<Table, kFields<Struct>>(*from, to);
  }
  void get(const fb::Arg* from, Arg& to);
  void get(const fb::Group* from, Group& to) {
    fill<fb::Group, kFields<Group>, kOthersOfGroup>(*from, to);
  }
  void get(const fb::Instruction* from, Instruction& to);

  template <typename From, typename To>
  void get_enumerator(From from, To& to, const char* table, std::string_view field) {
    static_assert(kSameEnum<To, From>);
    bool is_known = from <= From::MAX;
    if constexpr (std::is_same_v<To, DType>)
      is_known = base::dtype_from_export(static_cast<int64_t>(from)).has_value();
    if (is_known) {
      to = static_cast<To>(from);
      return;
    }
    fail("DC3101", "field '" + std::string(field) + "' of table " + table +
                       " has the unknown value " + std::to_string(static_cast<int>(from)));
  }

  template <typename Table, auto& list, size_t others = 0, typename Struct>
  void fill(const Table& from, Struct& to) {
    for_each_place<Table, list, others>([&](const auto& field, auto place) {
      const auto value = from.template get_field<place>();
      if constexpr (std::is_enum_v<decltype(value)>) {
        get_enumerator(value, field.of(to), Table::Traits::name, field.in_schema);
      } else {
        get(value, field.of(to));
      }
    });
  }
  void rank_class(const fb::Plan& from, Plan& to);

  int64_t budget_;
  Status status_;
};

void Decoder::get(const fb::Arg* from, Arg& to) {
  fill<fb::Arg, kFields<Arg>>(*from, to);
  if (to.kind != ArgKind::Float) return;
  if (to.floats.size() == 1) {
    to.f = to.floats[0];
  } else {
    fail("DC3103", "float argument '" + to.name + "' has no single value");
  }
  to.floats.clear();
}

void Decoder::get(const fb::Instruction* from, Instruction& to) {
  const fb::Body type = from->body() ? from->body_type() : fb::Body::NONE;
  if (type == fb::Body::NONE || type > fb::Body::MAX) {
    fail("DC3101", "instruction kind " + std::to_string(static_cast<int>(type)) + " is unknown");
  } else {
    static_assert(base::enum_count<InstructionKind>() == static_cast<size_t>(fb::Body::MAX));
    to.kind = static_cast<InstructionKind>(static_cast<int>(type) - 1);
    with_kind(to.kind, [&](auto kind) {
      using Body = typename BodyTable<kind>::type;
      fill<Body, kBodyFields<kind>>(*from->body_as<Body>(), to);
    });
  }
  fill<fb::Instruction, kFields<Instruction>, kOthersOfInstruction>(*from, to);
}

void Decoder::rank_class(const fb::Plan& from, Plan& to) {
  const auto* classes = from.rank_classes();
  if (!classes || classes->size() != 1 ||
      (classes->Get(0)->coordinates() && classes->Get(0)->coordinates()->size() > 0)) {
    fail("DC3102", "it does not have exactly one rank class of all ranks");
    return;
  }
  fill<fb::RankClass, kRankClassFields, kOthersOfRankClass>(*classes->Get(0), to);
}

Status Decoder::run(const fb::Plan& from, Plan& to) {
  fill<fb::Plan, kFields<Plan>, kOthersOfPlan>(from, to);
  rank_class(from, to);
  return status_;
}

// A group's ranks follow from its axes; readers that know no axes go by the ranks, so both must say
// the same. After check_structure.
Status check_listed_ranks(const fb::Plan& from, const Plan& plan) {
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const auto* listed = from.groups()->Get(static_cast<flatbuffers::uoffset_t>(i))->ranks();
    const uint32_t axes = plan.groups[i].axes;
    const size_t count = listed == nullptr ? 0 : listed->size();
    bool equal = count == static_cast<size_t>(group_size(plan, axes));
    const auto ranks = equal ? ranks_of_group(plan, axes, 0) : std::vector<int32_t>();
    for (size_t r = 0; equal && r < count; ++r) {
      equal = listed->Get(static_cast<flatbuffers::uoffset_t>(r)) == ranks[r];
    }
    if (equal) continue;
    return bad_plan("DC3106", "group " + std::to_string(i) +
                                  " lists other ranks than those along '" + axes_text(plan, axes) +
                                  "'");
  }
  return {};
}

// Level 0: magic, size, digest. Returns the digest.
base::Result<std::string> check_header(std::span<const uint8_t> file) {
  if (file.size() > static_cast<size_t>(kMaxFileBytes)) {
    return bad_plan("DC3001", "it has " + std::to_string(file.size()) +
                                  " bytes, and 1 GiB is the largest plan there is");
  }
  if (file.size() < static_cast<size_t>(kHeaderBytes)) {
    return bad_plan("DC3002", "it has " + std::to_string(file.size()) +
                                  " bytes, less than a header (it is truncated)");
  }
  if (std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0) {
    return bad_plan("DC3003", "it does not begin like a plan (is it another kind of file?)");
  }
  uint64_t size = 0;
  for (int i = 7; i >= 0; --i) size = size << 8 | file[40 + static_cast<size_t>(i)];
  if (size != file.size() - static_cast<size_t>(kHeaderBytes)) {
    return bad_plan("DC3004", "its header announces " + std::to_string(size) + " bytes and " +
                                  std::to_string(file.size() - kHeaderBytes) +
                                  " follow (it is truncated or damaged)");
  }
  const std::string digest = base::sha256_hex(file.subspan(kHeaderBytes));
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (size_t i = 0; i < 32; ++i) {
    const uint8_t byte = file[8 + i];
    if (digest[2 * i] != kDigits[byte >> 4] || digest[2 * i + 1] != kDigits[byte & 15]) {
      return bad_plan("DC3005", "its content does not match its digest (it is damaged)");
    }
  }
  return digest;
}

// Level 1 and the copy into structs.
base::Result<Plan> decode_payload(std::span<const uint8_t> payload) {
  std::vector<uint64_t> aligned;  // FlatBuffers wants 8-byte alignment
  const uint8_t* data = payload.data();
  if (reinterpret_cast<uintptr_t>(data) % 8 != 0) {
    aligned.resize(payload.size() / 8 + 1);
    std::memcpy(aligned.data(), data, payload.size());
    data = reinterpret_cast<const uint8_t*>(aligned.data());
  }
  if (payload.size() < 16 || !fb::PlanBufferHasIdentifier(data)) {
    return bad_plan("DC3006", "its payload is not of format DCP1");
  }
  flatbuffers::Verifier verifier(data, payload.size(), kMaxDepth,
                                 static_cast<flatbuffers::uoffset_t>(payload.size() / 8 + 16));
  if (!fb::VerifyPlanBuffer(verifier)) {
    return bad_plan("DC3007", "its payload is not a well-formed FlatBuffer");
  }
  const fb::Plan& root = *fb::GetPlan(data);
  if (root.schema_major() != kSchemaMajor) {
    return Status(base::ErrorKind::Mismatch, "DC3009",
                  "the plan has schema version " + std::to_string(root.schema_major()) + "." +
                      std::to_string(root.schema_minor()) + " and this program reads version " +
                      std::to_string(kSchemaMajor) + "." + std::to_string(kSchemaMinor) + kCure);
  }
  Plan plan;
  DC_RETURN_IF_ERROR(Decoder(static_cast<int64_t>(payload.size())).run(root, plan));
  DC_RETURN_IF_ERROR(check_structure(plan));
  DC_RETURN_IF_ERROR(check_listed_ranks(root, plan));
  return plan;
}

}  // namespace

base::Result<Plan> decode(std::span<const uint8_t> file) {
  DC_ASSIGN_OR_RETURN(const std::string digest, check_header(file));
  return decode_payload(file.subspan(kHeaderBytes));
}

base::Result<Loaded> read(const std::string& path) {
  DC_ASSIGN_OR_RETURN(const base::MappedFile file, base::MappedFile::open(path));
  const auto in_file = [&](Status status) { return std::move(status).add_context("in " + path); };
  auto digest = check_header(file.bytes());
  if (!digest.ok()) return in_file(std::move(digest).status());
  auto plan = decode_payload(file.bytes().subspan(kHeaderBytes));
  if (!plan.ok()) return in_file(std::move(plan).status());
  return Loaded{std::move(*plan), std::move(*digest)};
}

}  // namespace dc::runtime::plan
