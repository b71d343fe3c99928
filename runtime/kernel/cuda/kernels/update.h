// adamw, sgd, scale: element by element.
#pragma once

#include "runtime/kernel/cuda/kernel_words.h"
#include "runtime/kernel/cuda/kernels/parameters.h"

namespace dc::runtime::kernel::cuda {

template <typename Element>
inline void for_each_element(int64_t count, Element element) {
  for (int64_t i = first_element<int64_t>(); i < count; i += all_threads<int64_t>()) element(i);
}

inline void adamw(const AdamW& parameters) {
  if (!parameters.control.allowed()) return;
  const scalar::AdamWFactors factors = parameters.control.adamw();
  float *p = parameters.p, *m = parameters.m, *v = parameters.v;
  const float* g = parameters.g;
  const auto put = [&](int64_t i, const scalar::AdamWState& next) {
    p[i] = next.p;
    m[i] = next.m;
    v[i] = next.v;
  };
  if (factors.lerp < 0.5f) {
    for_each_element(parameters.count, [&](int64_t i) {
      put(i, scalar::adamw<true>({p[i], m[i], v[i]}, g[i], factors));
    });
  } else {
    for_each_element(parameters.count, [&](int64_t i) {
      put(i, scalar::adamw<false>({p[i], m[i], v[i]}, g[i], factors));
    });
  }
}

inline void sgd(const Sgd& parameters) {
  if (!parameters.control.allowed()) return;
  const scalar::SgdFactors f = parameters.control.sgd();
  float *p = parameters.p, *buffer = parameters.buffer;
  const float* g = parameters.g;
  const bool nesterov = parameters.nesterov, first = parameters.control.step() <= 1;
  for_each_element(parameters.count, [&](int64_t i) {
    if (!parameters.momentum) {
      p[i] = scalar::sgd_plain(p[i], g[i], f);
      return;
    }
    const scalar::SgdState next =
        first      ? scalar::sgd_first(p[i], g[i], f, nesterov ? f.momentum : 0.0f)
        : nesterov ? scalar::sgd_nesterov({p[i], buffer[i]}, g[i], f)
                   : scalar::sgd_momentum({p[i], buffer[i]}, g[i], f);
    p[i] = next.p;
    buffer[i] = next.buffer;
  });
}

inline void scale(const Scale& parameters) {
  const auto factor = static_cast<float>(parameters.hyperparameters[base::kHyperGradScale]);
  for_each_element(parameters.count, [&](int64_t i) { parameters.x[i] *= factor; });
}

}  // namespace dc::runtime::kernel::cuda
