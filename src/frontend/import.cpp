#include "src/frontend/import.h"

#include <utility>

#include "src/base/archive/step_digest.h"
#include "src/frontend/archive_files.h"
#include "src/frontend/bind.h"
#include "src/frontend/build.h"
#include "src/frontend/checks.h"
#include "src/frontend/description.h"
#include "src/frontend/digest.h"
#include "src/frontend/evaluation.h"
#include "src/frontend/graph_reader.h"
#include "src/frontend/inputs.h"
#include "src/frontend/optimizer.h"
#include "src/frontend/shared_records.h"
#include "src/frontend/ties.h"
#include "src/frontend/weights.h"

namespace dc::frontend {
namespace {

using base::Result;
using base::Status;

Result<Description> describe(const ArchiveFiles& files) {
  if (files.description.empty()) return Description();
  DC_ASSIGN_OR_RETURN(const std::string text, read_text(files.zip, files.description));
  return read_description(text, files.description);
}

Result<ir::Step> import_files(const ArchiveFiles& files, const ImportOptions& options,
                              std::vector<std::string>& notes) {
  const base::TrainConfig& config = options.config;
  const base::archive::ZipEntry* graph = files.zip.find(files.model);
  DC_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, files.zip.read(*graph));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  base::archive::GraphHash hash;
  DC_ASSIGN_OR_RETURN(RawModel model, read_graph(text, files.model, &hash.events()));
  if (model.schema_minor > kSchemaMinor) {
    notes.push_back("the archive has schema version 8." + std::to_string(model.schema_minor) +
                    ", newer than the 8." + std::to_string(kSchemaMinor) +
                    " this dcc was tried with");
  }
  DC_ASSIGN_OR_RETURN(const Description description, describe(files));
  DC_RETURN_IF_ERROR(check_exported(model));
  DC_RETURN_IF_ERROR(bind_dims(model, description, options.dims, notes));
  DC_RETURN_IF_ERROR(check_model(model));
  notes.insert(notes.end(), description.notes.begin(), description.notes.end());
  DC_ASSIGN_OR_RETURN(const Weights weights, Weights::read(files));
  DC_ASSIGN_OR_RETURN(const auto ties, find_ties(model, description, weights));
  DC_RETURN_IF_ERROR(check_shared_records(model, ties, weights));
  DC_ASSIGN_OR_RETURN(ir::Step step,
                      build_step(std::move(model), {files, weights, description, ties}));
  if (files.description.empty()) {
    notes.push_back(
        "the archive is not of scripts/export.py: nothing has compared it with its module, and "
        "PyTorch's "
        "own export replaces operators by formulas of which some are not what its kernels compute "
        "(cli/dcc.md); compare losses and gradients with PyTorch's");
  }
  DC_RETURN_IF_ERROR(describe_inputs(description, step, notes));
  if (!description.has_optimizer && !config.kind) {
    notes.push_back(
        "the archive does not describe an optimizer; AdamW with PyTorch's defaults is "
        "used where the configuration is silent");
  }
  Result<ir::Optimizer> optimizer =
      make_optimizer(base::merge(description.training, config), step.parameters);
  if (!optimizer.ok() && !options.config_path.empty())
    return std::move(optimizer).status().add_context("in " + options.config_path);
  DC_ASSIGN_OR_RETURN(step.optimizer, std::move(optimizer));
  step.model_digest = model_digest(step);
  DC_ASSIGN_OR_RETURN(const auto digests, base::archive::step_digest(files.zip, {graph, &hash}));
  step.step_digest.assign(digests.begin(), digests.end());
  // Last, so that the model's identity is that of its training.
  if (!files.evaluation.empty()) {
    DC_RETURN_IF_ERROR(add_evaluation({files, weights, description, ties}, options.dims, step));
  }
  // Here a fault is the archive's; what a verifier finds after a pass counts as the pass's.
  DC_RETURN_IF_ERROR(ir::verify(step, ir::Stage::Imported));
  return step;
}

}  // namespace

Result<ir::Step> import_archive(const std::string& path, const ImportOptions& options) {
  DC_ASSIGN_OR_RETURN(const ArchiveFiles files, open_archive(path));
  std::vector<std::string> notes;
  Result<ir::Step> step = import_files(files, options, notes);
  if (!step.ok()) return Status(step.status()).add_context("in " + path);
  if (options.notes != nullptr) *options.notes = std::move(notes);
  return step;
}

}  // namespace dc::frontend
