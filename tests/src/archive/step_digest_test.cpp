// What the digest of a step covers, as text: plans carry it, so it must not change.
#include "src/base/archive/step_digest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/base/sha256.h"
#include "tests/src/archive/temporary_folder.h"
#include "tests/src/archive/zip_builder.h"

namespace dc::base::archive {
namespace {

const std::string kGraph = R"({
  "other": {"deep": [1]},
  "graph_module": {
    "graph": {"nodes": [{"metadata": {"stack": ["a", {"b": 1}]}, "target": "x\n", "inputs": [-1, 1.5, true, null]}]},
    "notes": "left out"
  },
  "range_constraints": {}
})";

// Every value with what kind it is and how long, every key that counts.
std::string canonical() {
  const double real = 1.5;
  return "{k12:graph_module{k5:graph{k5:nodes[{k6:targets2:x\nk6:inputs[i-1" +
         std::string(reinterpret_cast<const char*>(&real), sizeof(real)) +
         "tn]}]}}k17:range_constraints{}}";
}

// `read`: what the caller has read of the graph; empty: nothing.
// `others`: further graphs.
StepDigest digest_of(const std::string& graph, const std::string& read = "",
                     const std::vector<std::string>& others = {}) {
  tests::TemporaryFolder folder;
  tests::ZipBuilder builder;
  builder.add({.name = "m/models/model.json", .data = graph, .deflate = true});
  builder.add("m/data/constants/c", "abc").add("m/models/model.txt", "no JSON");
  for (const std::string& name : others) builder.add("m/models/" + name, R"({"graph_module": {}})");
  const auto archive = ZipArchive::open(folder.write("a.pt2", builder.build()));
  EXPECT_TRUE(archive.ok());
  ReadEntry entry;
  GraphHash hash;
  if (!read.empty()) {
    EXPECT_TRUE(parse_json(read, "the graph", hash.events()).ok());
    entry = {archive->find("models/model.json"), &hash};
  }
  const auto digest = step_digest(*archive, entry);
  EXPECT_TRUE(digest.ok()) << digest.status().to_string();
  return digest.ok() ? *digest : StepDigest();
}

TEST(StepDigest, HashesWhatCounts) {
  const StepDigest digest = digest_of(kGraph);
  EXPECT_EQ(digest[0], sha256_hex(canonical()));
  EXPECT_EQ(digest[1], sha256_hex("16:data/constants/c3:abc"));
  EXPECT_EQ(digest[2], sha256_hex(""));
}

TEST(StepDigest, TakesWhatWasRead) {
  std::string other = kGraph;
  other.replace(other.find("1.5"), 3, "2.5");
  EXPECT_NE(digest_of(other), digest_of(kGraph));
  EXPECT_EQ(digest_of(kGraph, other), digest_of(other));
}

TEST(StepDigest, TakesWhatWasReadNextToOthers) {
  const std::vector<std::string> behind = {"z.json"}, before = {"a.json"};
  EXPECT_EQ(digest_of(kGraph, kGraph, behind), digest_of(kGraph, "", behind));
  EXPECT_EQ(digest_of(kGraph, kGraph, before), digest_of(kGraph, "", before));
  EXPECT_NE(digest_of(kGraph, kGraph, behind), digest_of(kGraph, kGraph, before));
}

TEST(StepDigest, ALongDocumentIsHashedInPieces) {
  std::string graph = "{\"graph_module\": {\"graph\": [", text = "{k12:graph_module{k5:graph[";
  for (int i = 0; i < 50000; ++i) {
    graph += (i == 0 ? "" : ", ") + std::to_string(i);
    text += "i" + std::to_string(i);
  }
  EXPECT_EQ(digest_of(graph + "]}}")[0], sha256_hex(text + "]}}"));
}

}  // namespace
}  // namespace dc::base::archive
