// Requests as a transformer's training step makes them: activations saved from forward to backward,
// temporaries, weights gathered per use, and gradients either reduced at once (one in flight) or
// kept until the end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "src/layout/request.h"

namespace dc::layout {

struct TransformerShape {
  int layers = 80;
  int64_t tokens = 4096, hidden = 8192, ffn = 28672, kv = 1024, vocabulary = 128256;
  int world = 32;
  bool gathered = true;         // weights gathered per use; otherwise resident, without requests
  bool gradients_kept = false;  // whole gradients live to the end of the program
  bool shards_kept = false;     // reduced shards live to the end (clipping)
};

class TrainingRequests {
 public:
  explicit TrainingRequests(const TransformerShape& shape) : shape_(shape) {}

  std::vector<Request> build() {
    const auto& s = shape_;
    int64_t residual = s.tokens * s.hidden * 2;
    std::vector<Layer> layers(static_cast<size_t>(s.layers));
    size_t x = make(residual);
    for (Layer& layer : layers) x = forward(layer, x);
    size_t head = gather(s.hidden * s.vocabulary);
    size_t logits = make(s.tokens * s.vocabulary * 2, {x, head});
    size_t logits32 = make(s.tokens * s.vocabulary * 4, {logits});
    size_t log_softmax = make(s.tokens * s.vocabulary * 4, {logits32});
    make(64, {log_softmax});
    size_t g = make(s.tokens * s.vocabulary * 4, {log_softmax});
    g = make(s.tokens * s.vocabulary * 4, {g, log_softmax});
    g = make(s.tokens * s.vocabulary * 2, {g});
    gradient(s.hidden * s.vocabulary, {g, x});
    g = make(residual, {g, gather(s.hidden * s.vocabulary)});
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) g = backward(*layer, g);
    gradient(s.hidden * s.vocabulary, {g});
    for (size_t kept : kept_) use(kept);
    for (size_t i = 0; i < shards_.size(); ++i) use(shards_[i]);
    return requests_;
  }

 private:
  struct Layer {
    size_t x, x32, r1, n1, q, k, v, att, lse, f, f32, r2, n2, gate, up, act, product;
  };

  size_t make(int64_t bytes, std::initializer_list<size_t> operands = {}) {
    for (size_t operand : operands) requests_[operand].last = now_;
    requests_.push_back({now_, now_, bytes});
    ++now_;
    return requests_.size() - 1;
  }
  void use(size_t value) { requests_[value].last = now_++; }
  size_t gather(int64_t elements) { return shape_.gathered ? make(elements * 2) : make(0); }
  void gradient(int64_t elements, std::initializer_list<size_t> operands) {
    size_t whole = make(elements * 2, operands);
    if (shape_.gradients_kept) return kept_.push_back(whole);
    size_t shard = make(elements * 4 / shape_.world, {whole});
    now_++;  // done
    use(shard);
    if (shape_.shards_kept) shards_.push_back(shard);
  }
  size_t norm(size_t x, size_t& x32, size_t& r) {
    int64_t wide = shape_.tokens * shape_.hidden * 4, row = shape_.tokens * 4;
    x32 = make(wide, {x});
    size_t square = make(wide, {x32});
    size_t mean = make(row, {square});
    r = make(row, {make(row, {mean})});
    size_t scaled = make(wide, {x32, r});
    size_t narrow = make(wide / 2, {scaled});
    return make(wide / 2, {narrow, gather(shape_.hidden)});
  }
  size_t forward(Layer& l, size_t x) {
    const auto& s = shape_;
    int64_t t = s.tokens * 2;
    l.x = x;
    l.n1 = norm(x, l.x32, l.r1);
    size_t q = make(t * s.hidden, {l.n1, gather(s.hidden * s.hidden)});
    size_t k = make(t * s.kv, {l.n1, gather(s.hidden * s.kv)});
    size_t v = make(t * s.kv, {l.n1, gather(s.hidden * s.kv)});
    l.q = rotate(q, t * s.hidden);
    k = rotate(k, t * s.kv);
    l.k = make(t * s.hidden, {k});
    l.v = make(t * s.hidden, {v});
    l.att = make(t * s.hidden, {l.q, l.k, l.v});
    l.lse = make(s.tokens * s.hidden / 128 * 4, {l.q});
    size_t o = make(t * s.hidden, {l.att, gather(s.hidden * s.hidden)});
    l.f = make(t * s.hidden, {x, o});
    l.n2 = norm(l.f, l.f32, l.r2);
    l.gate = make(t * s.ffn, {l.n2, gather(s.hidden * s.ffn)});
    l.act = make(t * s.ffn, {l.gate});
    l.up = make(t * s.ffn, {l.n2, gather(s.hidden * s.ffn)});
    l.product = make(t * s.ffn, {l.act, l.up});
    size_t down = make(t * s.hidden, {l.product, gather(s.hidden * s.ffn)});
    return make(t * s.hidden, {l.f, down});
  }
  size_t rotate(size_t x, int64_t bytes) {
    size_t half = make(bytes / 2, {x});
    size_t turned = make(bytes, {half, x});
    size_t by_sin = make(bytes, {turned});
    size_t by_cos = make(bytes, {x});
    return make(bytes, {by_sin, by_cos});
  }
  size_t norm_backward(size_t g, size_t x32, size_t r) {
    int64_t wide = shape_.tokens * shape_.hidden * 4, row = shape_.tokens * 4;
    gradient(shape_.hidden, {g, x32});
    size_t scaled = make(wide / 2, {g, gather(shape_.hidden)});
    size_t g32 = make(wide, {scaled});
    size_t a = make(wide, {g32, x32});
    size_t b = make(wide, {g32, r});
    size_t sum = make(row, {a, r});
    size_t c = make(wide, {sum, x32});
    size_t d = make(wide, {b, c});
    return make(wide / 2, {d});
  }
  size_t backward(Layer& l, size_t g) {
    const auto& s = shape_;
    int64_t t = s.tokens * 2;
    gradient(s.hidden * s.ffn, {l.product, g});
    size_t g_product = make(t * s.ffn, {g, gather(s.hidden * s.ffn)});
    size_t g_up = make(t * s.ffn, {g_product, l.act});
    size_t g_act = make(t * s.ffn, {g_product, l.up});
    gradient(s.hidden * s.ffn, {l.n2, g_up});
    size_t n2_a = make(t * s.hidden, {g_up, gather(s.hidden * s.ffn)});
    size_t g_gate = make(t * s.ffn, {g_act, l.gate});
    gradient(s.hidden * s.ffn, {l.n2, g_gate});
    size_t n2_b = make(t * s.hidden, {g_gate, gather(s.hidden * s.ffn)});
    size_t g_f = norm_backward(make(t * s.hidden, {n2_a, n2_b}), l.f32, l.r2);
    g = make(t * s.hidden, {g, g_f});
    gradient(s.hidden * s.hidden, {l.att, g});
    size_t g_att = make(t * s.hidden, {g, gather(s.hidden * s.hidden)});
    size_t g_q = make(t * s.hidden, {g_att, l.q, l.k, l.v, l.att, l.lse});
    size_t g_k = make(t * s.hidden, {g_att});
    size_t g_v = make(t * s.hidden, {g_att, l.q, l.k, l.v, l.att, l.lse});
    size_t g_v_small = make(t * s.kv, {g_v}), g_k_small = make(t * s.kv, {g_k});
    g_k_small = rotate(g_k_small, t * s.kv);
    g_q = rotate(g_q, t * s.hidden);
    gradient(s.hidden * s.kv, {l.n1, g_v_small});
    size_t sum = make(t * s.hidden, {g_v_small, gather(s.hidden * s.kv)});
    gradient(s.hidden * s.kv, {l.n1, g_k_small});
    sum = make(t * s.hidden, {sum, make(t * s.hidden, {g_k_small, gather(s.hidden * s.kv)})});
    gradient(s.hidden * s.hidden, {l.n1, g_q});
    sum = make(t * s.hidden, {sum, make(t * s.hidden, {g_q, gather(s.hidden * s.hidden)})});
    size_t g_x = norm_backward(sum, l.x32, l.r1);
    return make(t * s.hidden, {g, g_x});
  }

  TransformerShape shape_;
  std::vector<Request> requests_;
  std::vector<size_t> kept_, shards_;
  int32_t now_ = 0;
};

}  // namespace dc::layout
