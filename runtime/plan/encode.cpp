// Plan structs to FlatBuffers, by the lists of their fields. Written strictly in the lists' order,
// so equal plans give equal bytes.
#include <type_traits>

#include "runtime/plan/file.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/schema_fields.h"
#include "runtime/plan/schema_version.h"
#include "src/base/sha256.h"

namespace dc::runtime::plan {
namespace {

namespace fb = dc::schema;
using flatbuffers::Offset;
using StringOffset = Offset<flatbuffers::String>;
template <typename T>
using VectorOf = Offset<flatbuffers::Vector<T>>;

// What the schema's CreateTable takes after the builder.
template <typename Create>
struct ParametersOf;
template <typename Table, typename... Parameters>
struct ParametersOf<Offset<Table> (*)(flatbuffers::FlatBufferBuilder&, Parameters...)> {
  using type = std::tuple<Parameters...>;
};
template <typename Table>
using Values = typename ParametersOf<std::remove_const_t<decltype(Table::Traits::Create)>>::type;

template <typename T>
concept Scalar = std::is_arithmetic_v<T>;
template <typename T>
concept Enum = std::is_enum_v<T>;

class Encoder {
 public:
  explicit Encoder(const Plan& plan) : plan_(plan) {}
  std::string run();

 private:
  template <Scalar T>
  void put(T& to, T from) {
    to = from;
  }
  template <Enum To, Enum From>
  void put(To& to, From from) {
    static_assert(kSameEnum<From, To>);
    to = static_cast<To>(from);
  }
  // The only numbers without sign of 32 bits are sets of axes. 0: all axes.
  void put(uint32_t& to, uint32_t from) { to = is_world(plan_, from) ? 0 : from; }
  void put(VectorOf<uint32_t>& to, std::vector<uint32_t> from) {
    for (uint32_t& axes : from) put(axes, axes);
    if (!from.empty()) to = builder_.CreateVector(from);
  }
  void put(StringOffset& to, const std::string& from) {
    if (!from.empty()) to = builder_.CreateSharedString(from);
  }
  template <Scalar T>
  void put(VectorOf<T>& to, const std::vector<T>& from) {
    if (!from.empty()) to = builder_.CreateVector(from);
  }
  void put(VectorOf<StringOffset>& to, const std::vector<std::string>& from) {
    std::vector<StringOffset> offsets;
    offsets.reserve(from.size());
    for (const std::string& text : from) offsets.push_back(builder_.CreateSharedString(text));
    if (!from.empty()) to = builder_.CreateVector(offsets);
  }
  template <typename Table, typename Struct>
  void put(VectorOf<Offset<Table>>& to, const std::vector<Struct>& from) {
    std::vector<Offset<Table>> offsets(from.size());
    for (size_t i = 0; i < from.size(); ++i) put(offsets[i], from[i]);
    if (!from.empty()) to = builder_.CreateVector(offsets);
  }
  template <typename Table, typename Struct>
  void put(Offset<Table>& to, const Struct& from) {
    to = table<Table, kFields<Struct>>(from);
  }
  void put(Offset<fb::Arg>& to, const Arg& from);
  void put(Offset<fb::Group>& to, const Group& from);
  void put(Offset<fb::Instruction>& to, const Instruction& from);

  template <typename Table, auto& list, size_t others = 0, typename Struct>
  void fill(Values<Table>& values, const Struct& from) {
    for_each_place<Table, list, others>(
        [&](const auto& field, auto place) { put(std::get<place>(values), field.of(from)); });
  }
  template <typename Table>
  Offset<Table> finish(const Values<Table>& values) {
    return std::apply(
        [&](const auto&... value) { return Table::Traits::Create(builder_, value...); }, values);
  }
  template <typename Table, auto& list, size_t others = 0, typename Struct>
  Offset<Table> table(const Struct& from) {
    Values<Table> values{};
    fill<Table, list, others>(values, from);
    return finish<Table>(values);
  }

  const Plan& plan_;
  flatbuffers::FlatBufferBuilder builder_;
};

void Encoder::put(Offset<fb::Arg>& to, const Arg& from) {
  if (from.kind != ArgKind::Float) {
    to = table<fb::Arg, kFields<Arg>>(from);
    return;
  }
  Arg listed;
  listed.name = from.name;
  listed.kind = from.kind;
  listed.floats = {from.f};
  to = table<fb::Arg, kFields<Arg>>(listed);
}

void Encoder::put(Offset<fb::Group>& to, const Group& from) {
  Values<fb::Group> values{};
  if (has_ranks(plan_))
    put(std::get<place_in<fb::Group>("ranks")>(values), ranks_of_group(plan_, from.axes, 0));
  put(std::get<place_in<fb::Group>("axis")>(values), axes_text(plan_, from.axes));
  fill<fb::Group, kFields<Group>, kOthersOfGroup>(values, from);
  to = finish<fb::Group>(values);
}

void Encoder::put(Offset<fb::Instruction>& to, const Instruction& from) {
  Values<fb::Instruction> values{};
  with_kind(from.kind, [&](auto kind) {
    using Body = typename BodyTable<kind>::type;
    std::get<place_in<fb::Instruction>("body_type")>(values) = fb::BodyTraits<Body>::enum_value;
    std::get<place_in<fb::Instruction>("body")>(values) =
        table<Body, kBodyFields<kind>>(from).Union();
  });
  fill<fb::Instruction, kFields<Instruction>, kOthersOfInstruction>(values, from);
  to = finish<fb::Instruction>(values);
}

std::string Encoder::run() {
  Values<fb::Plan> values{};
  std::get<place_in<fb::Plan>("schema_major")>(values) = kSchemaMajor;
  std::get<place_in<fb::Plan>("schema_minor")>(values) = kSchemaMinor;
  std::get<place_in<fb::Plan>("rank_classes")>(values) =
      builder_.CreateVector(std::vector<Offset<fb::RankClass>>{
          table<fb::RankClass, kRankClassFields, kOthersOfRankClass>(plan_)});
  fill<fb::Plan, kFields<Plan>, kOthersOfPlan>(values, plan_);
  builder_.Finish(finish<fb::Plan>(values), fb::PlanIdentifier());
  return std::string(reinterpret_cast<const char*>(builder_.GetBufferPointer()),
                     builder_.GetSize());
}

int hex_digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

}  // namespace

std::string encode(const Plan& plan) { return seal(Encoder(plan).run()); }

std::string seal(std::string_view payload) {
  const std::string digest =
      base::sha256_hex(std::span(reinterpret_cast<const uint8_t*>(payload.data()), payload.size()));
  std::string file(kMagic);
  for (size_t i = 0; i < digest.size(); i += 2) {
    file.push_back(static_cast<char>(hex_digit(digest[i]) * 16 + hex_digit(digest[i + 1])));
  }
  for (int shift = 0; shift < 64; shift += 8) {
    file.push_back(static_cast<char>(static_cast<uint64_t>(payload.size()) >> shift & 0xff));
  }
  return file.append(payload);
}

}  // namespace dc::runtime::plan
