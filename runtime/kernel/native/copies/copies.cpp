// Tensors made of other tensors' elements: copies, conversions, concatenation, padding, gradients
// of views, triangles.
#include <algorithm>

#include "runtime/kernel/native/copies/regions.h"
#include "src/base/checked.h"

namespace dc::runtime::kernel::native {
namespace {

// The argument's elements, of whatever type, in the result.
Made copy_of(Call& call, std::string_view name) {
  const BoundTensor from = call.tensor(name), to = call.output(0);
  auto kernel = std::make_unique<CopyRegions>();
  kernel->copy(call, Region(to), Region(from));
  return call.made(std::move(kernel));
}
Made copy_self(Call& call) { return copy_of(call, "self"); }
Made copy_source(Call& call) { return copy_of(call, "src"); }

Made cat(Call& call) {
  const auto parts = call.tensors("tensors");
  const BoundTensor to = call.output(0);
  const size_t dim = call.dim("dim", to);
  call.require(!to.sizes.empty(), "its result has no dims");
  auto kernel = std::make_unique<CopyRegions>();
  int64_t at = 0;
  for (const auto& part : parts) {
    call.require(part.has_value(), "an operand is missing");
    if (!call.ok()) break;
    // torch lets an operand without elements have one dim, whatever the others have.
    if (part->sizes.size() == 1 && part->sizes[0] == 0) continue;
    call.same_sizes(*part, to, dim);
    if (!call.ok()) break;
    const int64_t size = part->sizes[dim];
    call.require(size <= to.sizes[dim] - at, "its operands are longer than the result");
    if (!call.ok()) break;
    kernel->copy(call, Region(to).narrowed(dim, at, size), Region(*part));
    at += size;
  }
  if (call.ok()) call.require(at == to.sizes[dim], "its operands are shorter than the result");
  kernel->take_turns();
  return call.made(std::move(kernel));
}

Made stack(Call& call) {
  const auto parts = call.tensors("tensors");
  const BoundTensor to = call.output(0);
  const size_t dim = call.dim("dim", to);
  call.require(!to.sizes.empty(), "its result has no dims");
  if (!call.ok()) return call.made(nullptr);
  call.require(to.sizes[dim] == static_cast<int64_t>(parts.size()),
               "the result has another number of operands");
  auto kernel = std::make_unique<CopyRegions>();
  for (size_t i = 0; i < parts.size() && call.ok(); ++i) {
    call.require(parts[i].has_value(), "an operand is missing");
    if (!call.ok()) break;
    const Region place = Region(to).selected(dim, static_cast<int64_t>(i));
    call.same_sizes(*parts[i], place.bound());
    kernel->copy(call, place, Region(*parts[i]));
  }
  return call.made(std::move(kernel));
}

Made flip(Call& call) {
  const BoundTensor from = call.tensor("self"), to = call.output(0);
  call.same_sizes(from, to);
  Region reversed(from);
  for (int64_t dim : call.integers("dims")) {
    const auto dims = static_cast<int64_t>(from.sizes.size());
    if (dim < 0) dim += dims;
    call.require(dim >= 0 && dim < dims, "'dims' has one that the operand lacks");
    if (!call.ok()) break;
    const auto at = static_cast<size_t>(dim);
    call.require(reversed.strides[at] == from.strides[at] || from.strides[at] == 0,
                 "'dims' has one twice");
    if (from.sizes[at] > 0)
      reversed = reversed.narrowed(at, from.sizes[at] - 1, from.sizes[at], -1);
  }
  auto kernel = std::make_unique<CopyRegions>();
  kernel->copy(call, Region(to), reversed);
  return call.made(std::move(kernel));
}

// How far the elements of each dim move, each below the dim's size. Without 'dims' the number of
// an element in row-major order grows, and these are its digits.
std::vector<int64_t> roll_shifts(Call& call, const BoundTensor& self) {
  const std::vector<int64_t> shifts = call.integers("shifts"), dims = call.integers("dims");
  const auto rank = static_cast<int64_t>(self.sizes.size());
  std::vector<int64_t> of_dims(self.sizes.size(), 0);
  call.require(shifts.size() == (dims.empty() ? 1 : dims.size()),
               "'shifts' and 'dims' do not fit each other");
  if (!call.ok()) return of_dims;
  const auto remainder = [](int64_t a, int64_t size) { return (a % size + size) % size; };
  if (dims.empty()) {
    int64_t rest = remainder(shifts[0], self.numel());
    for (size_t d = self.sizes.size(); d-- > 0; rest /= self.sizes[d])
      of_dims[d] = rest % self.sizes[d];
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = dims[i] + (dims[i] < 0 ? rank : 0);
    call.require(dim >= 0 && dim < rank, "'dims' has one that the operand lacks");
    if (!call.ok()) break;
    const auto d = static_cast<size_t>(dim);
    of_dims[d] = remainder(of_dims[d] + remainder(shifts[i], self.sizes[d]), self.sizes[d]);
  }
  return of_dims;
}

// Elements move to higher places of each dim, the last ones to its start: so there are two parts
// for each dim. Without 'dims' those that go to the start move one place more in the dim before.
Made roll(Call& call) {
  const BoundTensor from = call.tensor("self"), to = call.output(0);
  auto kernel = std::make_unique<CopyRegions>();
  call.same_sizes(from, to);
  if (!call.ok() || to.numel() == 0) return call.made(std::move(kernel));
  const std::vector<int64_t> shifts = roll_shifts(call, from);
  const bool is_flat = call.integers("dims").empty();
  struct Part {
    Region to, from;
    bool is_at_start;  // of the dim behind
  };
  std::vector<Part> parts = {{Region(to), Region(from), false}};
  for (size_t d = to.sizes.size(); d-- > 0;) {
    std::vector<Part> split;
    for (const Part& part : parts) {
      const int64_t size = to.sizes[d];
      const int64_t shift = shifts[d] + (is_flat && part.is_at_start ? 1 : 0), rest = size - shift;
      if (rest > 0)
        split.push_back({part.to.narrowed(d, shift, rest), part.from.narrowed(d, 0, rest), false});
      if (shift > 0)
        split.push_back({part.to.narrowed(d, 0, shift), part.from.narrowed(d, rest, shift), true});
    }
    parts = std::move(split);
  }
  for (const Part& part : parts) kernel->copy(call, part.to, part.from);
  return call.made(std::move(kernel));
}

// `pad` counts from the last dim: before, after; a negative number cuts.
Made pad(Call& call) {
  const BoundTensor from = call.tensor("self"), to = call.output(0);
  const std::vector<int64_t> pads = call.integers("pad");
  call.require(from.sizes.size() == to.sizes.size() && pads.size() <= 2 * to.sizes.size() &&
                   pads.size() % 2 == 0,
               "'pad' does not fit the operand");
  if (!call.ok()) return call.made(nullptr);
  for (size_t dim = 0; dim < to.sizes.size(); ++dim) {
    const size_t at = 2 * (to.sizes.size() - 1 - dim);
    const bool is_padded = at < pads.size();
    auto size = base::checked_add(from.sizes[dim], is_padded ? pads[at] : 0);
    if (size) size = base::checked_add(*size, is_padded ? pads[at + 1] : 0);
    call.require(size == to.sizes[dim], "'pad' does not fit the result");
  }
  auto kernel = std::make_unique<CopyRegions>();
  if (call.ok()) {
    Region target(to), source(from);
    if (call.has_value("value")) {
      kernel->fill_with_argument(call, target, "value");
    } else {
      kernel->fill(call, target, 0.0);
    }
    for (size_t i = 0; 2 * i < pads.size(); ++i) {
      const size_t dim = to.sizes.size() - 1 - i;
      const int64_t before = std::clamp(pads[2 * i], -from.sizes[dim], to.sizes[dim]);
      const int64_t cut = std::max<int64_t>(-before, 0), start = std::max<int64_t>(before, 0);
      const int64_t size = std::min(from.sizes[dim] - cut, to.sizes[dim] - start);
      target = target.narrowed(dim, start, size);
      source = source.narrowed(dim, cut, size);
    }
    kernel->copy(call, target, source);
  }
  return call.made(std::move(kernel));
}

// The part of the result that a slice is: [start, end) of one dim in steps.
Region slice_of(Call& call, const BoundTensor& whole, const BoundTensor& part) {
  Region region(whole);
  const size_t dim = call.dim("dim", whole);
  const int64_t step = call.integer("step", 1);
  int64_t start = call.integer("start", 0);
  if (!call.ok() || whole.sizes.empty()) return region;
  const int64_t size = whole.sizes[dim];
  if (start < 0) start += size;
  start = std::clamp<int64_t>(start, 0, size);
  call.same_sizes(part, whole, dim);
  call.require(step > 0, "it is no slice");
  if (!call.ok()) return region;
  const int64_t count = part.sizes[dim];
  call.require(count == 0 || (start < size && count - 1 <= (size - 1 - start) / step),
               "the slice is longer than the result");
  if (!call.ok()) return region;
  return region.narrowed(dim, start, count, count > 1 ? step : 1);
}
Region selection_of(Call& call, const BoundTensor& whole) {
  const size_t dim = call.dim("dim", whole);
  int64_t index = call.integer("index");
  call.require(!whole.sizes.empty(), "it has no dims");
  if (!call.ok()) return Region(whole);
  if (index < 0) index += whole.sizes[dim];
  call.require(index >= 0 && index < whole.sizes[dim], "'index' is outside of its dim");
  return call.ok() ? Region(whole).selected(dim, index) : Region(whole);
}

Made slice_backward(Call& call) {
  const BoundTensor g = call.tensor("grad_output"), to = call.output(0);
  const Region part = slice_of(call, to, g);
  auto kernel = std::make_unique<CopyRegions>();
  const size_t dim = call.dim("dim", to);
  if (call.ok() && !to.sizes.empty() && call.integer("step", 1) == 1) {
    const int64_t element = base::byte_size(to.dtype) * std::max<int64_t>(to.strides[dim], 1);
    const int64_t start = (part.data - static_cast<std::byte*>(to.data)) / element;
    kernel->fill_around(call, Region(to), dim, start, start + part.sizes[dim], 0.0);
  } else {
    kernel->fill(call, Region(to), 0.0);
  }
  kernel->copy(call, part, Region(g));
  return call.made(std::move(kernel));
}
Made select_backward(Call& call) {
  const BoundTensor g = call.tensor("grad_output"), to = call.output(0);
  const Region part = selection_of(call, to);
  auto kernel = std::make_unique<CopyRegions>();
  kernel->fill(call, Region(to), 0.0);
  kernel->copy(call, part, Region(g));
  return call.made(std::move(kernel));
}
Made slice_scatter(Call& call) {
  const BoundTensor self = call.tensor("self"), src = call.tensor("src"), to = call.output(0);
  const Region part = slice_of(call, to, src);
  auto kernel = std::make_unique<CopyRegions>();
  kernel->copy(call, Region(to), Region(self));
  kernel->copy(call, part, Region(src));
  return call.made(std::move(kernel));
}
Made select_scatter(Call& call) {
  const BoundTensor self = call.tensor("self"), src = call.tensor("src"), to = call.output(0);
  const Region part = selection_of(call, to);
  auto kernel = std::make_unique<CopyRegions>();
  kernel->copy(call, Region(to), Region(self));
  kernel->copy(call, part, Region(src));
  return call.made(std::move(kernel));
}

// The result is the operand, `repeats` times along each dim: a view with twice the dims.
Made repeat(Call& call) {
  const BoundTensor self = call.tensor("self"), to = call.output(0);
  auto kernel = std::make_unique<CopyRegions>();
  call.require(self.sizes.size() <= to.sizes.size(), "the result has fewer dims than the operand");
  if (call.ok()) {
    const size_t added = to.sizes.size() - self.sizes.size();
    Region target(to), source(self);
    target.sizes.clear(), target.strides.clear(), source.sizes.clear(), source.strides.clear();
    for (size_t dim = 0; dim < to.sizes.size(); ++dim) {
      const int64_t size = dim < added ? 1 : self.sizes[dim - added];
      const int64_t times = size == 0 ? 0 : to.sizes[dim] / size;
      call.require(times * size == to.sizes[dim], "the result is no whole number of operands");
      target.sizes.insert(target.sizes.end(), {times, size});
      target.strides.insert(target.strides.end(), {to.strides[dim] * size, to.strides[dim]});
      source.sizes.insert(source.sizes.end(), {times, size});
      source.strides.insert(source.strides.end(), {0, dim < added ? 0 : self.strides[dim - added]});
    }
    kernel->copy(call, target, source);
  }
  return call.made(std::move(kernel));
}

// Every element `repeats` times in a row, along one dim or, without it, of all elements: a view
// with a dim more.
Made repeat_interleave(Call& call) {
  const BoundTensor self = call.tensor("self"), to = call.output(0);
  const int64_t repeats = call.integer("repeats");
  auto kernel = std::make_unique<CopyRegions>();
  call.require(repeats >= 0 && !to.sizes.empty(), "it repeats no element");
  const bool is_flat = !call.has_value("dim");
  const size_t dim = is_flat ? 0 : call.dim("dim", self);
  if (!is_flat) call.same_sizes(self, to, dim);
  if (!call.ok()) return call.made(nullptr);
  const int64_t size = is_flat ? self.numel() : self.sizes[dim];
  call.require(
      (!is_flat || to.sizes.size() == 1) && base::checked_mul(size, repeats) == to.sizes[dim],
      "the result has another shape");
  if (!call.ok() || to.numel() == 0) return call.made(std::move(kernel));
  Region source(self), target(to);
  const int64_t step = to.strides[dim];
  target.sizes = source.sizes;
  if (!is_flat) target.strides[dim] *= repeats;
  if (is_flat) {
    target.strides.resize(source.sizes.size());
    int64_t stride = step * repeats;
    for (size_t each = source.sizes.size(); each-- > 0; stride *= source.sizes[each])
      target.strides[each] = stride;
  }
  target.sizes.push_back(repeats), target.strides.push_back(step);
  source.sizes.push_back(repeats), source.strides.push_back(0);
  kernel->copy(call, target, source);
  return call.made(std::move(kernel));
}

// Row r of a matrix keeps its columns from (triu) or to (tril) r + diagonal.
template <bool kLower>
Made triangle(Call& call) {
  const BoundTensor self = call.tensor("self"), to = call.output(0);
  const size_t dims = to.sizes.size();
  call.require(dims >= 2, "it needs two dims");
  call.same_sizes(self, to);
  auto kernel = std::make_unique<CopyRegions>();
  if (call.ok() && to.numel() > 0) {
    kernel->fill(call, Region(to), 0.0);
    const int64_t rows = to.sizes[dims - 2], columns = to.sizes[dims - 1];
    const int64_t diagonal = std::clamp(call.integer("diagonal", 0), -rows, columns);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t edge = std::clamp<int64_t>(row + diagonal + (kLower ? 1 : 0), 0, columns);
      const int64_t start = kLower ? 0 : edge, size = kLower ? edge : columns - edge;
      if (size == 0) continue;
      const auto part = [&](const BoundTensor& tensor) {
        return Region(tensor).narrowed(dims - 2, row, 1).narrowed(dims - 1, start, size);
      };
      kernel->copy(call, part(to), part(self));
    }
  }
  return call.made(std::move(kernel));
}

Made value_of(Call& call, std::string_view name) {
  auto kernel = std::make_unique<CopyRegions>();
  const BoundTensor to = call.output(0);
  if (call.is_tensor(name)) {
    const BoundTensor value = call.tensor(name);
    kernel->copy(call, Region(to), Region(value));
  } else {
    kernel->fill_with_argument(call, Region(to), name);
  }
  return call.made(std::move(kernel));
}
Made fill_value(Call& call) { return value_of(call, "fill_value"); }
Made value(Call& call) { return value_of(call, "value"); }
Made scalar_tensor(Call& call) { return value_of(call, "s"); }

template <int kValue>
Made constant(Call& call) {
  auto kernel = std::make_unique<CopyRegions>();
  const BoundTensor to = call.output(0);
  kernel->fill(call, Region(to), int64_t{kValue});
  return call.made(std::move(kernel));
}

// What PyTorch leaves as it is.
Made nothing(Call& call) { return call.made(std::make_unique<CopyRegions>()); }

constexpr Row kRows[] = {
    {"aten._to_copy.default", copy_self},
    {"aten.cat.default", cat},
    {"aten.clone.default", copy_self},
    {"aten.constant_pad_nd.default", pad},
    {"aten.copy.default", copy_source},
    {"aten.empty.memory_format", nothing},
    {"aten.empty_like.default", nothing},
    {"aten.empty_permuted.default", nothing},
    {"aten.empty_strided.default", nothing},
    {"aten.expand_copy.default", copy_self},
    {"aten.fill.Scalar", value},
    {"aten.fill.Tensor", value},
    {"aten.flip.default", flip},
    {"aten.full.default", fill_value},
    {"aten.full_like.default", fill_value},
    {"aten.new_empty.default", nothing},
    {"aten.new_empty_strided.default", nothing},
    {"aten.new_full.default", fill_value},
    {"aten.new_ones.default", constant<1>},
    {"aten.new_zeros.default", constant<0>},
    {"aten.ones.default", constant<1>},
    {"aten.ones_like.default", constant<1>},
    {"aten.repeat.default", repeat},
    {"aten.repeat_interleave.self_int", repeat_interleave},
    {"aten.roll.default", roll},
    {"aten.scalar_tensor.default", scalar_tensor},
    {"aten.select_backward.default", select_backward},
    {"aten.select_scatter.default", select_scatter},
    {"aten.slice_backward.default", slice_backward},
    {"aten.slice_scatter.default", slice_scatter},
    {"aten.stack.default", stack},
    {"aten.tril.default", triangle<true>},
    {"aten.triu.default", triangle<false>},
    {"aten.zero.default", constant<0>},
    {"aten.zeros.default", constant<0>},
    {"aten.zeros_like.default", constant<0>},
};

}  // namespace

std::span<const Row> copy_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
