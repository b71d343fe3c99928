// adamw, sgd: element by element.
#pragma once

#include "runtime/kernel/cuda/kernel_words.h"
#include "runtime/kernel/cuda/kernels/fours.h"
#include "runtime/kernel/cuda/kernels/parameters.h"
#include "runtime/kernel/scalar/elements.h"

namespace dc::runtime::kernel::cuda {

// run(i, p, gradient) for elements from i on, one or four; then they are stored, and rounded into
// the copy.
template <typename G, typename Copy, typename Run>
inline void update_elements(const Updated& of, const scalar::UpdateControl& control, Run run) {
  const G* g = static_cast<const G*>(of.g);
  Copy* copy = static_cast<Copy*>(of.copy);
  const bool allowed = control.allowed();
  if (!allowed && copy == nullptr) return;
  const float scale = control.gradient_scale();
  for_each_four(of.count, of.in_fours, [&](auto width, int64_t i) {
    constexpr int kWidth = decltype(width)::value;
    using Floats = Pack<float, kWidth>;
    Floats p = load_pack<kWidth>(of.p + i);
    if (allowed) {
      const auto narrow = load_pack<kWidth>(g + i);
      Floats gradient;
      for (int k = 0; k < kWidth; ++k)
        gradient.at[k] = static_cast<float>(scalar::load(narrow.at[k])) * scale;
      run(i, p, gradient);
      store_pack(of.p + i, p);
    }
    if (copy == nullptr) return;
    Pack<Copy, kWidth> rounded;
    for (int k = 0; k < kWidth; ++k) rounded.at[k] = scalar::store<Copy>(p.at[k]);
    store_pack(copy + i, rounded);
  });
}

template <bool kFromMean, typename G, typename Copy>
inline void adamw_from(const AdamW& parameters, const scalar::AdamWFactors& factors) {
  update_elements<G, Copy>(
      parameters.of, parameters.control,
      [&]<int kWidth>(int64_t i, Pack<float, kWidth>& p, const Pack<float, kWidth>& gradient) {
        auto m = load_pack<kWidth>(parameters.m + i), v = load_pack<kWidth>(parameters.v + i);
        for (int k = 0; k < kWidth; ++k) {
          const scalar::AdamWState next =
              scalar::adamw<kFromMean>({p.at[k], m.at[k], v.at[k]}, gradient.at[k], factors);
          p.at[k] = next.p;
          m.at[k] = next.m;
          v.at[k] = next.v;
        }
        store_pack(parameters.m + i, m);
        store_pack(parameters.v + i, v);
      });
}

template <typename G, typename Copy>
inline void adamw(const AdamW& parameters) {
  const scalar::AdamWFactors factors = parameters.control.adamw();
  if (factors.lerp < 0.5f) {
    adamw_from<true, G, Copy>(parameters, factors);
  } else {
    adamw_from<false, G, Copy>(parameters, factors);
  }
}

template <typename G, typename Copy>
inline void sgd(const Sgd& parameters) {
  const scalar::SgdFactors f = parameters.control.sgd();
  const bool nesterov = parameters.nesterov, first = parameters.control.step() <= 1;
  update_elements<G, Copy>(
      parameters.of, parameters.control,
      [&]<int kWidth>(int64_t i, Pack<float, kWidth>& p, const Pack<float, kWidth>& gradient) {
        if (!parameters.momentum) {
          for (int k = 0; k < kWidth; ++k) p.at[k] = scalar::sgd_plain(p.at[k], gradient.at[k], f);
          return;
        }
        auto buffer = load_pack<kWidth>(parameters.buffer + i);
        for (int k = 0; k < kWidth; ++k) {
          const scalar::SgdState state = {p.at[k], buffer.at[k]};
          const scalar::SgdState next =
              first ? scalar::sgd_first(state.p, gradient.at[k], f, nesterov ? f.momentum : 0.0f)
              : nesterov ? scalar::sgd_nesterov(state, gradient.at[k], f)
                         : scalar::sgd_momentum(state, gradient.at[k], f);
          p.at[k] = next.p;
          buffer.at[k] = next.buffer;
        }
        store_pack(parameters.buffer + i, buffer);
      });
}

}  // namespace dc::runtime::kernel::cuda
