// Fuzz target: arbitrary bytes as the index and as a manifest of a checkpoint, as they are and
// sealed with the digest that they should have, so that what is behind the digest is reached too;
// and as the only manifest of a folder with one file of tensors. What is accepted is written again
// alike and names bytes that are there, or the reader says what is wrong.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/checkpoint/reader.h"
#include "runtime/checkpoint/sealed_json.h"
#include "src/base/sha256.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using namespace dc;           // NOLINT
using namespace dc::runtime;  // NOLINT

constexpr checkpoint::SealedFormat kIndex{"dcc-checkpoint", 1}, kManifest{"dcc-checkpoint-rank", 1};
constexpr int64_t kMostRead = 1 << 16;  // elements of one value

void require(bool holds) {
  if (!holds) std::abort();
}

void explained(const base::Status& failure) { require(!failure.to_string().empty()); }

void try_index(const std::string& text) {
  const auto index = checkpoint::read_index(text, "index.json");
  if (!index.ok()) return explained(index.status());
  const std::string again = checkpoint::write_index(*index);
  const auto reread = checkpoint::read_index(again, "index.json");
  require(reread.ok() && checkpoint::write_index(*reread) == again);
}

void try_manifest(const std::string& text) {
  const auto manifest = checkpoint::read_manifest(text, "manifest.json");
  if (!manifest.ok()) return explained(manifest.status());
  for (const checkpoint::Piece& piece : manifest->pieces) {
    require(piece.first >= 0 && piece.count >= 0 && piece.at >= 0);
    require(piece.first + piece.count <= piece.numel());
    require(piece.file.find('/') == std::string::npos);
  }
  const std::string again = checkpoint::write_manifest(*manifest);
  const auto reread = checkpoint::read_manifest(again, "manifest.json");
  require(reread.ok() && checkpoint::write_manifest(*reread) == again);
}

// A folder that lasts as long as the process: one file of tensors, and what is tried.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "checkpoint-fuzz-XXXXXX").string();
    require(mkdtemp(name.data()) != nullptr);
    path_ = name;
    const std::string header =
        R"({"a":{"dtype":"F32","shape":[4,8],"data_offsets":[0,128]},"b":{"dtype":"U8","shape":[16],"data_offsets":[128,144]}})";
    std::string file(8, '\0');
    file[0] = static_cast<char>(header.size());
    write("data.safetensors", file + header + std::string(144, '\0'));
  }
  ~Folder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  void try_manifest(const std::string& sealed) const {
    checkpoint::CheckpointIndex index;
    index.run.optimizer = "adamw";
    index.manifests = {{"rank-0-of-1.json", base::sha256_hex(sealed)}};
    write("rank-0-of-1.json", sealed);
    write("index.json", checkpoint::write_index(index));
    auto reader = checkpoint::CheckpointReader::open(path_);
    if (!reader.ok()) return explained(reader.status());
    for (const checkpoint::ValueId& id : (*reader)->values()) read(**reader, id);
    const base::Status verified = (*reader)->verify();
    if (!verified.ok()) explained(verified);
  }

 private:
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
  }
  static void read(checkpoint::CheckpointReader& reader, const checkpoint::ValueId& id) {
    const checkpoint::CheckpointReader::Value* value = reader.find(id);
    require(value != nullptr);
    int64_t elements = 1;
    for (const int64_t size : value->sizes) elements *= size;
    if (elements > kMostRead) return;
    std::vector<std::byte> out(static_cast<size_t>(elements * base::byte_size(value->dtype)));
    const base::Status status = reader.read(id, 0, elements, out.data());
    if (!status.ok()) explained(status);
    if (elements > 2) (void)reader.read(id, 1, elements - 2, out.data());
  }
  std::string path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Folder folder;
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const std::string& index : {text, checkpoint::seal(kIndex, text)}) try_index(index);
  const std::string sealed = checkpoint::seal(kManifest, text);
  for (const std::string& manifest : {text, sealed}) try_manifest(manifest);
  folder.try_manifest(sealed);
  return 0;
}
