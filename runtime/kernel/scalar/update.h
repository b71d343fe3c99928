// adamw, sgd: torch.optim's formulas in f32, in its order of operations, of gradients that are
// scaled already.
//
// The scalars of a formula are computed in f64 and rounded to f32, as PyTorch does with Python
// floats.
#pragma once

#include "runtime/kernel/scalar/language.h"
#include "src/base/step_scalars.h"

namespace dc::runtime::kernel::scalar {

// Division of many floats by one, with the bits of a division, by a product in f64: two floats of
// 24 bits cannot have a quotient within 2^-49 of the middle between two floats, and the product is
// within 2^-52 of it. Quotients below the smallest normal float may be rounded twice. A CPU divides
// four to eight times slower than it multiplies, which bounded the update.
struct Divisor {
  double reciprocal;

  explicit Divisor(float divisor = 1) : reciprocal(1 / static_cast<double>(divisor)) {}
  float divide(float x) const { return static_cast<float>(static_cast<double>(x) * reciprocal); }
};

struct AdamWFactors {
  float clip, decay, lerp, keep_v, add_v, eps, step;
  Divisor root;
};
struct AdamWState {
  float p, m, v;
};
// PyTorch's lerp starts from the nearer end: from the mean where `lerp` is below 0.5.
template <bool kFromMean>
inline AdamWState adamw(const AdamWState& s, float g, const AdamWFactors& f) {
  const float gradient = g * f.clip;
  const float mean =
      kFromMean ? s.m + f.lerp * (gradient - s.m) : gradient - (gradient - s.m) * (1.0f - f.lerp);
  const float square = s.v * f.keep_v + f.add_v * gradient * gradient;
  return {s.p * f.decay + (f.step * mean) / (f.root.divide(sqrt(square)) + f.eps), mean, square};
}

struct SgdFactors {
  float clip, decay, momentum, add, lr;
};
struct SgdState {
  float p, buffer;
};
inline float sgd_gradient(float p, float g, const SgdFactors& f) {
  return g * f.clip + f.decay * p;
}
inline float sgd_plain(float p, float g, const SgdFactors& f) {
  return p + f.lr * sgd_gradient(p, g, f);
}
// `momentum` 0 and `add` 1 on the first step would turn a buffer full of NaN into NaN, so the first
// step does not read it.
inline SgdState sgd_first(float p, float g, const SgdFactors& f, float nesterov) {
  const float gradient = sgd_gradient(p, g, f);
  return {p + f.lr * (gradient + nesterov * gradient), gradient};
}
inline SgdState sgd_momentum(const SgdState& s, float g, const SgdFactors& f) {
  const float smoothed = s.buffer * f.momentum + f.add * sgd_gradient(s.p, g, f);
  return {s.p + f.lr * smoothed, smoothed};
}
inline SgdState sgd_nesterov(const SgdState& s, float g, const SgdFactors& f) {
  const float gradient = sgd_gradient(s.p, g, f);
  const float smoothed = s.buffer * f.momentum + f.add * gradient;
  return {s.p + f.lr * (gradient + f.momentum * smoothed), smoothed};
}

// Where an update finds whether it may run (check_finite) and its hyperparameters.
struct UpdateControl {
  const double* scalars;
  const double* hyperparameters;
  int64_t param, group;
  bool clip;

  bool allowed() const { return scalars[base::kScalarFinite + param] != 0; }
  double setting(int which) const {
    return hyperparameters[base::kHyperGroups + group * base::kHyperPerGroup + which];
  }
  double step() const { return hyperparameters[base::kHyperStep]; }
  float gradient_scale() const {
    return static_cast<float>(hyperparameters[base::kHyperGradScale]);
  }
  float clip_factor() const { return clip ? static_cast<float>(scalars[base::kScalarClip]) : 1.0f; }

  AdamWFactors adamw() const {
    const double lr = setting(base::kGroupLr);
    const double beta1 = setting(base::kGroupBeta1);
    const double beta2 = setting(base::kGroupBeta2);
    const double correction1 = 1 - pow(beta1, step());
    const double correction2 = 1 - pow(beta2, step());
    AdamWFactors f;
    f.clip = clip_factor();
    f.decay = static_cast<float>(1 - lr * setting(base::kGroupWeightDecay));
    f.lerp = static_cast<float>(1 - beta1);
    f.keep_v = static_cast<float>(beta2);
    f.add_v = static_cast<float>(1 - beta2);
    f.root = Divisor(static_cast<float>(sqrt(correction2)));
    f.eps = static_cast<float>(setting(base::kGroupEps));
    f.step = static_cast<float>(-(lr / correction1));
    return f;
  }
  SgdFactors sgd() const {
    SgdFactors f;
    f.clip = clip_factor();
    f.decay = static_cast<float>(setting(base::kGroupWeightDecay));
    f.momentum = static_cast<float>(setting(base::kGroupMomentum));
    f.add = static_cast<float>(1 - setting(base::kGroupDampening));
    f.lr = static_cast<float>(-setting(base::kGroupLr));
    return f;
  }
};

}  // namespace dc::runtime::kernel::scalar
