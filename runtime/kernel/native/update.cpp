// adamw, sgd: loops over the formulas of runtime/kernel/scalar/update.h on contiguous ranges.
#include "runtime/kernel/native/update.h"

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

class AdamW final : public Kernel {
 public:
  explicit AdamW(const AdamWOperands& operands) : o_(operands) {}
  base::Status launch(device::Stream& stream) override {
    const scalar::UpdateControl control = o_.control.on(stream);
    if (!control.allowed()) return {};
    const AdamWFactors factors = control.adamw();
    const auto range = factors.lerp < 0.5f ? adamw_range<true> : adamw_range<false>;
    range(o_.p.on<float>(stream), o_.m.on<float>(stream), o_.v.on<float>(stream),
          o_.g.on<const float>(stream), o_.p.count, factors);
    return {};
  }

 private:
  AdamWOperands o_;
};

class Sgd final : public Kernel {
 public:
  explicit Sgd(const SgdOperands& operands) : o_(operands) {}
  base::Status launch(device::Stream& stream) override {
    const scalar::UpdateControl control = o_.control.on(stream);
    if (!control.allowed()) return {};
    const SgdFactors f = control.sgd();
    auto* p = o_.p.on<float>(stream);
    auto* buffer = o_.buffer.on<float>(stream);
    const auto* g = o_.g.on<const float>(stream);
    const int64_t count = o_.p.count;
    if (!o_.momentum) {
      sgd_plain(p, g, count, f);
    } else if (control.step() <= 1) {
      sgd_first(p, buffer, g, count, f, o_.nesterov ? f.momentum : 0.0f);
    } else if (o_.nesterov) {
      sgd_nesterov(p, buffer, g, count, f);
    } else {
      sgd_momentum(p, buffer, g, count, f);
    }
    return {};
  }

 private:
  SgdOperands o_;
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
              v = call.operand(2, DType::F32), g = call.operand(3, DType::F32);
  const ControlOperands control = read_control(call, 4);
  call.require(m.count >= p.count && v.count >= p.count && g.count >= p.count,
               "a moment or the gradient is shorter than the parameter");
  return {p, m, v, g, control};
}

SgdOperands read_sgd(Call& call) {
  const Dense p = call.operand(0, DType::F32), buffer = call.operand(1, DType::F32),
              g = call.operand(2, DType::F32);
  const ControlOperands control = read_control(call, 3);
  const bool momentum = call.number("momentum") != 0, nesterov = call.integer("nesterov") != 0;
  call.require(g.count >= p.count, "the gradient is shorter than the parameter");
  call.require(!momentum || buffer.count >= p.count, "the buffer is shorter than the parameter");
  call.require(!momentum || buffer.data != p.data || p.count == 0,
               "momentum needs another buffer than the parameter");
  return {p, buffer, g, control, momentum, nesterov};
}

std::span<const Row> update_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
