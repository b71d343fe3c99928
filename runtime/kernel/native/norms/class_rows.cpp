#include "runtime/kernel/native/norms/class_rows.h"

#include "runtime/kernel/native/indexing/index_outside.h"
#include "runtime/kernel/native/norms/log_softmax_rows.h"

namespace dc::runtime::kernel::native {

base::Status ClassTargets::check(int64_t target) const {
  if (target == ignored || (target >= 0 && target < classes)) return {};
  return index_outside("cross_entropy", target, classes);
}

PowerSum sum_powers(const RowTensor<float>& logits, const std::byte* row, int64_t classes) {
  PowerSum of;
  RowBlocks<float> blocks(logits, row);
  of.largest = largest_of(blocks, classes);
  alignas(64) float powers[kBlock];
  of.sum = sum_of_powers(blocks, classes, of.largest, [&](int64_t) { return powers; });
  return of;
}

// Every part's sum is scaled once, so the error does not grow with their number.
PowerSum join_powers(const PowerSum* parts, int64_t count, int64_t stride) {
  const float masked = MaxFold<float>::neutral();  // a part of -inf alone adds nothing
  PowerSum all{masked, 0};
  for (int64_t p = 0; p < count; ++p) MaxFold<float>::join(all.largest, parts[p * stride].largest);
  for (int64_t p = 0; p < count; ++p) {
    const PowerSum& part = parts[p * stride];
    if (part.largest == masked && all.largest != masked) continue;
    float power;
    exp_of_difference(&power, &part.largest, all.largest, 1);
    all.sum += part.sum * static_cast<double>(power);
  }
  return all;
}

RowNumbers row_numbers(const PowerSum& all) {
  return {all.largest, static_cast<float>(math::log(all.sum))};
}

float row_loss(float logit, const RowNumbers& numbers) {
  float value;
  log_softmax_of(&value, &logit, numbers.largest, numbers.log_of_sum, 1);
  return -value;
}

// The gradient of the log-probabilities is 0 but for the row's own class, and what is added to
// zeros stays as it is, so its sum over the row needs no pass.
void write_gradients(const RowTensor<float>& logits, const std::byte* from, std::byte* to,
                     int64_t count, int64_t target, const RowGradient& row) {
  alignas(64) float in[kBlock], y[kBlock], out_buffer[kBlock], gradients[kBlock] = {};
  const float gradient = -row.loss;
  const float sum = row.counts ? 0.0f + gradient : 0.0f;  // -0 becomes 0, as in a sum
  const int64_t own = row.counts ? target : -1;
  in_blocks(count, [&](int64_t first, int64_t some) {
    const int64_t place = own - first;
    const bool is_here = place >= 0 && place < some;
    if (is_here) gradients[place] = gradient;
    log_softmax_of(y, logits.read(in, from, first, some), row.numbers.largest,
                   row.numbers.log_of_sum, some);
    log_softmax_gradient(logits.target(out_buffer, to, first), gradients, y, sum, some);
    logits.write(out_buffer, to, first, some);
    if (is_here) gradients[place] = 0;
  });
}

}  // namespace dc::runtime::kernel::native
