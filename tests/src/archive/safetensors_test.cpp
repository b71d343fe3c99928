#include "src/base/archive/safetensors.h"

#include <gtest/gtest.h>

#include "tests/src/archive/temporary_folder.h"

namespace dc::base::archive {
namespace {

using tests::TemporaryFolder;

std::string file_with(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 255);
  return bytes + header + data;
}

std::span<const uint8_t> as_bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TEST(Safetensors, WhatWritersFillReadersFind) {
  auto layout = layout_safetensors({{.name = "b", .dtype = DType::BF16, .shape = {3}},
                                    {.name = "f", .dtype = DType::F32, .shape = {2, 2}},
                                    {.name = "none", .dtype = DType::I64, .shape = {0, 4}},
                                    {.name = "scalar", .dtype = DType::F64, .shape = {}}},
                                   {{"format", "pt"}});
  ASSERT_TRUE(layout.ok());
  TemporaryFolder folder;
  auto file = OutputFile::create(folder / "a.safetensors", layout->file_bytes);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->write_at(0, as_bytes(layout->header)).ok());
  for (const SafeTensor& tensor : layout->tensors) {
    EXPECT_EQ(tensor.offset % byte_size(tensor.dtype), 0) << tensor.name;
    const std::string data(static_cast<size_t>(tensor.bytes), tensor.name[0]);
    ASSERT_TRUE(file->write_at(tensor.offset, as_bytes(data)).ok());
  }
  ASSERT_TRUE(file->commit().ok());

  auto read = SafetensorsFile::open(folder / "a.safetensors");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->metadata().at("format"), "pt");
  EXPECT_EQ(read->tensors().size(), 4u);
  const SafeTensor* f = read->find("f");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(read->bytes(*f).size(), 16u);
  EXPECT_EQ(read->bytes(*f)[15], 'f');
  EXPECT_EQ(read->bytes(*read->find("none")).size(), 0u);
  EXPECT_EQ(read->find("absent"), nullptr);
}

TEST(Safetensors, RefusesMalformedFiles) {
  const std::string good = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  TemporaryFolder folder;
  ASSERT_TRUE(SafetensorsFile::open(folder.write("x", file_with(good, "ab"))).ok());
  const auto refused = [&folder](const std::string& bytes) {
    auto file = SafetensorsFile::open(folder.write("x", bytes));
    return !file.ok() && file.status().kind() == ErrorKind::BadInput;
  };
  EXPECT_TRUE(refused(file_with(good, "a")));    // short
  EXPECT_TRUE(refused(file_with(good, "abc")));  // bytes left over
  EXPECT_TRUE(refused(""));
  EXPECT_TRUE(refused(std::string(8, '\xff')));
  EXPECT_TRUE(refused(file_with("[]", "")));
  const auto one = [](const std::string& dtype, const std::string& shape,
                      const std::string& range) {
    return "{\"a\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + range +
           "}}";
  };
  EXPECT_TRUE(refused(file_with(one("U8", "[2]", "[0,1]"), "a")));
  EXPECT_TRUE(refused(file_with(one("U8", "[1]", "[1,2]"), "ab")));
  EXPECT_TRUE(refused(file_with(one("U8", "[-1]", "[0,1]"), "a")));
  EXPECT_TRUE(refused(file_with(one("U8", "[1.0]", "[0,1]"), "a")));
  EXPECT_TRUE(refused(file_with(one("X9", "[1]", "[0,1]"), "a")));
  EXPECT_TRUE(refused(file_with(one("F64", "[4611686018427387904,4]", "[0,0]"), "")));
  EXPECT_TRUE(refused(file_with(
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
      "abc")));
  EXPECT_TRUE(refused(file_with(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
      "ab")));
}

TEST(Safetensors, TruncatedOrFlippedNeverCrashes) {
  const std::string whole = file_with(
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})",
      "12345678");
  TemporaryFolder folder;
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(SafetensorsFile::open(folder.write("x", whole.substr(0, length))).ok()) << length;
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string broken = whole;
    broken[i] = static_cast<char>(broken[i] ^ 0x11);
    auto file = SafetensorsFile::open(folder.write("x", broken));
    if (!file.ok()) continue;
    for (const SafeTensor& tensor : file->tensors()) {
      EXPECT_EQ(static_cast<int64_t>(file->bytes(tensor).size()), tensor.bytes);
    }
  }
}

TEST(Safetensors, LayoutRefusesDuplicates) {
  EXPECT_FALSE(
      layout_safetensors({{.name = "a", .shape = {1}}, {.name = "a", .shape = {1}}}, {}).ok());
  EXPECT_FALSE(layout_safetensors({{.name = "a", .shape = {INT64_MAX}}}, {}).ok());
}

}  // namespace
}  // namespace dc::base::archive
