// Finds the parts of a model.pt2 archive.
#pragma once

#include <string>
#include <vector>

#include "src/base/archive/zip.h"
#include "src/base/status.h"

namespace dc::frontend {

struct ArchiveFiles {
  base::archive::ZipArchive zip;
  std::string model;                   // "models/model.json"
  std::vector<std::string> weights;    // configurations below data/weights/
  std::vector<std::string> constants;  // configurations below data/constants/
  std::string description;             // "extra/dcc.json"; empty if the archive has none
  std::string evaluation;              // "extra/evaluation.json", the same
};

// Refuses other kinds of files: older exports, inference packages, plain weights.
base::Result<ArchiveFiles> open_archive(const std::string& path);

// The contents of an entry as text, CRC checked.
base::Result<std::string> read_text(const base::archive::ZipArchive& zip, const std::string& name);

}  // namespace dc::frontend
