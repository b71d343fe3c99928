// adamw, sgd: loops over the formulas of runtime/kernel/scalar/update.h on contiguous ranges.
#include "runtime/kernel/native/update.h"

#include <algorithm>

#include "runtime/kernel/native/cast.h"
#include "runtime/kernel/native/gradient.h"
#include "runtime/kernel/native/registry.h"
#include "runtime/kernel/native/vector_clones.h"

namespace dc::runtime::kernel::native {
namespace {

using base::DType;

using scalar::AdamWFactors, scalar::AdamWState, scalar::SgdFactors, scalar::SgdState;

template <bool kFromMean>
DC_VECTOR_CLONES void adamw_range(float* __restrict p, float* __restrict m, float* __restrict v,
                                  const float* __restrict g, int64_t n, const AdamWFactors& f) {
  const AdamWFactors factors = f;
  for (int64_t i = 0; i < n; ++i) {
    const AdamWState next = scalar::adamw<kFromMean>({p[i], m[i], v[i]}, g[i], factors);
    m[i] = next.m;
    v[i] = next.v;
    p[i] = next.p;
  }
}

DC_VECTOR_CLONES void sgd_plain(float* __restrict p, const float* __restrict g, int64_t n,
                                const SgdFactors& f) {
  const SgdFactors factors = f;
  for (int64_t i = 0; i < n; ++i) p[i] = scalar::sgd_plain(p[i], g[i], factors);
}

DC_VECTOR_CLONES void sgd_first(float* __restrict p, float* __restrict buffer,
                                const float* __restrict g, int64_t n, const SgdFactors& f,
                                float nesterov) {
  const SgdFactors factors = f;
  for (int64_t i = 0; i < n; ++i) {
    const SgdState next = scalar::sgd_first(p[i], g[i], factors, nesterov);
    buffer[i] = next.buffer;
    p[i] = next.p;
  }
}

DC_VECTOR_CLONES void sgd_momentum(float* __restrict p, float* __restrict buffer,
                                   const float* __restrict g, int64_t n, const SgdFactors& f) {
  const SgdFactors factors = f;
  for (int64_t i = 0; i < n; ++i) {
    const SgdState next = scalar::sgd_momentum({p[i], buffer[i]}, g[i], factors);
    buffer[i] = next.buffer;
    p[i] = next.p;
  }
}

DC_VECTOR_CLONES void sgd_nesterov(float* __restrict p, float* __restrict buffer,
                                   const float* __restrict g, int64_t n, const SgdFactors& f) {
  const SgdFactors factors = f;
  for (int64_t i = 0; i < n; ++i) {
    const SgdState next = scalar::sgd_nesterov({p[i], buffer[i]}, g[i], factors);
    buffer[i] = next.buffer;
    p[i] = next.p;
  }
}

ControlOperands read_control(Call& call, size_t scalars_index) {
  const Dense scalars = call.operand(scalars_index, DType::F64);
  const Dense hyperparameters = call.operand(scalars_index + 1, DType::F64);
  const ControlOperands control{scalars, hyperparameters, call.integer("param"),
                                call.integer("group"), call.integer("clip") != 0};
  call.require(control.param >= 0 && control.param < scalars.count - base::kScalarFinite,
               "'param' is outside the scalars");
  const int64_t groups = (hyperparameters.count - base::kHyperGroups) / base::kHyperPerGroup;
  call.require(control.group >= 0 && control.group < groups,
               "'group' is outside the hyperparameters");
  return control;
}

Dense read_gradient(Call& call, size_t index, const Dense& p) {
  const Dense g = call.operand(index);
  call.require(base::is_floating(g.dtype), "the gradient must be of a floating type");
  call.require(g.count >= p.count, "the gradient is shorter than the parameter");
  return g;
}

// The copy is what may follow the hyperparameters.
Dense read_copy(Call& call, size_t index, const Dense& p) {
  if (call.tensor_count() <= index) return {};
  const Dense copy = call.operand(index);
  call.require(base::is_floating(copy.dtype) && copy.dtype != DType::F32,
               "the copy must be of another floating type than f32");
  call.require(copy.count == p.count, "the copy and the parameter differ in element count");
  return copy;
}

// Each block's gradient is read, the block updated and its copy written before the next one.
class Update : public Kernel {
 public:
  base::Status launch(device::Stream& stream) final {
    const scalar::UpdateControl control = control_.on(stream);
    const bool allowed = control.allowed();
    if (!allowed && copy_.data == nullptr) return {};
    if (allowed) begin(stream, control);
    GradientReader g(g_, stream, control.gradient_scale());
    const auto* p = p_.on<const float>(stream);
    auto* copy = copy_.data == nullptr ? nullptr : copy_.on<std::byte>(stream);
    for (int64_t first = 0; first < p_.count; first += kGradientBlock) {
      const int64_t n = std::min(kGradientBlock, p_.count - first);
      if (allowed) update(first, g.block(first, n), n);
      if (copy != nullptr) convert_(copy + first * base::byte_size(copy_.dtype), p + first, n);
    }
    return {};
  }

 protected:
  Update(const ControlOperands& control, const Dense& p, const Dense& g, const Dense& copy)
      : control_(control),
        p_(p),
        g_(g),
        copy_(copy),
        convert_(copy.data == nullptr ? nullptr : converter(copy.dtype, DType::F32)) {}

 private:
  virtual void begin(const device::Stream& stream, const scalar::UpdateControl& control) = 0;
  // Of the elements from `first` on, whose gradient is `g`.
  virtual void update(int64_t first, const float* g, int64_t n) = 0;

  ControlOperands control_;
  Dense p_, g_, copy_;
  Convert convert_;
};

class AdamW final : public Update {
 public:
  explicit AdamW(const AdamWOperands& o) : Update(o.control, o.p, o.g, o.copy), o_(o) {}

 private:
  void begin(const device::Stream& stream, const scalar::UpdateControl& control) override {
    factors_ = control.adamw();
    range_ = factors_.lerp < 0.5f ? adamw_range<true> : adamw_range<false>;
    p_ = o_.p.on<float>(stream);
    m_ = o_.m.on<float>(stream);
    v_ = o_.v.on<float>(stream);
  }
  void update(int64_t first, const float* g, int64_t n) override {
    range_(p_ + first, m_ + first, v_ + first, g, n, factors_);
  }

  AdamWOperands o_;
  AdamWFactors factors_;
  decltype(&adamw_range<true>) range_ = nullptr;
  float *p_ = nullptr, *m_ = nullptr, *v_ = nullptr;
};

class Sgd final : public Update {
 public:
  explicit Sgd(const SgdOperands& o) : Update(o.control, o.p, o.g, o.copy), o_(o) {}

 private:
  void begin(const device::Stream& stream, const scalar::UpdateControl& control) override {
    factors_ = control.sgd();
    is_first_ = control.step() <= 1;
    p_ = o_.p.on<float>(stream);
    buffer_ = o_.buffer.on<float>(stream);
  }
  void update(int64_t first, const float* g, int64_t n) override {
    float *const p = p_ + first, *const buffer = buffer_ + first;
    if (!o_.momentum) {
      sgd_plain(p, g, n, factors_);
    } else if (is_first_) {
      sgd_first(p, buffer, g, n, factors_, o_.nesterov ? factors_.momentum : 0.0f);
    } else if (o_.nesterov) {
      sgd_nesterov(p, buffer, g, n, factors_);
    } else {
      sgd_momentum(p, buffer, g, n, factors_);
    }
  }

  SgdOperands o_;
  SgdFactors factors_;
  bool is_first_ = false;
  float *p_ = nullptr, *buffer_ = nullptr;
};

Made make_adamw(Call& call) { return call.finish<AdamW>(read_adamw(call)); }
Made make_sgd(Call& call) { return call.finish<Sgd>(read_sgd(call)); }

constexpr Row kRows[] = {
    {"dc.adamw", make_adamw},
    {"dc.sgd", make_sgd},
};

}  // namespace

AdamWOperands read_adamw(Call& call) {
  const Dense p = call.operand(0, DType::F32), m = call.operand(1, DType::F32),
              v = call.operand(2, DType::F32), g = read_gradient(call, 3, p);
  const ControlOperands control = read_control(call, 4);
  const Dense copy = read_copy(call, 6, p);
  call.require(m.count >= p.count && v.count >= p.count, "a moment is shorter than the parameter");
  return {p, m, v, g, copy, control};
}

SgdOperands read_sgd(Call& call) {
  const Dense p = call.operand(0, DType::F32), buffer = call.operand(1, DType::F32),
              g = read_gradient(call, 2, p);
  const ControlOperands control = read_control(call, 3);
  const Dense copy = read_copy(call, 5, p);
  const bool momentum = call.number("momentum") != 0, nesterov = call.integer("nesterov") != 0;
  call.require(!momentum || buffer.count >= p.count, "the buffer is shorter than the parameter");
  call.require(!momentum || buffer.data != p.data || p.count == 0,
               "momentum needs another buffer than the parameter");
  return {p, buffer, g, copy, control, momentum, nesterov};
}

std::span<const Row> update_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
