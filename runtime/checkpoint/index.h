// The two kinds of JSON in a checkpoint: the index of the folder, and what one rank wrote.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/checkpoint/piece.h"
#include "src/base/json.h"

namespace dc::runtime::checkpoint {

// How far a run has come in its data. `samples` counts all that were read since the first start;
// the next one is sample `in_epoch` of the order of epoch `epoch`.
struct DataPosition {
  int64_t samples = 0;
  int64_t epoch = 0, in_epoch = 0;
  bool operator==(const DataPosition&) const = default;
};

// Where a run is, and what it is: enough to go on, and to say what is different when it does.
struct RunState {
  int64_t step = 0;  // updates that the parameters have seen
  DataPosition data;
  uint64_t seed = 0;         // of random numbers, whose counters are step, micro-batch and rank
  std::string optimizer;     // "adamw", "sgd"
  std::string model_digest;  // of the plan; this and the next two are empty if none wrote it
  std::vector<std::string> step_digest;
  std::string plan_digest;
  int world = 1;
  base::JsonValue configuration = base::JsonValue::object();  // texts and numbers by name
};

// index.json, written last: a folder that has it is whole.
struct CheckpointIndex {
  RunState run;
  struct Manifest {
    std::string file, sha256;
  };
  std::vector<Manifest> manifests;  // one per rank that wrote
};
std::string write_index(const CheckpointIndex& index);
base::Result<CheckpointIndex> read_index(std::string_view text, const std::string& path);

// rank-R-of-N.json: the pieces that rank R wrote, in the order of their places in their files, and
// the files that it laid out.
struct RankManifest {
  struct File {
    std::string name;
    int64_t bytes = 0;
    int64_t header_bytes = 0;  // before the first tensor
    Checksum header_checksum;
  };
  std::vector<File> files;
  std::vector<Piece> pieces;
};
std::string write_manifest(const RankManifest& manifest);
base::Result<RankManifest> read_manifest(std::string_view text, const std::string& path);

inline constexpr std::string_view kIndexName = "index.json";
inline constexpr std::string_view kWeightsName = "model.safetensors";
std::string manifest_name(int rank, int world);  // "rank-0-of-2.json"
std::string shard_name(int rank, int world);     // "rank-0-of-2.safetensors"

}  // namespace dc::runtime::checkpoint
