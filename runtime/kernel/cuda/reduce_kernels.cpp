// Sums, means, extremes, products, variances, norms.
#include "runtime/kernel/cuda/reduce_kernels.h"

#include <algorithm>
#include <cmath>

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/element_type.h"
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/reduce_parameters.h"
#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/cuda/walks.h"
#include "runtime/kernel/native/reductions/split.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::Result;
using native::Call;
using native::Made;

// Chosen by shapes and strides alone, since the order of terms depends on it.
enum class How : uint8_t { ByBlocks, ByRows, ByColumns };

// A fold on its way to a kernel.
struct Fold {
  Reduce parameters{};
  How how = How::ByBlocks;
  base::DType from{}, to{};
  double count = 0;  // elements of each result
};
How how_to_fold(const Reduce& fold, bool reduces_neighbours) {
  if (!reduces_neighbours) return How::ByColumns;
  // Few long rows are worth a block each.
  constexpr int64_t kLong = 16384, kMany = 1024;
  const bool is_row = fold.folded.dims == 1 && fold.folded.strides[0][0] == 1;
  const bool is_short = fold.folded.count <= kLong || fold.kept.count >= kMany;
  return is_row && is_short ? How::ByRows : How::ByBlocks;
}

Fold make_fold(Call& call, const BoundTensor& self, const BoundTensor& to,
               const std::vector<int64_t>& dims) {
  const native::DimSplit split(call, self, to, dims);
  Fold fold;
  if (!call.ok()) return fold;
  fold.parameters = {self.data, to.data, walk_of<2>(call, split.kept()),
                     walk_of<1>(call, split.reduced()), 1.0};
  fold.how = how_to_fold(fold.parameters, split.reduces_neighbours());
  fold.from = self.dtype;
  fold.to = to.dtype;
  fold.count = static_cast<double>(split.reduced_count());
  return fold;
}
Fold read_fold(Call& call, size_t result) {
  return make_fold(call, call.tensor("self"), call.output(result), call.integers("dim"));
}

// The text of a kernel `how` of such element types; `of_totals`: of what was folded in part;
// `lanes`: threads of a row, or 0 for kernels that do not ask.
KernelSource fold_source(const std::string& how, const std::string& kind, base::DType from,
                         base::DType to, const char* parameters, bool of_totals = false,
                         int64_t lanes = 0) {
  const std::string result = element_type(to);
  std::string term = element_type(from), name = "dc_" + how + "_" + kind;
  if (of_totals) {
    term = "Total<" + term + ", " + result + ">";
    name += "_total";
  }
  for (const base::DType dtype : {from, to}) name.append("_").append(base::name(dtype));
  std::string arguments = term + ", " + result + ", " + kind;
  if (lanes > 0) {
    name += "_" + std::to_string(lanes);
    arguments += ", " + std::to_string(lanes);
  }
  return source_of(name, "reduce.h", parameters, how + "<" + arguments + ">");
}

// Threads of a block that make one result.
constexpr int64_t kThreadsOfColumn = kBlockThreads / kResultsOfBlock;
int64_t threads_of(const Fold& fold) {
  if (fold.how == How::ByBlocks) return kBlockThreads;
  return fold.how == How::ByRows ? row_lanes(fold.parameters.folded.count) : kThreadsOfColumn;
}

Result<Launch> fold_launch(Workshop& workshop, const Fold& fold, const std::string& kind) {
  const int64_t threads = threads_of(fold);
  const bool is_by_rows = fold.how == How::ByRows;
  const std::string how = fold.how == How::ByBlocks ? "reduce_by_blocks"
                          : is_by_rows              ? "reduce_by_rows"
                                                    : "reduce_by_columns";
  return workshop.launch(
      fold_source(how, kind, fold.from, fold.to, "Reduce", false, is_by_rows ? threads : 0),
      workshop.blocks_for(fold.parameters.kept.count * threads), fold.parameters);
}

// A kernel of the parts' totals and one that folds these.
base::Status add_parts(Workshop& workshop, const Fold& fold, const BoundTensor& result,
                       const std::string& kind, int64_t parts, int32_t stream,
                       std::vector<Launch>& launches) {
  const Reduce& of = fold.parameters;
  DC_ASSIGN_OR_RETURN(
      std::byte* const totals,
      workshop.scratch(stream, parts * of.kept.count * static_cast<int64_t>(sizeof(double))));
  const ReduceParts first{of, parts, (of.folded.count + parts - 1) / parts, totals};
  DC_ASSIGN_OR_RETURN(
      Launch launch,
      workshop.launch(
          fold_source("reduce_parts_by_columns", kind, fold.from, fold.to, "ReduceParts"),
          workshop.blocks_for(of.kept.count * parts * kThreadsOfColumn), first));
  launches.push_back(std::move(launch));
  DC_ASSIGN_OR_RETURN(launch, totals_launch(workshop, {totals, parts, kind, fold.from, &result,
                                                       &of.kept, of.divisor}));
  launches.push_back(std::move(launch));
  return {};
}

Made fold_kernel(Workshop& workshop, Call& call, int32_t stream, const std::string& kind,
                 bool is_mean = false) {
  Fold fold = read_fold(call, 0);
  if (!call.ok()) return call.made(nullptr);
  if (is_mean) fold.parameters.divisor = fold.count;
  std::vector<Launch> launches;
  const int64_t parts = fold.how == How::ByColumns
                            ? column_parts(fold.parameters.kept.count, fold.parameters.folded.count)
                            : 1;
  if (parts > 1) {
    DC_RETURN_IF_ERROR(add_parts(workshop, fold, call.output(0), kind, parts, stream, launches));
  } else {
    DC_ASSIGN_OR_RETURN(Launch launch, fold_launch(workshop, fold, kind));
    launches.push_back(std::move(launch));
  }
  return workshop.kernel(std::move(launches));
}

// A sum of truths is true where any is, a product where all are.
Made sum_kernel(Workshop& workshop, Call& call, int32_t stream) {
  const bool is_truth = call.output(0).dtype == base::DType::Bool;
  return fold_kernel(workshop, call, stream, is_truth ? "AnyFold" : "SumFold");
}
Made mean_kernel(Workshop& workshop, Call& call, int32_t stream) {
  call.require(base::is_floating(call.output(0).dtype), "its result must be floating-point");
  return fold_kernel(workshop, call, stream, "SumFold", true);
}
Made product_kernel(Workshop& workshop, Call& call, int32_t stream) {
  const bool is_truth = call.output(0).dtype == base::DType::Bool;
  return fold_kernel(workshop, call, stream, is_truth ? "AllFold" : "ProductFold");
}
Made max_kernel(Workshop& workshop, Call& call, int32_t stream) {
  return fold_kernel(workshop, call, stream, "MaxFold");
}
Made min_kernel(Workshop& workshop, Call& call, int32_t stream) {
  return fold_kernel(workshop, call, stream, "MinFold");
}
Made any_kernel(Workshop& workshop, Call& call, int32_t stream) {
  return fold_kernel(workshop, call, stream, "AnyFold");
}
Made all_kernel(Workshop& workshop, Call& call, int32_t stream) {
  return fold_kernel(workshop, call, stream, "AllFold");
}

Made variance_kernel(Workshop& workshop, Call& call, bool takes_root) {
  const Fold fold = read_fold(call, 0);
  call.require(base::is_floating(fold.from) && base::is_floating(fold.to),
               "a variance is of floating-point numbers");
  const double correction = call.number("correction", 1);
  if (!call.ok()) return call.made(nullptr);
  Variance parameters{fold.parameters, takes_root};
  parameters.of.divisor = std::max(fold.count - correction, 0.0);
  std::vector<Launch> launches(1);
  DC_ASSIGN_OR_RETURN(
      launches[0],
      workshop.launch(
          source_for({fold.from, fold.to}, "dc_variance", "reduce.h", "Variance", "variance"),
          workshop.blocks_for(fold.parameters.kept.count * kBlockThreads), parameters));
  const bool has_mean = call.op() == "aten.var_mean.correction" && call.has_result(1);
  if (has_mean) {
    Fold mean = read_fold(call, 1);
    call.require(base::is_floating(mean.to), "its mean must be floating-point");
    if (!call.ok()) return call.made(nullptr);
    mean.parameters.divisor = mean.count;
    DC_ASSIGN_OR_RETURN(Launch launch, fold_launch(workshop, mean, "SumFold"));
    launches.push_back(std::move(launch));
  }
  return workshop.kernel(std::move(launches));
}
Made var_kernel(Workshop& workshop, Call& call, int32_t) {
  return variance_kernel(workshop, call, false);
}
Made std_kernel(Workshop& workshop, Call& call, int32_t) {
  return variance_kernel(workshop, call, true);
}

// A block makes a result.
template <typename Parameters>
Made kernel_by_blocks(Workshop& workshop, const Fold& fold, const char* type,
                      const std::string& function, const Parameters& parameters) {
  return workshop.kernel(
      source_for({fold.from, fold.to}, "dc_" + function, "reduce.h", type, function),
      workshop.blocks_for(fold.parameters.kept.count * kBlockThreads), parameters);
}

Made logsumexp_kernel(Workshop& workshop, Call& call, int32_t) {
  const Fold fold = read_fold(call, 0);
  call.require(base::is_floating(fold.to), "its result must be floating-point");
  if (!call.ok()) return call.made(nullptr);
  return kernel_by_blocks(workshop, fold, "Reduce", "logsumexp", fold.parameters);
}

Made vector_norm_kernel(Workshop& workshop, Call& call, std::string_view power) {
  const double p = call.number(power, 2);
  const Fold fold = read_fold(call, 0);
  call.require(base::is_floating(fold.from) && base::is_floating(fold.to),
               "a norm is of floating-point numbers");
  if (!call.ok()) return call.made(nullptr);
  VectorNorm parameters{fold.parameters, NormKind::Power, p};
  if (p == 0) parameters.kind = NormKind::Count;
  if (p == 1) parameters.kind = NormKind::Magnitudes;
  if (p == 2) parameters.kind = NormKind::Squares;
  if (std::isinf(p)) parameters.kind = p > 0 ? NormKind::Largest : NormKind::Smallest;
  return kernel_by_blocks(workshop, fold, "VectorNorm", "vector_norm", parameters);
}
Made norm_by_order_kernel(Workshop& workshop, Call& call, int32_t) {
  return vector_norm_kernel(workshop, call, "ord");
}
Made norm_by_p_kernel(Workshop& workshop, Call& call, int32_t) {
  return vector_norm_kernel(workshop, call, "p");
}

constexpr ModelKernelRow kReduceRows[] = {
    {"aten.all.default", all_kernel},
    {"aten.all.dim", all_kernel},
    {"aten.amax.default", max_kernel},
    {"aten.amin.default", min_kernel},
    {"aten.any.default", any_kernel},
    {"aten.any.dim", any_kernel},
    {"aten.any.dims", any_kernel},
    {"aten.linalg_vector_norm.default", norm_by_order_kernel},
    {"aten.logsumexp.default", logsumexp_kernel},
    {"aten.max.default", max_kernel},
    {"aten.norm.Scalar", norm_by_p_kernel},
    {"aten.norm.ScalarOpt_dim", norm_by_p_kernel},
    {"aten.mean.default", mean_kernel},
    {"aten.mean.dim", mean_kernel},
    {"aten.min.default", min_kernel},
    {"aten.prod.default", product_kernel},
    {"aten.prod.dim_int", product_kernel},
    {"aten.std.correction", std_kernel},
    {"aten.sum.default", sum_kernel},
    {"aten.sum.dim_IntList", sum_kernel},
    {"aten.var.correction", var_kernel},
    {"aten.var_mean.correction", var_kernel},
};

}  // namespace

Result<Launch> sum_launch(Workshop& workshop, Call& call, const BoundTensor& from,
                          const BoundTensor& to, const std::vector<int64_t>& dims) {
  const Fold fold = make_fold(call, from, to, dims);
  if (!call.ok()) return call.made(nullptr).status();
  return fold_launch(workshop, fold, "SumFold");
}

int64_t column_parts(int64_t results, int64_t terms) {
  constexpr int64_t kMostParts = 64, kLeastTerms = 64, kManyResults = 32768;
  return results < kManyResults ? std::clamp<int64_t>(terms / kLeastTerms, 1, kMostParts) : 1;
}

Result<Launch> totals_launch(Workshop& workshop, const Totals& totals) {
  Reduce fold{totals.data, totals.to->data, *totals.kept, {}, totals.divisor};
  int64_t stride = 1;
  for (int64_t d = fold.kept.dims; d-- > 0; stride *= fold.kept.sizes[d])
    fold.kept.strides[d][0] = stride;
  fold.folded = {totals.parts, 1, {totals.parts}, {{fold.kept.count}}};
  return workshop.launch(
      fold_source("reduce_by_columns", totals.fold, totals.from, totals.to->dtype, "Reduce", true),
      workshop.blocks_for(fold.kept.count * kThreadsOfColumn), fold);
}

std::span<const ModelKernelRow> reduce_kernels() { return kReduceRows; }

}  // namespace dc::runtime::kernel::cuda
