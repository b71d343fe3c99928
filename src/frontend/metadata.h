// Where a node comes from, read from its metadata.
//
// The exporter's own marks come first: custom = {"ph": "f" or "b", "m": module, "acc": 1}.
// Otherwise the module is the path of the last entry of nn_module_stack, and the phase is left
// open.
#pragma once

#include <unordered_map>

#include "src/frontend/raw_model.h"
#include "src/frontend/tape.h"

namespace dc::frontend {

class MetadataReader {
 public:
  explicit MetadataReader(Names& names) : names_(names) {}
  void read(TapeValue metadata, RawNode& node);

 private:
  struct Marks {
    Name module = 0;
    bool has_module = false;
    bool has_phase = false;
    bool backward = false;
    bool accumulates = false;
  };
  // The same few texts stand on thousands of nodes, so each is parsed once.
  const Marks& marks_of(std::string_view custom);
  Name module_of(std::string_view stack);
  Names& names_;
  std::unordered_map<std::string, Marks> marks_;   // lookups only
  std::unordered_map<std::string, Name> modules_;  // lookups only
  std::string key_;
};

}  // namespace dc::frontend
