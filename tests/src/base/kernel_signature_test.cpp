// KernelSignature: equal kernels are one value, different ones are not, and text is read back.
#include "src/base/kernel_table.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <random>
#include <set>
#include <unordered_set>

namespace dc::base {
namespace {

using Numbers = std::vector<int64_t>;

KernelSignature product(Provider provider = Provider::Aten) {
  KernelSignature signature("aten.mm.default", provider);
  signature.add_tensor(DType::F32, Numbers{64, 32}, Numbers{32, 1});
  signature.add_tensor(DType::BF16, Numbers{32, 8}, Numbers{1, 32});
  signature.begin_results();
  signature.add_tensor(DType::F32, Numbers{64, 8}, Numbers{8, 1});
  return signature;
}

template <typename Value>
KernelSignature with(Value value) {
  KernelSignature signature("aten.op.default", Provider::Aten);
  signature.add_attribute("name", value);
  signature.begin_results();
  return signature;
}
KernelSignature with_doubles(std::vector<double> values) {
  return with(std::span<const double>(values));
}
KernelSignature with_integers(Numbers values) { return with(std::span<const int64_t>(values)); }
KernelSignature with_none() {
  KernelSignature signature("aten.op.default", Provider::Aten);
  signature.add_attribute("name");
  signature.begin_results();
  return signature;
}

TEST(KernelSignature, TextIsForPeople) {
  EXPECT_EQ(product().text(),
            "aten.mm.default f32[64,32](32,1) bf16[32,8](1,32) -> f32[64,8](8,1)");
  KernelSignature norm("aten.native_layer_norm.default", Provider::Aten);
  norm.add_tensor(DType::F32, Numbers{2, 3}, Numbers{3, 1});
  norm.add_attribute("normalized_shape", std::span<const int64_t>(Numbers{3}));
  norm.add_attribute("weight");
  norm.add_none();
  norm.add_attribute("eps", 1e-5);
  norm.add_attribute("approximate", std::string_view("tanh"));
  norm.add_attribute("scales", std::span<const double>(std::vector<double>{0.5, 2}));
  norm.begin_results();
  norm.add_tensor(DType::F32, Numbers{}, Numbers{});
  norm.add_none();
  EXPECT_EQ(norm.text(),
            "aten.native_layer_norm.default f32[2,3](3,1) normalized_shape=[3] weight=none none "
            "eps=1e-05 approximate=tanh scales=[0.5,2] -> f32[]() none");
}

TEST(KernelSignature, SaysWhatItWasMadeOf) {
  const KernelSignature signature = product(Provider::Native);
  EXPECT_EQ(signature.op(), "aten.mm.default");
  EXPECT_EQ(signature.provider(), Provider::Native);
  const KernelTensors tensors = signature.tensors();
  ASSERT_EQ(tensors.inputs.size(), 2u);
  EXPECT_EQ(tensors.inputs[1].dtype, DType::BF16);
  EXPECT_EQ(Numbers(tensors.inputs[1].shape.begin(), tensors.inputs[1].shape.end()),
            (Numbers{32, 8}));
  EXPECT_EQ(tensors.inputs[1].numel(), 256);
  EXPECT_EQ(tensors.inputs[1].bytes(), 512);
  EXPECT_TRUE(tensors.inputs[0].is_contiguous());
  EXPECT_FALSE(tensors.inputs[1].is_contiguous());
  ASSERT_EQ(tensors.results.size(), 1u);
  EXPECT_EQ(tensors.results[0]->bytes(), 64 * 8 * 4);
}

TEST(KernelSignature, EveryPartCounts) {
  std::vector<KernelSignature> all = {product(), product(Provider::Native), KernelSignature()};
  const auto variant = [&](const char* op, DType dtype, Numbers shape, Numbers strides,
                           bool result) {
    KernelSignature signature(op, Provider::Aten);
    if (result) signature.begin_results();
    signature.add_tensor(dtype, shape, strides);
    if (!result) signature.begin_results();
    all.push_back(signature);
  };
  variant("aten.mm.default", DType::F32, {2, 3}, {3, 1}, false);
  variant("aten.mm.default", DType::F32, {2, 3}, {3, 1}, true);
  variant("aten.mm.out", DType::F32, {2, 3}, {3, 1}, false);
  variant("aten.mm.default", DType::F16, {2, 3}, {3, 1}, false);
  variant("aten.mm.default", DType::F32, {3, 2}, {3, 1}, false);
  variant("aten.mm.default", DType::F32, {2, 3}, {1, 2}, false);
  variant("aten.mm.default", DType::F32, {2, 3, 1}, {3, 1, 1}, false);
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < all.size(); ++j) {
      EXPECT_EQ(all[i] == all[j], i == j) << i << " " << j;
      EXPECT_EQ(all[i].hash() == all[j].hash(), i == j) << i << " " << j;
      EXPECT_EQ((all[i] <=> all[j]) == 0, i == j);
    }
  }
}

// On another space a kernel is another one, with the same text.
TEST(KernelSignature, SaysOnWhichSpaceItWorks) {
  const KernelSignature device = product(), host = device.in(Space::Host);
  EXPECT_EQ(device.space(), Space::Device);
  EXPECT_EQ(host.space(), Space::Host);
  EXPECT_EQ(host.op(), device.op());
  EXPECT_EQ(host.provider(), device.provider());
  EXPECT_NE(host, device);
  EXPECT_NE(host.hash(), device.hash());
  EXPECT_EQ(host.text(), device.text());
  EXPECT_EQ(host.in(Space::Device), device);
  EXPECT_EQ(KernelSignature::parse(host.text(), host.provider(), Space::Host), host);
}

TEST(KernelSignature, NumbersAreTheirValues) {
  EXPECT_EQ(with(int64_t{1}), with(1.0));
  EXPECT_EQ(with(int64_t{0}), with(-0.0));
  EXPECT_NE(with(int64_t{1}), with(1.5));
  EXPECT_NE(with(int64_t{1}), with_integers({1}));
  EXPECT_EQ(with_integers({1, 2}), with_doubles({1, 2}));
  EXPECT_NE(with_integers({1, 2}), with_doubles({1, 2.5}));
  EXPECT_EQ(with(std::string_view("none")), with_none());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(with(nan), with(-nan));
}

TEST(KernelSignature, OwnOperatorsHaveNoAttributes) {
  KernelSignature one("dc.adamw", Provider::Native), other("dc.adamw", Provider::Native);
  one.add_attribute("param", int64_t{3});
  other.add_attribute("param", int64_t{4});
  one.begin_results();
  other.begin_results();
  EXPECT_EQ(one, other);
  EXPECT_EQ(one.text(), "dc.adamw ->");
  EXPECT_FALSE(KernelSignature::parse("dc.adamw param=3 ->", Provider::Native).has_value());
}

TEST(KernelSignature, TheTableHoldsEachOnce) {
  const KernelId aten = intern(product()), native = intern(product(Provider::Native));
  EXPECT_NE(aten, native);
  EXPECT_EQ(intern(product()), aten);
  EXPECT_EQ(signature_of(native), product(Provider::Native));
  std::vector<KernelId> ids;
  for (int64_t i = 0; i < 5000; ++i) ids.push_back(intern(with(i)));
  for (int64_t i = 0; i < 5000; ++i) {
    ASSERT_EQ(signature_of(ids[static_cast<size_t>(i)]), with(i));
    ASSERT_EQ(intern(with(i)), ids[static_cast<size_t>(i)]);
  }
  EXPECT_EQ(signature_of(aten), product());
}

TEST(KernelSignature, ProvidersHaveNames) {
  for (const Provider provider : {Provider::Aten, Provider::Native, Provider::Fused})
    EXPECT_EQ(provider_from_name(name(provider)), provider);
  EXPECT_FALSE(provider_from_name("cuda").has_value());
}

TEST(KernelSignature, OtherTextIsRefused) {
  for (const char* text : {"",
                           " ->",
                           "aten.mm.default",
                           "aten.mm.default f32[2](1)",
                           "aten.mm.default -> ->",
                           "aten.mm.default  ->",
                           "aten.mm.default -> x=1",
                           "aten.mm.default f31[2](1) ->",
                           "aten.mm.default f32[2](1 ->",
                           "aten.mm.default f32[2]1 ->",
                           "aten.mm.default f32[2](1,1) ->",
                           "aten.mm.default f32[-2](1) ->",
                           "aten.mm.default f32[2,](1,1) ->",
                           "aten.mm.default f32[x](1) ->",
                           "aten.mm.default f32[2](1)x ->",
                           "aten.mm.default =1 ->",
                           "aten.mm.default a= ->",
                           "aten.mm.default a=[1 ->",
                           "aten.mm.default a=[1,x] ->",
                           "aten.mm.default a=\"x ->",
                           "aten.mm.default a=x! ->",
                           "aten.mm.default a ->",
                           "aten.mm.default f32[99999999999999999999](1) ->",
                           "aten.mm.default -> "}) {
    EXPECT_FALSE(KernelSignature::parse(text, Provider::Aten).has_value()) << text;
  }
}

// What older profiles say of numbers: every float as short as it can be.
TEST(KernelSignature, OlderTextIsTheSameKernel) {
  const auto same = [](const char* value) {
    const auto read = KernelSignature::parse("aten.op.default name=" + std::string(value) + " ->",
                                             Provider::Aten);
    EXPECT_TRUE(read.has_value()) << value;
    return read.value_or(KernelSignature());
  };
  EXPECT_EQ(same("1e+05"), with(100000.0));
  EXPECT_EQ(same("-0"), with(-0.0));
  EXPECT_EQ(same("1e+300"), with(1e300));
  EXPECT_EQ(same("9223372036854775808"), with(0x1p63));
  EXPECT_EQ(same("-9223372036854775808"), with(-0x1p63));
  EXPECT_EQ(same("inf"), with(std::numeric_limits<double>::infinity()));
  EXPECT_EQ(same("floor"), with(std::string_view("floor")));
}

class RandomKernels {
 public:
  explicit RandomKernels(uint32_t seed) : random_(seed) {}

  KernelSignature next() {
    static constexpr const char* kOps[] = {"aten.mm.default", "aten.add.Tensor", "dc.cast"};
    KernelSignature signature(kOps[below(3)], static_cast<Provider>(below(3)));
    for (int64_t left = below(6); left > 0; --left) add_argument(signature);
    signature.begin_results();
    for (int64_t left = below(3); left > 0; --left) add_tensor(signature);
    return signature;
  }

 private:
  int64_t below(uint32_t end) { return static_cast<int64_t>(random_() % end); }
  int64_t integer() {
    static constexpr int64_t kOdd[] = {std::numeric_limits<int64_t>::min(),
                                       std::numeric_limits<int64_t>::max(), 0, -1, 1 << 20};
    return below(3) == 0 ? kOdd[below(5)] : below(5) - 2;
  }
  double real() {
    static constexpr double kOdd[] = {0.0,    -0.0,    1e-320, 0x1p63, -0x1p63, 1e5, 0.1,
                                      1e+300, -1e-300, 0x1p62, 0x1p53, 3.0,     1e22};
    if (below(4) == 0) return std::bit_cast<double>(uint64_t{random_()} << 32 | random_());
    if (below(8) == 0) return std::numeric_limits<double>::infinity();
    return kOdd[below(13)];
  }
  std::string text() {
    static constexpr std::string_view kCharacters = "ab_Z09.-= \"\\[]()->,none";
    if (below(4) == 0) return below(2) ? "nan" : "infinity";
    std::string text;
    for (int64_t left = below(6); left > 0; --left)
      text += kCharacters[static_cast<size_t>(below(kCharacters.size()))];
    return text;
  }
  void add_tensor(KernelSignature& signature) {
    if (below(5) == 0) return signature.add_none();
    static constexpr DType kTypes[] = {DType::F32, DType::BF16, DType::Bool, DType::I64};
    Numbers shape, strides;
    for (int64_t left = below(5); left > 0; --left) {
      shape.push_back(below(4));
      strides.push_back(integer());
    }
    signature.add_tensor(kTypes[below(4)], shape, strides);
  }
  void add_argument(KernelSignature& signature) {
    const std::string name = below(2) ? "dim" : "other_name";
    std::vector<double> reals;
    Numbers integers;
    for (int64_t left = below(4); left > 0; --left) {
      reals.push_back(real());
      integers.push_back(integer());
    }
    switch (below(8)) {
      case 0:
        return signature.add_attribute(name);
      case 1:
        return signature.add_attribute(name, integer());
      case 2:
        return signature.add_attribute(name, real());
      case 3:
        return signature.add_attribute(name, std::string_view(text()));
      case 4:
        return signature.add_attribute(name, std::span<const int64_t>(integers));
      case 5:
        return signature.add_attribute(name, std::span<const double>(reals));
      default:
        return add_tensor(signature);
    }
  }

  std::mt19937 random_;
};

TEST(KernelSignature, RandomOnesAreReadBack) {
  RandomKernels kernels(11);
  for (int round = 0; round < 50000; ++round) {
    const KernelSignature signature = kernels.next();
    const auto read = KernelSignature::parse(signature.text(), signature.provider());
    ASSERT_TRUE(read.has_value()) << signature.text();
    ASSERT_EQ(*read, signature) << signature.text() << "\n" << read->text();
    ASSERT_EQ(read->hash(), signature.hash());
    ASSERT_EQ(read->text(), signature.text());
  }
}

// Two that differ differ in text or provider; equal ones meet in a table.
TEST(KernelSignature, TextAndValueTellTheSameKernelsApart) {
  RandomKernels kernels(5);
  std::unordered_set<KernelSignature, KernelSignatureHash> values;
  std::set<KernelSignature> ordered;
  std::set<std::pair<std::string, Provider>> texts;
  std::unordered_set<uint64_t> hashes;
  for (int round = 0; round < 50000; ++round) {
    const KernelSignature signature = kernels.next();
    texts.emplace(signature.text(), signature.provider());
    hashes.insert(signature.hash());
    ordered.insert(signature);
    values.insert(signature);
  }
  EXPECT_GT(values.size(), 10000u);
  EXPECT_LT(values.size(), 50000u);
  EXPECT_EQ(values.size(), texts.size());
  EXPECT_EQ(values.size(), ordered.size());
  EXPECT_EQ(values.size(), hashes.size());
}

// Whatever the text, the answer is a kernel or none.
TEST(KernelSignature, MutatedTextIsReadOrRefused) {
  RandomKernels kernels(3);
  std::mt19937 random(17);
  int refused = 0;
  for (int round = 0; round < 50000; ++round) {
    std::string text = kernels.next().text();
    for (uint32_t i = 0; i <= random() % 3; ++i)
      text[random() % text.size()] = static_cast<char>(random() % 256);
    const auto read = KernelSignature::parse(text, Provider::Aten);
    refused += !read;
    if (!read) continue;
    const auto again = KernelSignature::parse(read->text(), Provider::Aten);
    ASSERT_TRUE(again.has_value()) << text;
    ASSERT_EQ(*again, *read) << text;
  }
  EXPECT_GT(refused, 20000);
}

}  // namespace
}  // namespace dc::base
