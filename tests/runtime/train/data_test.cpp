#include "runtime/train/data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "runtime/train/token_file.h"
#include "runtime/train/token_scan.h"
#include "src/base/archive/safetensors.h"
#include "tests/runtime/train/scratch_folder.h"

namespace dc::runtime::test {
namespace {

using base::DType;

// Inputs with their memory.
struct Batch {
  train::DataRequest request;
  std::vector<std::vector<uint8_t>> memory;

  void add(const std::string& name, plan::InputRole role, DType dtype, std::vector<int64_t> sizes,
           double low, double high) {
    plan::Tensor tensor;
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.sizes = std::move(sizes);
    tensor.strides.resize(tensor.sizes.size());
    int64_t stride = 1;
    for (size_t d = tensor.sizes.size(); d-- > 0; stride *= tensor.sizes[d]) {
      tensor.strides[d] = stride;
    }
    plan::Input input{name, role, low, high, 0};
    request.shape.rows = std::max(request.shape.rows, train::rows_of(input, tensor));
    memory.emplace_back(static_cast<size_t>(stride * base::byte_size(dtype)), 0xEE);
    request.inputs.push_back(input);
    request.tensors.push_back(std::move(tensor));
  }
  std::vector<kernel::BoundTensor> bound() {
    std::vector<kernel::BoundTensor> list;
    for (size_t i = 0; i < memory.size(); ++i) {
      const plan::Tensor& tensor = request.tensors[i];
      list.push_back({memory[i].data(), tensor.dtype, tensor.sizes, tensor.strides});
    }
    return list;
  }
  template <typename T>
  const T* data(size_t input) const {
    return reinterpret_cast<const T*>(memory[input].data());
  }
};

Batch token_batch(int64_t world, int64_t rank, int64_t accumulation, int64_t rows, int64_t window,
                  double vocabulary = 60000) {
  Batch batch;
  batch.request.shape = {accumulation, world, rank, 1};
  batch.add("ids", plan::InputRole::Tokens, DType::I64, {rows, window}, 0, vocabulary);
  batch.add("labels", plan::InputRole::Labels, DType::I64, {rows, window}, 0, vocabulary);
  batch.add("mask", plan::InputRole::Mask, DType::Bool, {rows, window}, 0, 2);
  batch.add("positions", plan::InputRole::Positions, DType::I32, {1, window}, 0, 1e9);
  return batch;
}

template <typename T>
std::string counting_tokens(int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    const T value = static_cast<T>(i);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  return bytes;
}

TEST(TokenData, RowsFollowTheFormulaAndTheFileStartsOver) {
  const ScratchFolder folder;
  const int window = 5, samples = 29;  // not a whole number of global batches of 12
  const std::string path = folder.write("t.bin", counting_tokens<uint16_t>(samples * window + 3));
  const int64_t world = 3, ga = 2, rows = 2, steps_per_epoch = 2;
  for (int64_t rank = 0; rank < world; ++rank) {
    Batch batch = token_batch(world, rank, ga, rows, window);
    auto data = train::DataSource::open({path}, batch.request);
    ASSERT_TRUE(data.ok()) << data.status().to_string();
    for (int64_t step = 0; step < 5; ++step) {
      EXPECT_EQ((*data)->epoch(step), step / steps_per_epoch);
      for (int64_t mb = 0; mb < ga; ++mb) {
        ASSERT_TRUE((*data)->fill(step, mb, batch.bound()).ok());
        for (int64_t row = 0; row < rows; ++row) {
          const int64_t k = (((step % steps_per_epoch) * ga + mb) * world + rank) * rows + row;
          for (int64_t i = 0; i < window; ++i) {
            ASSERT_EQ(batch.data<int64_t>(0)[row * window + i], k * window + i);
            ASSERT_EQ(batch.data<int64_t>(1)[row * window + i], k * window + i);
            ASSERT_EQ(batch.data<uint8_t>(2)[row * window + i], 1);
            ASSERT_EQ(batch.data<int32_t>(3)[i], i);
          }
        }
      }
    }
  }
}

TEST(TokenData, ReadsAllElementTypes) {
  const ScratchFolder folder;
  const std::map<std::string, std::string> files = {{"uint16", counting_tokens<uint16_t>(20)},
                                                    {"uint32", counting_tokens<uint32_t>(20)},
                                                    {"int64", counting_tokens<int64_t>(20)}};
  for (const auto& [type, bytes] : files) {
    Batch batch = token_batch(1, 0, 1, 2, 5);
    auto data = train::DataSource::open({folder.write(type, bytes) + ":" + type}, batch.request);
    ASSERT_TRUE(data.ok()) << data.status().to_string();
    ASSERT_TRUE((*data)->fill(1, 0, batch.bound()).ok());
    EXPECT_EQ(batch.data<int64_t>(0)[9], 19) << type;
  }
}

TEST(TokenData, ShuffleIsAPermutationOfItsOwnInEveryEpoch) {
  std::set<std::vector<int64_t>> orders;
  for (const int64_t size : {1, 2, 7, 64, 1000}) {
    for (const uint64_t key : {0ull, 1ull, 2ull}) {
      std::set<int64_t> seen;
      std::vector<int64_t> order;
      for (int64_t i = 0; i < size; ++i) order.push_back(train::permute(i, size, key));
      seen.insert(order.begin(), order.end());
      ASSERT_EQ(static_cast<int64_t>(seen.size()), size);
      ASSERT_GE(*seen.begin(), 0);
      ASSERT_LT(*seen.rbegin(), size);
      if (size == 1000) orders.insert(order);
    }
  }
  EXPECT_EQ(orders.size(), 3u);
  // An epoch of whole batches uses every sample once; the next uses them in another order.
  const train::Sampler sampler(24, {2, 3, 1, 2}, 5);
  std::vector<int64_t> first, second;
  for (int64_t step = 0; step < 4; ++step) {
    for (int64_t mb = 0; mb < 2; ++mb) {
      for (int64_t rank = 0; rank < 3; ++rank) {
        const train::Sampler other(24, {2, 3, rank, 2}, 5);
        for (int64_t row = 0; row < 2; ++row) {
          (step < 2 ? first : second).push_back(other.sample(step, mb, row));
        }
      }
    }
  }
  EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()).size(), 24u);
  EXPECT_EQ(std::set<int64_t>(second.begin(), second.end()).size(), 24u);
  EXPECT_NE(first, second);
  EXPECT_EQ(sampler.epoch(2), 1);
}

// Samples of a step, of all ranks and micro-batches.
std::vector<int64_t> global_batch(int64_t samples, train::BatchShape shape,
                                  const train::DataStart& start, std::optional<uint64_t> shuffle,
                                  int64_t step) {
  std::vector<int64_t> batch;
  for (int64_t mb = 0; mb < shape.accumulation; ++mb) {
    for (shape.rank = 0; shape.rank < shape.world; ++shape.rank) {
      const train::Sampler sampler(samples, shape, shuffle, start);
      for (int64_t row = 0; row < shape.rows; ++row) batch.push_back(sampler.sample(step, mb, row));
    }
  }
  return batch;
}

TEST(Sampler, GoesOnAsIfItHadNotStopped) {
  const train::BatchShape shape{2, 3, 0, 2};
  for (const auto& shuffle : {std::optional<uint64_t>(), std::optional<uint64_t>(7)}) {
    for (const int64_t samples : {12, 24, 40, 47}) {
      for (int64_t half = 0; half < 12; ++half) {
        const train::Sampler before(samples, shape, shuffle);
        const train::DataStart start{half, before.position(half)};
        EXPECT_EQ(start.position.samples, half * shape.per_step());
        const train::Sampler after(samples, shape, shuffle, start);
        for (int64_t step = half; step < half + 9; ++step) {
          ASSERT_EQ(global_batch(samples, shape, start, shuffle, step),
                    global_batch(samples, shape, {}, shuffle, step));
          ASSERT_EQ(after.epoch(step), before.epoch(step));
          ASSERT_EQ(after.position(step), before.position(step));
        }
      }
    }
  }
}

// From batches of 12 to batches of 5 in the middle of an epoch: no sample is left out or read twice
// until less than a batch is left.
TEST(Sampler, AnotherGlobalBatchReadsOnFromTheNextSample) {
  constexpr int64_t kSamples = 40;
  const train::BatchShape wide{2, 3, 0, 2}, narrow{1, 5, 0, 1};
  for (const auto& shuffle : {std::optional<uint64_t>(), std::optional<uint64_t>(7)}) {
    for (const int64_t half : {1, 2, 3}) {  // 3: the epoch of the wide batches ends with 4 left
      std::vector<int64_t> read;
      for (int64_t step = 0; step < half; ++step) {
        for (const int64_t s : global_batch(kSamples, wide, {}, shuffle, step)) read.push_back(s);
      }
      const train::DataStart start{half, train::Sampler(kSamples, wide, shuffle).position(half)};
      const train::Sampler after(kSamples, narrow, shuffle, start);
      int64_t step = half;
      for (; after.epoch(step) == 0; ++step) {
        for (const int64_t s : global_batch(kSamples, narrow, start, shuffle, step))
          read.push_back(s);
      }
      EXPECT_EQ(after.position(step).samples, static_cast<int64_t>(read.size()));
      const std::set<int64_t> different(read.begin(), read.end());
      EXPECT_EQ(different.size(), read.size());
      EXPECT_LT(kSamples - static_cast<int64_t>(read.size()), narrow.per_step());
      EXPECT_EQ(after.epoch(step), 1);
      if (!shuffle) {
        EXPECT_EQ(*different.rbegin(), static_cast<int64_t>(read.size()) - 1);
        EXPECT_EQ(global_batch(kSamples, narrow, start, shuffle, step)[0], 0);
      }
    }
  }
}

TEST(TokenData, ComplaintsSayWhatToDo) {
  const ScratchFolder folder;
  const std::string path = folder.write("t.bin", counting_tokens<uint16_t>(40));
  Batch small = token_batch(1, 0, 1, 2, 5, 15);
  const auto outside = train::DataSource::open({path}, small.request);  // found before any step
  ASSERT_FALSE(outside.ok());
  EXPECT_EQ(base::exit_code(outside.status().kind()), 65);
  EXPECT_NE(outside.status().sentence().find("token 15 at byte 30"), std::string::npos)
      << outside.status().sentence();

  Batch large = token_batch(4, 0, 1, 3, 5);
  const auto few = train::DataSource::open({path}, large.request);
  ASSERT_FALSE(few.ok());
  EXPECT_EQ(base::exit_code(few.status().kind()), 65);
  EXPECT_NE(few.status().sentence().find("one step reads 12"), std::string::npos);

  EXPECT_EQ(
      base::exit_code(train::DataSource::open({path + ":int7"}, small.request).status().kind()),
      64);
  EXPECT_EQ(base::exit_code(train::DataSource::open({path + "x"}, small.request).status().kind()),
            66);
  EXPECT_EQ(
      base::exit_code(train::DataSource::open({"synthetic:x"}, small.request).status().kind()), 64);
  const std::string odd = folder.write("odd.bin", "abc");
  EXPECT_EQ(base::exit_code(train::DataSource::open({odd}, small.request).status().kind()), 65);
  Batch images;
  images.add("image", plan::InputRole::Float, DType::F32, {2, 3}, 0, 1);
  EXPECT_EQ(base::exit_code(train::DataSource::open({path}, images.request).status().kind()), 65);
}

Batch next_batch(int64_t rows, int64_t window, double vocabulary = 60000) {
  Batch batch = token_batch(1, 0, 1, rows, window, vocabulary);
  batch.request.inputs[1].next = true;
  return batch;
}

TEST(TokenData, NextLabelsAreOneTokenFurther) {
  const ScratchFolder folder;
  const int64_t window = 5;
  for (const int tokens : {20, 21, 25, 26}) {
    const std::string path = folder.write("t.bin", counting_tokens<uint16_t>(tokens));
    Batch batch = next_batch(1, window);
    auto data = train::DataSource::open({path}, batch.request);
    ASSERT_TRUE(data.ok()) << data.status().to_string();
    // The last window needs one token behind it: 20 tokens are 3 samples, 21 are 4.
    const int64_t samples = (tokens - 1) / window;
    EXPECT_EQ((*data)->epoch(samples - 1), 0) << tokens;
    EXPECT_EQ((*data)->epoch(samples), 1) << tokens;
    for (int64_t k = 0; k < samples; ++k) {
      ASSERT_TRUE((*data)->check(k).ok());
      ASSERT_TRUE((*data)->fill(k, 0, batch.bound()).ok());
      for (int64_t i = 0; i < window; ++i) {
        ASSERT_EQ(batch.data<int64_t>(0)[i], k * window + i);
        ASSERT_EQ(batch.data<int64_t>(1)[i], k * window + i + 1);
      }
    }
  }
  Batch drawn = next_batch(2, 7, 100);
  auto synthetic = train::DataSource::open({"synthetic:4"}, drawn.request);
  ASSERT_TRUE((*synthetic)->fill(3, 0, drawn.bound()).ok());
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t i = 0; i + 1 < 7; ++i) {
      ASSERT_EQ(drawn.data<int64_t>(1)[row * 7 + i], drawn.data<int64_t>(0)[row * 7 + i + 1]);
    }
  }
}

TEST(TokenData, SeveralFilesFollowEachOtherAndNoWindowCrosses) {
  const ScratchFolder folder;
  const std::string first = folder.write("a.bin", counting_tokens<uint16_t>(13));
  const std::string second = folder.write("b.bin", counting_tokens<int64_t>(11));
  Batch batch = token_batch(1, 0, 1, 1, 5);
  auto data = train::DataSource::open({first, second + ":int64"}, batch.request);
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  const std::vector<int64_t> starts = {0, 5, 0, 5};  // 13 and 11 tokens are two windows each
  for (size_t k = 0; k < starts.size(); ++k) {
    ASSERT_TRUE((*data)->fill(static_cast<int64_t>(k), 0, batch.bound()).ok());
    EXPECT_EQ(batch.data<int64_t>(0)[0], starts[k]) << k;
    EXPECT_EQ(batch.data<int64_t>(0)[4], starts[k] + 4) << k;
  }
  EXPECT_EQ((*data)->epoch(4), 1);
  EXPECT_EQ(
      base::exit_code(train::DataSource::open({first, std::string("synthetic")}, batch.request)
                          .status()
                          .kind()),
      64);
}

TEST(TokenData, FilesOfSomethingElseAreRefused) {
  const ScratchFolder folder;
  Batch batch = token_batch(1, 0, 1, 1, 5, 1e9);
  const auto refused = [&](const std::string& text, const std::string& word) {
    const auto data = train::DataSource::open({text}, batch.request);
    ASSERT_FALSE(data.ok()) << text;
    EXPECT_EQ(base::exit_code(data.status().kind()), 65);
    EXPECT_NE(data.status().sentence().find(word), std::string::npos) << data.status().sentence();
  };
  const std::string wide = folder.write("w.bin", counting_tokens<uint32_t>(1000));
  refused(wide, ":uint32");
  refused(wide + ":uint16", ":uint32");
  EXPECT_TRUE(train::DataSource::open({wide + ":uint32"}, batch.request).ok());
  const std::string widest = folder.write("x.bin", counting_tokens<int64_t>(1000));
  refused(widest, ":int64");
  refused(widest + ":uint32", ":int64");
  EXPECT_TRUE(train::DataSource::open({widest + ":int64"}, batch.request).ok());
  // Numbers that only happen to be small are not judged, nor is a file of zeros.
  EXPECT_TRUE(
      train::DataSource::open({folder.write("z.bin", std::string(4000, '\0'))}, batch.request)
          .ok());
  std::string text;
  while (text.size() < 1000) text += "To be, or not to be, that is the question:\n";
  refused(folder.write("t.txt", text.substr(0, 1000)), "text");
  refused(
      folder.write("t.npy", "\x93NUMPY" + std::string(122, ' ') + counting_tokens<uint16_t>(99)),
      "NumPy");
  const std::string header = R"({"tokens":{"dtype":"I64","shape":[2,4],"data_offsets":[0,64]}})";
  const std::string size{static_cast<char>(header.size()), 0, 0, 0, 0, 0, 0, 0};
  refused(folder.write("t.st", size + header + counting_tokens<int64_t>(8)), "safetensors");
}

TEST(TokenData, AFileCutShortIsAnErrorOfTheStepBefore) {
  const ScratchFolder folder;
  const std::string path = folder.write("t.bin", counting_tokens<uint16_t>(1000));
  Batch batch = token_batch(1, 0, 1, 1, 100);
  auto data = train::DataSource::open({path}, batch.request);
  ASSERT_TRUE(data.ok());
  std::filesystem::resize_file(path, 1000);
  EXPECT_TRUE((*data)->check(4).ok());
  const base::Status cut = (*data)->check(5);
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(base::exit_code(cut.kind()), 74);
  EXPECT_NE(cut.sentence().find(path), std::string::npos);
}

TEST(TokenScan, FindsEveryBadTokenInTheBackgroundToo) {
  const ScratchFolder folder;
  for (const int64_t bad : {0, 65535, 65536, 199999, -1}) {
    std::string bytes(400000, '\1');
    if (bad >= 0) std::memset(bytes.data() + bad * 2, 0xff, 2);
    std::vector<train::TokenFile> files;
    files.push_back(train::TokenFile::open(folder.write("t.bin", bytes)).value());
    int found = 0;
    for (int64_t rank = 0; rank < 3; ++rank) {
      auto at_once = train::TokenScan::start(files, 1000, rank, 3);
      auto later = train::TokenScan::start(files, 1000, rank, 3, 0);
      ASSERT_TRUE(later.ok());
      while (!(*later)->finished()) std::this_thread::yield();
      EXPECT_EQ((*later)->problem().ok(), at_once.ok());
      if (at_once.ok()) continue;
      ++found;
      const std::string where = "at byte " + std::to_string(bad * 2) + " ";
      EXPECT_NE(at_once.status().sentence().find(where), std::string::npos);
      EXPECT_EQ((*later)->problem().sentence(), at_once.status().sentence());
    }
    EXPECT_EQ(found, bad < 0 ? 0 : 1) << bad;
  }
}

TEST(SyntheticData, AGlobalBatchDoesNotDependOnHowItIsSpread) {
  // 1 x 4 x 2 rows, 2 x 2 x 2 and 4 x 1 x 2: the same 8 samples per step.
  std::vector<std::vector<int64_t>> tokens;
  std::vector<std::vector<float>> reals;
  for (const int64_t world : {1, 2, 4}) {
    const int64_t ga = 4 / world, rows = 2, window = 3;
    std::vector<int64_t> all(static_cast<size_t>(8 * window));
    std::vector<float> real(8);
    for (int64_t rank = 0; rank < world; ++rank) {
      Batch batch = token_batch(world, rank, ga, rows, window, 100);
      batch.add("f", plan::InputRole::Float, DType::F32, {rows, 1}, -2, 3);
      auto data = train::DataSource::open({"synthetic:9"}, batch.request);
      ASSERT_TRUE(data.ok());
      for (int64_t mb = 0; mb < ga; ++mb) {
        ASSERT_TRUE((*data)->fill(7, mb, batch.bound()).ok());
        const int64_t first = (mb * world + rank) * rows;
        std::memcpy(&all[static_cast<size_t>(first * window)], batch.data<int64_t>(0), 48);
        std::memcpy(&real[static_cast<size_t>(first)], batch.data<float>(4), 8);
        EXPECT_EQ(std::memcmp(batch.data<int64_t>(0), batch.data<int64_t>(1), 48), 0);
      }
    }
    tokens.push_back(all);
    reals.push_back(real);
  }
  EXPECT_EQ(tokens[0], tokens[1]);
  EXPECT_EQ(tokens[0], tokens[2]);
  EXPECT_EQ(reals[0], reals[1]);
  EXPECT_EQ(reals[0], reals[2]);
  EXPECT_GT(std::set<int64_t>(tokens[0].begin(), tokens[0].end()).size(), 12u);
  for (const int64_t t : tokens[0]) EXPECT_TRUE(t >= 0 && t < 100);
  for (const float f : reals[0]) EXPECT_TRUE(f >= -2 && f < 3);
}

TEST(TensorData, ReadsRowsByNameAndChecksThem) {
  const ScratchFolder folder;
  auto layout = base::archive::layout_safetensors(
      {{"image", DType::F32, {4, 3}, 0, 0}, {"label", DType::I64, {4}, 0, 0}}, {});
  ASSERT_TRUE(layout.ok());
  std::string bytes = layout->header;
  bytes.resize(static_cast<size_t>(layout->file_bytes));
  for (int64_t i = 0; i < 12; ++i) {
    const auto value = static_cast<float>(i);
    std::memcpy(bytes.data() + layout->tensors[0].offset + i * 4, &value, 4);
  }
  const int64_t labels[] = {0, 9, -100, 10};
  std::memcpy(bytes.data() + layout->tensors[1].offset, labels, 32);
  const std::string path = folder.write("d.safetensors", bytes);

  Batch batch;
  batch.add("image", plan::InputRole::Float, DType::F32, {1, 3}, 0, 1);
  batch.add("label", plan::InputRole::Class, DType::I64, {1}, 0, 10);
  auto data = train::DataSource::open({path}, batch.request);
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  ASSERT_TRUE((*data)->fill(1, 0, batch.bound()).ok());
  EXPECT_EQ(batch.data<float>(0)[2], 5);
  EXPECT_EQ(batch.data<int64_t>(1)[0], 9);
  EXPECT_TRUE((*data)->fill(2, 0, batch.bound()).ok());  // an ignored label
  EXPECT_EQ((*data)->epoch(4), 1);
  const base::Status outside = (*data)->fill(3, 0, batch.bound());
  ASSERT_FALSE(outside.ok());
  EXPECT_NE(outside.sentence().find("value 10 of 'label' in sample 3"), std::string::npos);

  batch.request.inputs[1].ignored = 10;
  auto other = train::DataSource::open({path}, batch.request);
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  EXPECT_TRUE((*other)->fill(3, 0, batch.bound()).ok());
  EXPECT_FALSE((*other)->fill(2, 0, batch.bound()).ok());  // -100, which this loss does not ignore

  batch.request.inputs[1].guessed = true;  // nothing is known of the range
  auto unchecked = train::DataSource::open({path}, batch.request);
  ASSERT_TRUE(unchecked.ok()) << unchecked.status().to_string();
  EXPECT_TRUE((*unchecked)->check(3).ok());
  EXPECT_TRUE((*unchecked)->fill(3, 0, batch.bound()).ok());
  EXPECT_EQ(batch.data<int64_t>(1)[0], 10);

  Batch wrong;
  wrong.add("image", plan::InputRole::Float, DType::F64, {1, 3}, 0, 1);
  EXPECT_EQ(base::exit_code(train::DataSource::open({path}, wrong.request).status().kind()), 65);
  Batch missing;
  missing.add("audio", plan::InputRole::Float, DType::F32, {1, 3}, 0, 1);
  EXPECT_EQ(base::exit_code(train::DataSource::open({path}, missing.request).status().kind()), 65);
  Batch many;
  many.add("image", plan::InputRole::Float, DType::F32, {5, 3}, 0, 1);
  EXPECT_EQ(base::exit_code(train::DataSource::open({path}, many.request).status().kind()), 65);
}

}  // namespace
}  // namespace dc::runtime::test
