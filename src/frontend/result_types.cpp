#include "src/frontend/result_types.h"

#include <algorithm>
#include <numeric>

#include "src/frontend/reshape.h"
#include "src/frontend/result_rules.h"
#include "src/frontend/view_types.h"

namespace dc::frontend {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;
using ir::TensorType;

std::string list_of(const std::vector<int64_t>& numbers) {
  std::string text;
  for (const int64_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return "[" + text + "]";
}

std::string text_of(const TensorType& type) {
  return std::string(base::name(type.dtype)) + list_of(type.shape) + " with strides " +
         list_of(type.strides) + " and offset " + std::to_string(type.offset);
}

Status contradicts(const std::string& what) {
  return Status(ErrorKind::BadInput, "DC2049",
                what +
                    "; the file is damaged, was edited, or is of another PyTorch: export the "
                    "model again");
}

// Whether no two elements share a place and none is left between them, in some order of the dims.
bool is_dense(const TensorType& type) {
  std::vector<size_t> dims;
  for (size_t i = 0; i < type.shape.size(); ++i) {
    if (type.shape[i] != 1) dims.push_back(i);
  }
  std::sort(dims.begin(), dims.end(),
            [&type](size_t a, size_t b) { return type.strides[a] < type.strides[b]; });
  int64_t expected = 1;
  for (const size_t dim : dims) {
    if (type.strides[dim] != expected) return false;
    expected *= type.shape[dim];
  }
  return true;
}

bool reads_by_strides(std::string_view overload) {
  return overload == "aten.as_strided.default" || overload == "aten.as_strided_scatter.default";
}

// These copy the whole storage of their first operand, what lies before its first element included.
bool copies_storage(std::string_view overload) {
  return overload == "aten.slice_scatter.default" || overload == "aten.select_scatter.default" ||
         overload == "aten.diagonal_scatter.default" ||
         overload == "aten.as_strided_scatter.default";
}

class ResultTypes {
 public:
  ResultTypes(std::string_view overload, const std::vector<Operand>& operands,
              const std::vector<ir::Arg>& args, const std::vector<Recorded>& recorded)
      : overload_(overload), operands_(operands), args_(args), recorded_(recorded) {}

  Result<std::vector<ResultType>> run() const {
    if (reads_by_strides(overload_) && !operands_.empty() && !operands_[0].placement.is_certain) {
      return Status(ErrorKind::Unsupported, "DC2050",
                    std::string(overload_) +
                        " reads memory by strides, and those of its operand are known from the "
                        "archive only; call .clone(memory_format=torch.contiguous_format) on the "
                        "tensor before as_strided, and export again");
    }
    return ir::aten_info(overload_)->alias == ir::AliasRule::View ? views() : fresh();
  }

 private:
  Result<std::vector<ResultType>> views() const {
    const ir::Arg* self = args_.find("self");
    const auto* reference = self == nullptr ? nullptr : std::get_if<ir::OperandRef>(&self->value);
    if (reference == nullptr || reference->index != 0 || operands_.size() != 1) {
      return contradicts("a view is of one tensor, its argument 'self'");
    }
    const auto& [type, placement] = operands_[0];
    const auto computed = view_types(overload_, type, args_, placement.before);
    if (!computed) {
      return contradicts("the arguments do not fit the operand, which is " + text_of(type));
    }
    if (computed->size() != recorded_.size()) {
      return contradicts("the archive records " + std::to_string(recorded_.size()) +
                         " results, but the operator gives " + std::to_string(computed->size()));
    }
    std::vector<ResultType> results;
    for (size_t i = 0; i < computed->size(); ++i) {
      DC_RETURN_IF_ERROR(compare(recorded_[i], (*computed)[i], placement));
      results.push_back({(*computed)[i], placement});
    }
    return results;
  }

  static Status compare(const Recorded& recorded, TensorType computed, const Placement& of) {
    if (!recorded.type) return base::ok_status();
    computed.offset += of.before;
    const bool same = of.is_recorded ? same_places(*recorded.type, computed)
                                     : recorded.type->shape == computed.shape;
    if (same && recorded.type->dtype == computed.dtype) return base::ok_status();
    return contradicts("the archive records " + recorded.name + " as " + text_of(*recorded.type) +
                       ", but this view is " + text_of(computed));
  }

  Result<std::vector<ResultType>> fresh() const {
    std::vector<const TensorType*> types;
    for (const Operand& operand : operands_) types.push_back(&operand.type);
    const Call call{overload_, types, args_};
    if (!operands_fit(call)) {
      std::string sizes;
      for (const TensorType* type : types) sizes += " " + list_of(type->shape);
      return contradicts("the operator does not take operands of sizes" + sizes + " together");
    }
    std::vector<ResultType> results;
    for (size_t i = 0; i < recorded_.size(); ++i) {
      if (!recorded_[i].type) {
        results.push_back({});
        continue;
      }
      DC_ASSIGN_OR_RETURN(results.emplace_back(), fresh_result(call, i));
    }
    return results;
  }

  Result<ResultType> fresh_result(const Call& call, size_t index) const {
    const Recorded& recorded = recorded_[index];
    ResultType result{*recorded.type, {}};
    const KnownResult known = known_result(call, index);
    if (known.shape && *known.shape != result.type.shape) {
      return contradicts("the archive records sizes " + list_of(result.type.shape) + " for " +
                         recorded.name + ", but the operator gives " + list_of(*known.shape));
    }
    if (known.dtype && *known.dtype != result.type.dtype) {
      return contradicts("the archive records element type " +
                         std::string(base::name(result.type.dtype)) + " for " + recorded.name +
                         ", but the operator gives " + std::string(base::name(*known.dtype)));
    }
    place(call, index, result);
    return result;
  }

  // Kernels write where the plan says, so strides other than their own cost a copy, no number.
  void place(const Call& call, size_t index, ResultType& result) const {
    TensorType& type = result.type;
    const TensorType recorded = type;
    const auto strides = known_strides(call, index, type.shape);
    if (strides && strides->size() == type.shape.size()) {
      type.strides = *strides;
    } else {
      result.placement.is_certain = false;
    }
    if (type.numel() == 0 || !is_dense(type)) {
      type.strides = ir::contiguous_strides(type.shape);
      result.placement.is_certain = false;
    }
    const bool moved = copies_storage(overload_) && !operands_.empty() &&
                       operands_[0].type.offset + operands_[0].placement.before != 0;
    if (type.offset != 0 || moved) result.placement.is_certain = false;
    type.offset = 0;
    result.placement.is_recorded = same_places(recorded, type);
  }

  std::string_view overload_;
  const std::vector<Operand>& operands_;
  const OperatorArgs args_;
  const std::vector<Recorded>& recorded_;
};

}  // namespace

Result<std::vector<ResultType>> result_types(std::string_view overload,
                                             const std::vector<Operand>& operands,
                                             const std::vector<ir::Arg>& args,
                                             const std::vector<Recorded>& recorded) {
  return ResultTypes(overload, operands, args, recorded).run();
}

}  // namespace dc::frontend
