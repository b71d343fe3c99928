#include "runtime/checkpoint/index.h"

#include <charconv>

#include "runtime/checkpoint/sealed_json.h"
#include "src/base/checked.h"

namespace dc::runtime::checkpoint {
namespace {

using base::ErrorKind;
using base::JsonValue;
using base::JsonWriter;
using base::Result;
using base::Status;

constexpr SealedFormat kIndexFormat{"dcc-checkpoint", 1}, kManifestFormat{"dcc-checkpoint-rank", 1};

Status bad(const std::string& path, const std::string& what) {
  return Status(ErrorKind::BadInput, "DC6803", path + ": " + what + "; it is damaged");
}

std::string checksum_key(const std::string& prefix, Checksum::Algorithm algorithm) {
  return prefix + std::string(name(algorithm));
}

void write_checksum(JsonWriter& json, const std::string& prefix, const Checksum& checksum) {
  json.field(checksum_key(prefix, checksum.algorithm()), checksum.hex());
}

// Members of an object, checked.
class Members {
 public:
  explicit Members(const JsonValue& object) : object_(object) {}

  Result<int64_t> integer(std::string_view key) const {
    DC_ASSIGN_OR_RETURN(const JsonValue* value, object_.require(key));
    return value->to_integer();
  }
  Result<int64_t> count(std::string_view key) const {
    DC_ASSIGN_OR_RETURN(const int64_t value, integer(key));
    if (value >= 0) return value;
    return Status(ErrorKind::BadInput, "DC6803", "'" + std::string(key) + "' is negative");
  }
  Result<std::string> text(std::string_view key) const {
    DC_ASSIGN_OR_RETURN(const JsonValue* value, object_.require(key));
    return value->to_string();
  }
  Result<uint64_t> number_text(std::string_view key) const {
    DC_ASSIGN_OR_RETURN(const std::string digits, text(key));
    uint64_t value = 0;
    const char* last = digits.data() + digits.size();
    const auto [end, error] = std::from_chars(digits.data(), last, value);
    if (error == std::errc() && end == last) return value;
    return Status(ErrorKind::BadInput, "DC6803", "'" + std::string(key) + "' is no number");
  }
  // Under the name of its algorithm behind `prefix`.
  Result<Checksum> checksum(const std::string& prefix) const {
    const std::string sha256 = checksum_key(prefix, Checksum::Algorithm::Sha256);
    const bool is_sha256 = object_.find(sha256) != nullptr;
    const auto algorithm = is_sha256 ? Checksum::Algorithm::Sha256 : Checksum::Algorithm::Xxh64;
    const std::string key = checksum_key(prefix, algorithm);
    DC_ASSIGN_OR_RETURN(std::string digits, text(key));
    std::optional<Checksum> parsed = Checksum::parse(algorithm, std::move(digits));
    if (parsed) return std::move(*parsed);
    return Status(ErrorKind::BadInput, "DC6803", "'" + key + "' is no checksum");
  }
  Result<const std::vector<JsonValue>*> array(std::string_view key) const {
    DC_ASSIGN_OR_RETURN(const JsonValue* value, object_.require(key));
    return value->to_array();
  }

 private:
  const JsonValue& object_;
};

void write_run(JsonWriter& json, const RunState& run) {
  json.field("step", run.step).field("samples", run.data.samples);
  json.field("epoch", run.data.epoch).field("samples_in_epoch", run.data.in_epoch);
  json.field("seed", std::to_string(run.seed)).field("optimizer", run.optimizer);
  json.field("model", run.model_digest).key("model_parts").begin_array();
  for (const std::string& part : run.step_digest) json.string(part);
  json.end_array().field("plan", run.plan_digest).field("world", run.world);
  json.key("configuration");
  run.configuration.write(json);
}

Result<RunState> read_run(const JsonValue& body) {
  const Members members(body);
  RunState run;
  DC_ASSIGN_OR_RETURN(run.step, members.count("step"));
  DC_ASSIGN_OR_RETURN(run.data.samples, members.count("samples"));
  DC_ASSIGN_OR_RETURN(run.data.epoch, members.count("epoch"));
  DC_ASSIGN_OR_RETURN(run.data.in_epoch, members.count("samples_in_epoch"));
  DC_ASSIGN_OR_RETURN(run.seed, members.number_text("seed"));
  DC_ASSIGN_OR_RETURN(run.optimizer, members.text("optimizer"));
  DC_ASSIGN_OR_RETURN(run.model_digest, members.text("model"));
  DC_ASSIGN_OR_RETURN(const auto* parts, members.array("model_parts"));
  for (const JsonValue& part : *parts) {
    DC_ASSIGN_OR_RETURN(run.step_digest.emplace_back(), part.to_string());
  }
  DC_ASSIGN_OR_RETURN(run.plan_digest, members.text("plan"));
  DC_ASSIGN_OR_RETURN(const int64_t world, members.count("world"));
  if (world < 1 || world > 1 << 20) return bad("'world'", "no number of ranks");
  run.world = static_cast<int>(world);
  DC_ASSIGN_OR_RETURN(const JsonValue* configuration, body.require("configuration"));
  run.configuration = *configuration;
  return run;
}

void write_piece(JsonWriter& json, const Piece& piece) {
  json.begin_object().field("file", piece.file).field("tensor", piece.tensor);
  json.field("at", piece.at).field("kind", name(piece.value.kind)).field("of", piece.value.fqn);
  if (piece.value.rank >= 0) json.field("rank", piece.value.rank);
  json.field("dtype", base::name(piece.dtype)).key("shape").begin_array();
  for (const int64_t size : piece.sizes) json.integer(size);
  json.end_array().field("first", piece.first).field("count", piece.count);
  write_checksum(json, "", piece.checksum);
  json.end_object();
}

// The whole value has a size that fits 64 bits, and the range lies in it.
bool is_range(const Piece& piece) {
  const std::optional<int64_t> count = base::checked_product(piece.sizes);
  for (const int64_t size : piece.sizes) {
    if (size < 0) return false;
  }
  if (!count || !base::checked_mul(*count, base::byte_size(piece.dtype))) return false;
  return piece.first >= 0 && piece.count >= 0 && piece.at >= 0 && piece.first <= *count &&
         piece.count <= *count - piece.first;
}

Result<Piece> read_piece(const JsonValue& value) {
  const Members members(value);
  Piece piece;
  DC_ASSIGN_OR_RETURN(piece.file, members.text("file"));
  DC_ASSIGN_OR_RETURN(piece.tensor, members.text("tensor"));
  DC_ASSIGN_OR_RETURN(piece.at, members.count("at"));
  DC_ASSIGN_OR_RETURN(const std::string kind, members.text("kind"));
  DC_ASSIGN_OR_RETURN(piece.value.fqn, members.text("of"));
  const std::optional<ValueKind> known = value_kind(kind);
  if (!known) return bad("'kind'", "unknown kind '" + kind + "'");
  piece.value.kind = *known;
  if (value.find("rank") != nullptr) {
    DC_ASSIGN_OR_RETURN(const int64_t rank, members.count("rank"));
    piece.value.rank = static_cast<int>(std::min<int64_t>(rank, 1 << 20));
  }
  DC_ASSIGN_OR_RETURN(const std::string dtype, members.text("dtype"));
  const auto parsed = base::dtype_from_name(dtype);
  if (!parsed) return bad("'dtype'", "unknown dtype '" + dtype + "'");
  piece.dtype = *parsed;
  DC_ASSIGN_OR_RETURN(const auto* sizes, members.array("shape"));
  for (const JsonValue& size : *sizes) {
    DC_ASSIGN_OR_RETURN(piece.sizes.emplace_back(), size.to_integer());
  }
  DC_ASSIGN_OR_RETURN(piece.first, members.count("first"));
  DC_ASSIGN_OR_RETURN(piece.count, members.count("count"));
  DC_ASSIGN_OR_RETURN(piece.checksum, members.checksum(""));
  if (!is_range(piece)) return bad(describe(piece.value), "its range is not within its shape");
  return piece;
}

Result<RankManifest::File> read_file_entry(const JsonValue& value) {
  const Members members(value);
  RankManifest::File file;
  DC_ASSIGN_OR_RETURN(file.name, members.text("file"));
  DC_ASSIGN_OR_RETURN(file.bytes, members.count("bytes"));
  DC_ASSIGN_OR_RETURN(file.header_bytes, members.count("header_bytes"));
  DC_ASSIGN_OR_RETURN(file.header_checksum, members.checksum("header_"));
  return file;
}

// Nothing that leads out of the folder.
Status check_name(const std::string& name, const std::string& path) {
  const bool plain = !name.empty() && name[0] != '.' && name.find('/') == std::string::npos;
  return plain ? Status() : bad(path, "'" + name + "' is no name of a file in this folder");
}

}  // namespace

std::string write_index(const CheckpointIndex& index) {
  JsonWriter json(1);
  json.begin_object();
  write_run(json, index.run);
  json.key("ranks").begin_array();
  for (const auto& manifest : index.manifests) {
    json.begin_object().field("file", manifest.file).field("sha256", manifest.sha256).end_object();
  }
  return seal(kIndexFormat, json.end_array().end_object().text());
}

Result<CheckpointIndex> read_index(std::string_view text, const std::string& path) {
  DC_ASSIGN_OR_RETURN(const JsonValue body, unseal(kIndexFormat, text, path));
  CheckpointIndex index;
  Result<RunState> run = read_run(body);
  if (!run.ok()) return Status(run.status()).add_context("in " + path);
  index.run = std::move(*run);
  DC_ASSIGN_OR_RETURN(const auto* ranks, Members(body).array("ranks"));
  for (const JsonValue& rank : *ranks) {
    CheckpointIndex::Manifest& manifest = index.manifests.emplace_back();
    DC_ASSIGN_OR_RETURN(manifest.file, Members(rank).text("file"));
    DC_ASSIGN_OR_RETURN(manifest.sha256, Members(rank).text("sha256"));
    DC_RETURN_IF_ERROR(check_name(manifest.file, path));
  }
  return index;
}

std::string write_manifest(const RankManifest& manifest) {
  JsonWriter json;
  json.begin_object().key("files").begin_array();
  for (const RankManifest::File& file : manifest.files) {
    json.begin_object().field("file", file.name).field("bytes", file.bytes);
    json.field("header_bytes", file.header_bytes);
    write_checksum(json, "header_", file.header_checksum);
    json.end_object();
  }
  json.end_array().key("pieces").begin_array();
  for (const Piece& piece : manifest.pieces) write_piece(json, piece);
  return seal(kManifestFormat, json.end_array().end_object().text());
}

Result<RankManifest> read_manifest(std::string_view text, const std::string& path) {
  DC_ASSIGN_OR_RETURN(const JsonValue body, unseal(kManifestFormat, text, path));
  RankManifest manifest;
  DC_ASSIGN_OR_RETURN(const auto* files, Members(body).array("files"));
  for (const JsonValue& value : *files) {
    Result<RankManifest::File> file = read_file_entry(value);
    if (!file.ok()) return Status(file.status()).add_context("in " + path);
    DC_RETURN_IF_ERROR(check_name(file->name, path));
    manifest.files.push_back(std::move(*file));
  }
  DC_ASSIGN_OR_RETURN(const auto* pieces, Members(body).array("pieces"));
  for (const JsonValue& value : *pieces) {
    Result<Piece> piece = read_piece(value);
    if (!piece.ok()) return Status(piece.status()).add_context("in " + path);
    DC_RETURN_IF_ERROR(check_name(piece->file, path));
    manifest.pieces.push_back(std::move(*piece));
  }
  return manifest;
}

std::string manifest_name(int rank, int world) {
  return "rank-" + std::to_string(rank) + "-of-" + std::to_string(world) + ".json";
}

std::string shard_name(int rank, int world) {
  return "rank-" + std::to_string(rank) + "-of-" + std::to_string(world) + ".safetensors";
}

}  // namespace dc::runtime::checkpoint
