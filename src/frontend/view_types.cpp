#include "src/frontend/view_types.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/checked.h"
#include "src/frontend/reshape.h"

namespace dc::frontend {
namespace {

using ir::TensorType;
using MaybeType = std::optional<TensorType>;
using MaybeTypes = std::optional<std::vector<TensorType>>;

// A strided tensor that a rule makes a view of.
struct Viewed {
  const TensorType& self;
  const OperatorArgs& args;
  int64_t before;  // elements before the storage's first one, which as_strided's offset includes

  size_t rank() const { return self.shape.size(); }
  // The dim that an argument names.
  std::optional<size_t> dim(std::string_view name, int64_t otherwise) const {
    const auto given = args.integer(name, otherwise);
    return given ? wrapped_dim(*given, rank()) : std::nullopt;
  }
};

MaybeType view(const Viewed& v) {
  const auto shape = v.args.integers("size");
  return shape ? reshaped(v.self, *shape) : std::nullopt;
}

// It comes with strides, which must be those of a view.
MaybeType reshape_alias(const Viewed& v) {
  const MaybeType result = view(v);
  const auto strides = v.args.integers("stride");
  if (!result || !strides || strides->size() != result->shape.size()) return std::nullopt;
  TensorType given = *result;
  given.strides = *strides;
  return same_places(given, *result) ? result : std::nullopt;
}

MaybeType as_strided(const Viewed& v) {
  TensorType result = v.self;
  const auto shape = v.args.integers("size");
  const auto strides = v.args.integers("stride");
  const auto offset = v.args.integer("storage_offset", v.self.offset + v.before);
  if (!shape || !strides || shape->size() != strides->size() || !offset) return std::nullopt;
  const auto negative = [](int64_t number) { return number < 0; };
  if (std::any_of(shape->begin(), shape->end(), negative) ||
      std::any_of(strides->begin(), strides->end(), negative) || *offset < v.before) {
    return std::nullopt;
  }
  result.shape = *shape;
  result.strides = *strides;
  result.offset = *offset - v.before;
  return result;
}

MaybeType expand(const Viewed& v) {
  const auto wanted = v.args.integers("size");
  if (!wanted || wanted->size() < v.rank()) return std::nullopt;
  const size_t added = wanted->size() - v.rank();
  TensorType result = v.self;
  result.shape = *wanted;
  result.strides.assign(wanted->size(), 0);
  for (size_t i = wanted->size(); i-- > 0;) {
    int64_t& size = result.shape[i];
    if (i < added) {
      if (size < 0) return std::nullopt;
      const bool keeps = size == 1 && v.rank() > 0;
      if (keeps) result.strides[i] = result.shape[i + 1] * result.strides[i + 1];
      continue;
    }
    const int64_t own = v.self.shape[i - added];
    if (size == -1) size = own;
    if (size < 0 || (size != own && own != 1)) return std::nullopt;
    if (size == own) result.strides[i] = v.self.strides[i - added];
  }
  return result;
}

MaybeType permute(const Viewed& v) {
  const auto dims = v.args.integers("dims");
  if (!dims || dims->size() != v.rank()) return std::nullopt;
  TensorType result = v.self;
  std::vector<bool> taken(v.rank());
  for (size_t i = 0; i < v.rank(); ++i) {
    const auto dim = wrapped_dim((*dims)[i], v.rank());
    if (!dim || taken[*dim]) return std::nullopt;
    taken[*dim] = true;
    result.shape[i] = v.self.shape[*dim];
    result.strides[i] = v.self.strides[*dim];
  }
  return result;
}

TensorType swapped(TensorType type, size_t a, size_t b) {
  std::swap(type.shape[a], type.shape[b]);
  std::swap(type.strides[a], type.strides[b]);
  return type;
}

MaybeType transpose(const Viewed& v) {
  if (v.args.find("dim0") == nullptr || v.args.find("dim1") == nullptr) return std::nullopt;
  const auto a = v.dim("dim0", 0), b = v.dim("dim1", 0);
  if (!a || !b) return std::nullopt;
  return v.rank() == 0 ? v.self : swapped(v.self, *a, *b);
}

MaybeType t(const Viewed& v) {
  if (v.rank() > 2) return std::nullopt;
  return v.rank() < 2 ? v.self : swapped(v.self, 0, 1);
}

void erase_dim(TensorType& type, size_t dim) {
  type.shape.erase(type.shape.begin() + static_cast<std::ptrdiff_t>(dim));
  type.strides.erase(type.strides.begin() + static_cast<std::ptrdiff_t>(dim));
}

TensorType selected(TensorType type, size_t dim, int64_t index) {
  type.offset += index * type.strides[dim];
  erase_dim(type, dim);
  return type;
}

MaybeType select(const Viewed& v) {
  const auto dim = v.dim("dim", 0);
  const auto index = v.args.integer("index");
  if (v.rank() == 0 || !dim || !index) return std::nullopt;
  const int64_t size = v.self.shape[*dim];
  if (*index < -size || *index >= size) return std::nullopt;
  return selected(v.self, *dim, *index < 0 ? *index + size : *index);
}

// `length` elements of a dim from `begin` on.
TensorType narrowed(TensorType type, size_t dim, int64_t begin, int64_t length) {
  type.offset += begin * type.strides[dim];
  type.shape[dim] = length;
  return type;
}

MaybeType slice(const Viewed& v) {
  const auto dim = v.dim("dim", 0);
  const auto start = v.args.integer("start", 0), end = v.args.integer("end", INT64_MAX);
  const auto step = v.args.integer("step", 1);
  if (v.rank() == 0 || !dim || !start || !end || !step || *step < 1) return std::nullopt;
  const int64_t size = v.self.shape[*dim];
  const auto clamped = [size](int64_t at, int64_t least) {
    return std::clamp(at < 0 ? at + size : at, least, size);
  };
  const int64_t first = clamped(*start, 0);
  const int64_t span = clamped(*end, first) - first;
  const auto stride = base::checked_mul(v.self.strides[*dim], *step);
  if (!stride) return std::nullopt;
  TensorType result = narrowed(v.self, *dim, first, span / *step + (span % *step != 0 ? 1 : 0));
  result.strides[*dim] = *stride;
  return result;
}

MaybeTypes pieces(const Viewed& v, size_t dim, const std::vector<int64_t>& lengths) {
  std::vector<TensorType> results;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    if (length < 0 || length > v.self.shape[dim] - begin) return std::nullopt;
    results.push_back(narrowed(v.self, dim, begin, length));
    begin += length;
  }
  return begin == v.self.shape[dim] ? MaybeTypes(std::move(results)) : std::nullopt;
}

MaybeTypes split(const Viewed& v) {
  const auto dim = v.dim("dim", 0);
  const auto length = v.args.integer("split_size");
  if (v.rank() == 0 || !dim || !length || *length < 0) return std::nullopt;
  const int64_t size = v.self.shape[*dim];
  if (*length == 0 && size != 0) return std::nullopt;
  std::vector<int64_t> lengths;
  for (int64_t left = size; left > 0; left -= lengths.back())
    lengths.push_back(std::min(left, *length));
  if (lengths.empty()) lengths.push_back(0);
  return pieces(v, *dim, lengths);
}

MaybeTypes split_with_sizes(const Viewed& v) {
  const auto dim = v.dim("dim", 0);
  const auto lengths = v.args.integers("split_sizes");
  if (v.rank() == 0 || !dim || !lengths) return std::nullopt;
  return pieces(v, *dim, *lengths);
}

MaybeTypes unbind(const Viewed& v) {
  const auto dim = v.dim("dim", 0);
  if (v.rank() == 0 || !dim) return std::nullopt;
  std::vector<TensorType> results;
  for (int64_t i = 0; i < v.self.shape[*dim]; ++i) results.push_back(selected(v.self, *dim, i));
  return results;
}

TensorType without_dims_of_one(TensorType type, const std::vector<bool>& chosen) {
  for (size_t i = type.shape.size(); i-- > 0;) {
    if (chosen[i] && type.shape[i] == 1) erase_dim(type, i);
  }
  return type;
}

MaybeType squeeze(const Viewed& v) {
  return without_dims_of_one(v.self, std::vector<bool>(v.rank(), true));
}

MaybeType squeeze_dims(const Viewed& v) {
  const auto dims = v.args.integers("dim");
  if (!dims) return std::nullopt;
  std::vector<bool> chosen(v.rank());
  for (const int64_t given : *dims) {
    const auto dim = wrapped_dim(given, v.rank());
    if (!dim) return std::nullopt;
    if (v.rank() > 0) chosen[*dim] = true;
  }
  return without_dims_of_one(v.self, chosen);
}

MaybeType unsqueeze(const Viewed& v) {
  const auto given = v.args.integer("dim");
  const auto dim = given ? wrapped_dim(*given, v.rank() + 1) : std::nullopt;
  if (!dim) return std::nullopt;
  TensorType result = v.self;
  const auto at = static_cast<std::ptrdiff_t>(*dim);
  const int64_t stride = *dim < v.rank() ? v.self.shape[*dim] * v.self.strides[*dim] : int64_t{1};
  result.shape.insert(result.shape.begin() + at, 1);
  result.strides.insert(result.strides.begin() + at, stride);
  return result;
}

MaybeType diagonal(const Viewed& v) {
  const auto a = v.dim("dim1", 0), b = v.dim("dim2", 1);
  const auto shift = v.args.integer("offset", 0);
  if (v.rank() < 2 || !a || !b || *a == *b || !shift) return std::nullopt;
  const int64_t right = std::max<int64_t>(*shift, 0);
  const int64_t down = *shift < 0 ? -std::max(*shift, -INT64_MAX) : 0;
  const int64_t length = std::min(v.self.shape[*a] - down, v.self.shape[*b] - right);
  TensorType result = v.self;
  if (length > 0) result.offset += right * v.self.strides[*b] + down * v.self.strides[*a];
  erase_dim(result, std::max(*a, *b));
  erase_dim(result, std::min(*a, *b));
  result.shape.push_back(std::max<int64_t>(length, 0));
  result.strides.push_back(v.self.strides[*a] + v.self.strides[*b]);
  return result;
}

MaybeType unfold(const Viewed& v) {
  const auto dim = v.dim("dimension", 0);
  const auto size = v.args.integer("size"), step = v.args.integer("step");
  if (!dim || !size || !step || *size < 0 || *step < 1) return std::nullopt;
  TensorType result = v.self;
  const int64_t length = v.rank() == 0 ? 1 : v.self.shape[*dim];
  const int64_t stride = v.rank() == 0 ? 1 : v.self.strides[*dim];
  const auto wider = base::checked_mul(stride, *step);
  if (*size > length || !wider) return std::nullopt;
  if (v.rank() > 0) {
    result.shape[*dim] = (length - *size) / *step + 1;
    result.strides[*dim] = *wider;
  }
  result.shape.push_back(*size);
  result.strides.push_back(stride);
  return result;
}

MaybeType same(const Viewed& v) { return v.self; }

struct ViewRule {
  std::string_view overload, arguments;
  MaybeType (*one)(const Viewed&) = nullptr;
  MaybeTypes (*several)(const Viewed&) = nullptr;
};

constexpr std::array<ViewRule, 22> kRules = {
    {{"aten.alias.default", "self", same},
     {"aten.detach.default", "self", same},
     {"aten.lift_fresh.default", "self", same},
     {"aten.as_strided.default", "self,size,stride,storage_offset", as_strided},
     {"aten.diagonal.default", "self,offset,dim1,dim2", diagonal},
     {"aten.expand.default", "self,size,implicit", expand},
     {"aten.permute.default", "self,dims", permute},
     {"aten.select.int", "self,dim,index", select},
     {"aten.slice.Tensor", "self,dim,start,end,step", slice},
     {"aten.split.Tensor", "self,split_size,dim", nullptr, split},
     {"aten.split_with_sizes.default", "self,split_sizes,dim", nullptr, split_with_sizes},
     {"aten.squeeze.default", "self", squeeze},
     {"aten.squeeze.dim", "self,dim", squeeze_dims},
     {"aten.squeeze.dims", "self,dim", squeeze_dims},
     {"aten.t.default", "self", t},
     {"aten.transpose.int", "self,dim0,dim1", transpose},
     {"aten.unbind.int", "self,dim", nullptr, unbind},
     {"aten.unfold.default", "self,dimension,size,step", unfold},
     {"aten.unsqueeze.default", "self,dim", unsqueeze},
     {"aten.view.default", "self,size", view},
     {"aten._reshape_alias.default", "self,size,stride", reshape_alias},
     {"aten._unsafe_view.default", "self,size", view}}};

// Nothing computed from them later may overflow.
bool is_countable(const TensorType& type) {
  constexpr int64_t kMost = int64_t{1} << 57;
  return type.offset < kMost && std::all_of(type.strides.begin(), type.strides.end(),
                                            [](int64_t stride) { return stride < kMost; });
}

}  // namespace

MaybeTypes view_types(std::string_view overload, const TensorType& self, const OperatorArgs& args,
                      int64_t before) {
  const auto row = std::find_if(kRules.begin(), kRules.end(),
                                [overload](const ViewRule& r) { return r.overload == overload; });
  if (row == kRules.end() || !args.are_among(row->arguments)) return std::nullopt;
  const Viewed viewed{self, args, before};
  MaybeTypes results;
  if (row->several != nullptr) {
    results = row->several(viewed);
  } else if (MaybeType result = row->one(viewed)) {
    results = {*std::move(result)};
  }
  if (results && !std::all_of(results->begin(), results->end(), is_countable)) return std::nullopt;
  return results;
}

}  // namespace dc::frontend
