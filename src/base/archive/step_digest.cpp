#include "src/base/archive/step_digest.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <vector>

#include "src/base/json_events.h"
#include "src/base/sha256.h"

namespace dc::base::archive {
namespace {

using Keys = std::span<const std::string>;

// Hashes a document as a sequence of values, so that white space does not count. `counts` says
// which members of objects do.
class HashedJson : public JsonEvents {
 public:
  using Counts = bool (*)(Keys path);
  HashedJson(Sha256& hash, Counts counts) : hash_(hash), counts_(counts) {}
  // After the document.
  void finish() { hash_.update(text_); }

  bool null() override { return value("n"); }
  bool boolean(bool v) override { return value(v ? "t" : "f"); }
  bool integer(int64_t v) override {
    add_number("i", v);
    return value("");
  }
  bool real(double v) override { return value({reinterpret_cast<const char*>(&v), sizeof(v)}); }
  bool string(std::string_view v) override {
    add_sized("s", v);
    return value("");
  }
  bool key(std::string_view v) override {
    if (path_.size() == keys_) path_.emplace_back();
    if (skipped_from_ == 0) path_[keys_] = v;
    ++keys_;
    if (skipped_from_ == 0 && !counts_({path_.data(), keys_})) skipped_from_ = keys_;
    add_sized("k", v);
    return true;
  }
  bool begin_object() override { return begin("{"); }
  bool begin_array() override { return begin("["); }
  bool end_object() override { return end("}"); }
  bool end_array() override { return end("]"); }

 private:
  static constexpr size_t kPiece = size_t{1} << 16;

  void add(std::string_view text) {
    if (skipped_from_ != 0) return;
    text_ += text;
    if (text_.size() < kPiece) return;
    hash_.update(text_);
    text_.clear();
  }
  void add_number(std::string_view mark, int64_t number) {
    if (skipped_from_ != 0) return;
    std::array<char, 24> digits;
    const auto [behind, error] =
        std::to_chars(digits.data(), digits.data() + digits.size(), number);
    add(mark);
    add({digits.data(), static_cast<size_t>(behind - digits.data())});
  }
  void add_sized(std::string_view mark, std::string_view text) {
    add_number(mark, static_cast<int64_t>(text.size()));
    add(":");
    add(text);
  }
  bool value(std::string_view text) {
    add(text);
    end_member();
    return true;
  }
  bool begin(std::string_view mark) {
    add(mark);
    keys_before_.push_back(keys_);
    return true;
  }
  bool end(std::string_view mark) {
    add(mark);
    keys_before_.pop_back();
    end_member();
    return true;
  }
  // A value inside an object ends the member that its key began; one inside an array does not.
  void end_member() {
    const size_t outer = keys_before_.empty() ? 0 : keys_before_.back();
    if (keys_ <= outer) return;
    --keys_;
    if (skipped_from_ > keys_) skipped_from_ = 0;
  }

  Sha256& hash_;
  Counts counts_;
  std::string text_;               // what is not yet hashed
  std::vector<std::string> path_;  // the first `keys_`: the keys around the current value
  size_t keys_ = 0;
  std::vector<size_t> keys_before_;  // for each open object or array: keys around it
  size_t skipped_from_ = 0;          // length of the path that is skipped; 0: nothing is
};

bool counts_in_graph(Keys path) {
  if (path.size() == 1) return path[0] == "graph_module" || path[0] == "range_constraints";
  if (path.size() == 2 && path[0] == "graph_module") {
    return path[1] == "graph" || path[1] == "signature";
  }
  return path.back() != "metadata";  // stack traces and marks of nodes
}

bool counts_in_description(Keys path) {
  constexpr std::array<std::string_view, 4> kRead = {"inputs", "loss_scale", "aliases",
                                                     "optimizer"};
  if (path.size() == 1) return std::find(kRead.begin(), kRead.end(), path[0]) != kRead.end();
  // Ranges of inputs without a bound in the graph come from the sample that was traced.
  return path[0] != "inputs" || (path.back() != "low" && path.back() != "high");
}

struct Part {
  std::string_view name;
  const ZipEntry* entry;
};

std::vector<Part> parts_below(const ZipArchive& archive, std::string_view folder) {
  std::vector<Part> parts;
  for (const ZipEntry& entry : archive.entries()) {
    const std::string_view name = archive.below_root(entry);
    if (name.starts_with(folder)) parts.push_back({name, &entry});
  }
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return a.name < b.name; });
  return parts;
}

std::vector<Part> json_below(const ZipArchive& archive, std::string_view folder) {
  std::vector<Part> parts = parts_below(archive, folder);
  std::erase_if(parts, [](const Part& part) { return !part.name.ends_with(".json"); });
  return parts;
}

Result<std::string> hash_json(const ZipArchive& archive, std::span<const Part> parts,
                              HashedJson::Counts counts, Sha256& hash) {
  for (const Part& part : parts) {
    DC_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, archive.read(*part.entry));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    HashedJson events(hash, counts);
    DC_RETURN_IF_ERROR(parse_json(text, part.name, events));
    events.finish();
  }
  return hash.hex();
}

Result<std::string> hash_bytes(const ZipArchive& archive, std::string_view folder) {
  Sha256 hash;
  for (const Part& part : parts_below(archive, folder)) {
    hash.update(std::to_string(part.name.size()) + ":" + std::string(part.name) +
                std::to_string(part.entry->size) + ":");
    DC_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, archive.read(*part.entry));
    hash.update(bytes);
  }
  return hash.hex();
}

}  // namespace

struct GraphHash::State {
  Sha256 hash;
  HashedJson events{hash, counts_in_graph};
};

GraphHash::GraphHash() : state_(std::make_unique<State>()) {}
GraphHash::~GraphHash() = default;
JsonEvents& GraphHash::events() { return state_->events; }

Sha256& GraphHash::finish() {
  state_->events.finish();
  return state_->hash;
}

namespace {

// The document that was read may begin the hash; behind another it is parsed again.
Result<std::string> hash_graphs(const ZipArchive& archive, const ReadEntry& read) {
  const std::vector<Part> parts = json_below(archive, "models/");
  if (!parts.empty() && parts[0].entry == read.entry) {
    return hash_json(archive, std::span(parts).subspan(1), counts_in_graph, read.hash->finish());
  }
  Sha256 hash;
  return hash_json(archive, parts, counts_in_graph, hash);
}

}  // namespace

Result<StepDigest> step_digest(const ZipArchive& archive, const ReadEntry& read) {
  StepDigest digest;
  DC_ASSIGN_OR_RETURN(digest[0], hash_graphs(archive, read));
  DC_ASSIGN_OR_RETURN(digest[1], hash_bytes(archive, "data/constants/"));
  Sha256 description;
  DC_ASSIGN_OR_RETURN(digest[2], hash_json(archive, json_below(archive, "extra/dcc.json"),
                                           counts_in_description, description));
  return digest;
}

}  // namespace dc::base::archive
