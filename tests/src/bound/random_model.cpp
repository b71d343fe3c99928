#include "tests/src/bound/random_model.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <sstream>
#include <string_view>
#include <vector>

namespace dc::bound::test {
namespace {

struct Layer {
  int columns_in = 0, columns = 0, parameter = 0;
  bool residual = false, saves_input = false;
};

class Writer {
 public:
  Writer(Dice& dice, int world, int accumulation)
      : dice_(dice), world_(world), accumulation_(accumulation), rows_(16 << dice.below(5)) {}

  std::string run() {
    draw_layers();
    std::ostringstream text;
    text << "step @random stage=normalized mesh=<dp=" << world_ << ">";
    if (accumulation_ > 1) text << " accumulation=" << accumulation_;
    text << " {\n  input \"x\" : " << type(rows_, layers_[0].columns_in) << "\n";
    for (size_t p = 0; p < shapes_.size(); ++p)
      text << "  parameter \"w" << p << "\" : " << shapes_[p] << "\n";
    if (dice_.chance(50)) text << "  optimizer adamw clip { group \"*\" lr=0.1 }\n";
    for (size_t p = 0; p < shapes_.size(); ++p)
      text << "  state \"w" << p << "\" : " << shapes_[p] << " parameter=\"w" << p << "\"\n";
    text << "  program @micro_batch {\n";
    write_program();
    text << body_.str() << "  }\n}\n";
    return text.str();
  }

 private:
  static std::string type(int rows, int columns) {
    return "f32[" + std::to_string(rows) + "," + std::to_string(columns) + "]";
  }

  void draw_layers() {
    const int count = 1 + dice_.below(3);
    int columns = 16 * (1 + dice_.below(4));
    for (int i = 0; i < count; ++i) {
      Layer layer;
      layer.columns_in = columns;
      layer.columns = dice_.chance(50) ? columns : 16 * (1 + dice_.below(4));
      layer.residual = layer.columns == columns && dice_.chance(50);
      layer.saves_input = dice_.chance(50);
      const std::string shape = type(columns, layer.columns);
      const bool shares = !shapes_.empty() && shapes_.back() == shape && dice_.chance(30);
      if (!shares) shapes_.push_back(shape);
      layer.parameter = static_cast<int>(shapes_.size()) - 1;
      columns = layer.columns;
      layers_.push_back(layer);
    }
  }

  // One node; returns its name.
  std::string add(std::initializer_list<std::string_view> name, std::string_view op,
                  std::initializer_list<std::string_view> args, std::string_view type,
                  std::initializer_list<std::string_view> rest) {
    const std::string text = joined(name);
    body_ << "    %" << text << " = aten." << op << "(" << joined(args) << ") : " << type << " "
          << joined(rest) << "\n";
    return text;
  }

  static std::string joined(std::initializer_list<std::string_view> parts) {
    std::string text;
    for (const std::string_view part : parts) text += part;
    return text;
  }

  static std::string transposed(int rows, int columns) {
    return joined({type(columns, rows), " strides=(1,", std::to_string(columns), ")"});
  }

  void write_program() {
    body_ << "    %x = input(name=\"x\") : " << type(rows_, layers_[0].columns_in)
          << " varying<dp>\n";
    for (size_t p = 0; p < shapes_.size(); ++p)
      body_ << "    %w" << p << " = state(entry=\"w" << p << "\") : " << shapes_[p] << "\n";
    std::string value = "x";
    std::vector<std::string> inputs, saved;
    for (size_t l = 0; l < layers_.size(); ++l) {
      const Layer& layer = layers_[l];
      const std::string n = std::to_string(l), out = type(rows_, layer.columns);
      inputs.push_back(value);
      const std::string h = add({"h", n}, "mm.default",
                                {"self=%", value, ", mat2=%w", std::to_string(layer.parameter)},
                                out, {"varying<dp> in \"layers.", n, "\""});
      const std::string a = add({"a", n}, dice_.chance(50) ? "sin.default" : "exp.default",
                                {"self=%", h}, out, {"varying<dp> in \"layers.", n, "\""});
      saved.push_back(layer.saves_input ? h : a);
      value = layer.residual ? add({"s", n}, "add.Tensor", {"self=%", a, ", other=%", value}, out,
                                   {"varying<dp> in \"layers.", n, "\""})
                             : a;
    }
    add({"loss"}, "mean.default", {"self=%", value}, "f32[]", {"varying<dp>"});
    write_backward(value, inputs, saved);
  }

  void write_backward(const std::string& last, const std::vector<std::string>& inputs,
                      const std::vector<std::string>& saved) {
    std::string g = add({"g"}, "mul.Tensor", {"self=%", last, ", other=%", last},
                        type(rows_, layers_.back().columns), {"varying<dp> backward"});
    std::vector<std::string> gradients(shapes_.size());
    for (size_t l = layers_.size(); l-- > 0;) {
      const Layer& layer = layers_[l];
      const std::string n = std::to_string(l), back = type(rows_, layer.columns_in);
      const std::string in = joined({" backward in \"layers.", n, "\""});
      const auto p = static_cast<size_t>(layer.parameter);
      const std::string d = add({"d", n}, "mul.Tensor", {"self=%", g, ", other=%", saved[l]},
                                type(rows_, layer.columns), {"varying<dp>", in});
      const std::string xt = add({"xt", n}, "t.default", {"self=%", inputs[l]},
                                 transposed(rows_, layer.columns_in), {"varying<dp>", in});
      std::string dw = add({"dw", n}, "mm.default", {"self=%", xt, ", mat2=%", d}, shapes_[p],
                           {"partial<dp>", in});
      if (!gradients[p].empty())
        dw = add({"sum", n}, "add.Tensor", {"self=%", gradients[p], ", other=%", dw}, shapes_[p],
                 {"partial<dp>", in});
      gradients[p] = dw;
      if (l == 0) break;
      const std::string wt = add({"wt", n}, "t.default", {"self=%w", std::to_string(p)},
                                 transposed(layer.columns_in, layer.columns), {in});
      const std::string dx =
          add({"dx", n}, "mm.default", {"self=%", d, ", mat2=%", wt}, back, {"varying<dp>", in});
      g = layer.residual ? add({"gs", n}, "add.Tensor", {"self=%", dx, ", other=%", g}, back,
                               {"varying<dp>", in})
                         : dx;
    }
    body_ << "    output loss %loss\n";
    for (size_t p = 0; p < shapes_.size(); ++p)
      body_ << "    output gradient \"w" << p << "\" %" << gradients[p] << "\n";
  }

  Dice& dice_;
  int world_, accumulation_, rows_;
  std::vector<Layer> layers_;
  std::vector<std::string> shapes_;  // of parameters
  std::ostringstream body_;
};

}  // namespace

ir::Step random_step(Dice& dice, int world, int accumulation) {
  const std::string text = Writer(dice, world, accumulation).run();
  base::Result<ir::Step> step = ir::parse(text);
  EXPECT_TRUE(step.ok()) << step.status().to_string() << "\n" << text;
  if (!step.ok()) std::abort();
  const base::Status sound = ir::verify(*step, ir::Stage::Normalized);
  EXPECT_TRUE(sound.ok()) << sound.to_string() << "\n" << text;
  return std::move(*step);
}

profile::Profile random_profile(Dice& dice, int world) {
  profile::Profile result;
  base::Measurements& all = result.measurements;
  base::MachineRates rates;
  rates.f64_flops = rates.f32_flops = rates.half_flops = int64_t{1} << (27 + dice.below(6));
  rates.memory_bytes = int64_t{1} << (27 + dice.below(6));
  rates.kernel_launch_ns = dice.below(3000);
  rates.link_bytes = 1 << 26;
  rates.to_host_bytes = rates.from_host_bytes = int64_t{1} << (24 + dice.below(6));
  rates.disk_bytes = int64_t{1} << (22 + dice.below(6));
  all.rates = rates;
  const bool contends = dice.chance(50), measured = dice.chance(80);
  const int ranks = measured || world < 2 ? world : world + 1;
  for (const char* kind : {"all_gather", "reduce_scatter", "all_reduce"}) {
    if (world < 2) break;
    int64_t bytes = 1 + dice.below(256), time = 1 + dice.below(20'000);
    const int points = 1 + dice.below(4);
    for (int i = 0; i < points; ++i) {
      const base::Timing timing{time, time, 0, 1};
      all.collectives.push_back({kind, ranks, bytes, timing, base::CollectiveLevel::World});
      if (contends && dice.chance(60)) {
        base::DuringComputeMeasurement row;
        row.kind = kind;
        row.ranks = ranks;
        row.bytes = bytes;
        row.timing = {time + time * dice.below(100) / 100, time, 0, 1};
        row.compute_permille = 1000 + dice.below(1000);
        all.during_compute.push_back(row);
      }
      bytes += 1 + dice.below(40'000);
      // Sometimes more bytes take less time.
      time = std::max<int64_t>(1, time + dice.below(60'000) - 10'000);
    }
  }
  return result;
}

}  // namespace dc::bound::test
