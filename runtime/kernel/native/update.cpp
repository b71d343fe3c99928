// adamw, sgd: torch.optim's formulas in f32, in its order of operations, on contiguous ranges.
//
// The scalars of a formula are computed in f64 once per launch and rounded to f32, as PyTorch does
// with Python floats.
#include <cmath>

#include "runtime/kernel/native/registry.h"
#include "runtime/kernel/native/vector_clones.h"
#include "src/base/step_scalars.h"

namespace dc::runtime::kernel::native {
namespace {

using base::DType;

struct AdamWFactors {
  float clip, decay, lerp, keep_v, add_v, root, eps, step;
};

// PyTorch's lerp starts from the nearer end, hence two loops.
DC_VECTOR_CLONES void adamw_range(float* __restrict p, float* __restrict m, float* __restrict v,
                                  const float* __restrict g, int64_t n, const AdamWFactors& f) {
  const float clip = f.clip, decay = f.decay, lerp = f.lerp, keep_v = f.keep_v, add_v = f.add_v,
              root = f.root, eps = f.eps, step = f.step;
  if (lerp < 0.5f) {
    for (int64_t i = 0; i < n; ++i) {
      const float gradient = g[i] * clip;
      const float mean = m[i] + lerp * (gradient - m[i]);
      const float square = v[i] * keep_v + add_v * gradient * gradient;
      m[i] = mean;
      v[i] = square;
      p[i] = p[i] * decay + (step * mean) / (std::sqrt(square) / root + eps);
    }
  } else {
    const float rest = 1.0f - lerp;
    for (int64_t i = 0; i < n; ++i) {
      const float gradient = g[i] * clip;
      const float mean = gradient - (gradient - m[i]) * rest;
      const float square = v[i] * keep_v + add_v * gradient * gradient;
      m[i] = mean;
      v[i] = square;
      p[i] = p[i] * decay + (step * mean) / (std::sqrt(square) / root + eps);
    }
  }
}

struct SgdFactors {
  float clip, decay, momentum, add, lr;
};

DC_VECTOR_CLONES void sgd_plain(float* __restrict p, const float* __restrict g, int64_t n,
                                const SgdFactors& f) {
  const float clip = f.clip, decay = f.decay, lr = f.lr;
  for (int64_t i = 0; i < n; ++i) {
    const float gradient = g[i] * clip + decay * p[i];
    p[i] = p[i] + lr * gradient;
  }
}

// `momentum` 0 and `add` 1 on the first step would turn a buffer full of NaN into NaN, so the first
// step has its own loop.
DC_VECTOR_CLONES void sgd_first(float* __restrict p, float* __restrict buffer,
                                const float* __restrict g, int64_t n, const SgdFactors& f,
                                float nesterov) {
  const float clip = f.clip, decay = f.decay, lr = f.lr;
  for (int64_t i = 0; i < n; ++i) {
    const float gradient = g[i] * clip + decay * p[i];
    buffer[i] = gradient;
    p[i] = p[i] + lr * (gradient + nesterov * gradient);
  }
}

DC_VECTOR_CLONES void sgd_momentum(float* __restrict p, float* __restrict buffer,
                                   const float* __restrict g, int64_t n, const SgdFactors& f) {
  const float clip = f.clip, decay = f.decay, momentum = f.momentum, add = f.add, lr = f.lr;
  for (int64_t i = 0; i < n; ++i) {
    const float gradient = g[i] * clip + decay * p[i];
    const float smoothed = buffer[i] * momentum + add * gradient;
    buffer[i] = smoothed;
    p[i] = p[i] + lr * smoothed;
  }
}

DC_VECTOR_CLONES void sgd_nesterov(float* __restrict p, float* __restrict buffer,
                                   const float* __restrict g, int64_t n, const SgdFactors& f) {
  const float clip = f.clip, decay = f.decay, momentum = f.momentum, add = f.add, lr = f.lr;
  for (int64_t i = 0; i < n; ++i) {
    const float gradient = g[i] * clip + decay * p[i];
    const float smoothed = buffer[i] * momentum + add * gradient;
    buffer[i] = smoothed;
    p[i] = p[i] + lr * (gradient + momentum * smoothed);
  }
}

// Where an update finds whether it may run (check_finite) and its hyperparameters.
struct Control {
  const double* scalars;
  const double* hyperparameters;
  int64_t param, group;
  bool clip;

  bool allowed() const { return scalars[base::kScalarFinite + param] != 0; }
  double setting(int which) const {
    return hyperparameters[base::kHyperGroups + group * base::kHyperPerGroup + which];
  }
  double step() const { return hyperparameters[base::kHyperStep]; }
  float clip_factor() const { return clip ? static_cast<float>(scalars[base::kScalarClip]) : 1.0f; }
};

struct ControlOperands {
  Dense scalars, hyperparameters;
  int64_t param, group;
  bool clip;

  Control on(const device::Stream& stream) const {
    return {scalars.on<const double>(stream), hyperparameters.on<const double>(stream), param,
            group, clip};
  }
};

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

// Of the parameter's elements; `m` is sgd's buffer.
struct RangeOperands {
  Dense p, m, v, g;
};

class AdamW final : public Kernel {
 public:
  AdamW(const RangeOperands& range, const ControlOperands& control)
      : range_(range), control_(control) {}
  base::Status launch(device::Stream& stream) override {
    const Control control = control_.on(stream);
    if (!control.allowed()) return {};
    const double lr = control.setting(base::kGroupLr);
    const double beta1 = control.setting(base::kGroupBeta1);
    const double beta2 = control.setting(base::kGroupBeta2);
    const double correction1 = 1 - std::pow(beta1, control.step());
    const double correction2 = 1 - std::pow(beta2, control.step());
    AdamWFactors f;
    f.clip = control.clip_factor();
    f.decay = static_cast<float>(1 - lr * control.setting(base::kGroupWeightDecay));
    f.lerp = static_cast<float>(1 - beta1);
    f.keep_v = static_cast<float>(beta2);
    f.add_v = static_cast<float>(1 - beta2);
    f.root = static_cast<float>(std::sqrt(correction2));
    f.eps = static_cast<float>(control.setting(base::kGroupEps));
    f.step = static_cast<float>(-(lr / correction1));
    adamw_range(range_.p.on<float>(stream), range_.m.on<float>(stream), range_.v.on<float>(stream),
                range_.g.on<const float>(stream), range_.p.count, f);
    return {};
  }

 private:
  RangeOperands range_;
  ControlOperands control_;
};

class Sgd final : public Kernel {
 public:
  Sgd(const RangeOperands& range, const ControlOperands& control, bool momentum, bool nesterov)
      : range_(range), control_(control), momentum_(momentum), nesterov_(nesterov) {}
  base::Status launch(device::Stream& stream) override {
    const Control control = control_.on(stream);
    if (!control.allowed()) return {};
    SgdFactors f;
    f.clip = control.clip_factor();
    f.decay = static_cast<float>(control.setting(base::kGroupWeightDecay));
    f.momentum = static_cast<float>(control.setting(base::kGroupMomentum));
    f.add = static_cast<float>(1 - control.setting(base::kGroupDampening));
    f.lr = static_cast<float>(-control.setting(base::kGroupLr));
    auto* p = range_.p.on<float>(stream);
    auto* buffer = range_.m.on<float>(stream);
    const auto* g = range_.g.on<const float>(stream);
    const int64_t count = range_.p.count;
    if (!momentum_) {
      sgd_plain(p, g, count, f);
    } else if (control.step() <= 1) {
      sgd_first(p, buffer, g, count, f, nesterov_ ? f.momentum : 0.0f);
    } else if (nesterov_) {
      sgd_nesterov(p, buffer, g, count, f);
    } else {
      sgd_momentum(p, buffer, g, count, f);
    }
    return {};
  }

 private:
  RangeOperands range_;
  ControlOperands control_;
  bool momentum_, nesterov_;
};

Made make_adamw(Call& call) {
  const Dense p = call.operand(0, DType::F32), m = call.operand(1, DType::F32),
              v = call.operand(2, DType::F32), g = call.operand(3, DType::F32);
  const ControlOperands control = read_control(call, 4);
  call.require(m.count >= p.count && v.count >= p.count && g.count >= p.count,
               "a moment or the gradient is shorter than the parameter");
  return call.finish<AdamW>(RangeOperands{p, m, v, g}, control);
}

Made make_sgd(Call& call) {
  const Dense p = call.operand(0, DType::F32), buffer = call.operand(1, DType::F32),
              g = call.operand(2, DType::F32);
  const ControlOperands control = read_control(call, 3);
  const bool momentum = call.number("momentum") != 0, nesterov = call.integer("nesterov") != 0;
  call.require(g.count >= p.count, "the gradient is shorter than the parameter");
  call.require(!momentum || buffer.count >= p.count, "the buffer is shorter than the parameter");
  call.require(!momentum || buffer.data != p.data || p.count == 0,
               "momentum needs another buffer than the parameter");
  return call.finish<Sgd>(RangeOperands{p, buffer, {}, g}, control, momentum, nesterov);
}

constexpr Row kRows[] = {
    {"dc.adamw", make_adamw},
    {"dc.sgd", make_sgd},
};

}  // namespace

std::span<const Row> update_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
