// An archive from tests/data whose entries a test changes before importing it again.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "src/base/archive/zip.h"
#include "src/frontend/import.h"
#include "tests/source_dir.h"
#include "tests/src/archive/temporary_folder.h"
#include "tests/src/archive/zip_builder.h"

namespace dc::tests {

inline constexpr const char* kModel = "models/model.json";
inline constexpr const char* kDescription = "extra/dcc.json";
inline constexpr const char* kWeights = "data/weights/model_weights_config.json";

class EditedArchive {
 public:
  explicit EditedArchive(const std::string& name) {
    auto zip = base::archive::ZipArchive::open(std::string(dc::kSourceDir) + "/tests/data/" + name);
    EXPECT_TRUE(zip.ok()) << zip.status().to_string();
    if (!zip.ok()) return;
    for (const auto& entry : zip->entries()) {
      const auto bytes = zip->read(entry);
      entries_.emplace_back(std::string(zip->below_root(entry)),
                            std::string(bytes->begin(), bytes->end()));
    }
  }

  std::string& operator[](const std::string& name) {
    for (auto& [entry, text] : entries_) {
      if (entry == name) return text;
    }
    return entries_.emplace_back(name, "").second;
  }
  EditedArchive& remove(const std::string& name) {
    std::erase_if(entries_, [&name](const auto& entry) { return entry.first == name; });
    return *this;
  }
  // Replaces every occurrence; the text must occur.
  EditedArchive& replace(const std::string& entry, const std::string& from, const std::string& to) {
    std::string& text = (*this)[entry];
    EXPECT_NE(text.find(from), std::string::npos) << from;
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
      text.replace(at, from.size(), to);
    }
    return *this;
  }
  EditedArchive& reverse() {
    std::reverse(entries_.begin(), entries_.end());
    return *this;
  }

  base::Result<ir::Step> import(const frontend::ImportOptions& options = {},
                                const std::string& root = "m") const {
    ZipBuilder builder;
    for (const auto& [name, text] : entries_) {
      std::string path = root;
      path.append("/").append(name);
      builder.add(path, text);
    }
    return frontend::import_archive(folder_.write("model.pt2", builder.build()), options);
  }

 private:
  std::vector<std::pair<std::string, std::string>> entries_;
  TemporaryFolder folder_;
};

inline const ir::Node* find_node(const ir::Step& step, const std::string& result) {
  const ir::Graph& graph = step.programs[0].graph;
  const ir::ValueId value = graph.find_value(result);
  return value.valid() ? &graph.node(graph.value(value).producer) : nullptr;
}

}  // namespace dc::tests
