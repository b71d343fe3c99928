// Writing by N ranks, reading by M: every element of the state, whatever the placements.
#include "runtime/checkpoint/saver.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "runtime/checkpoint/reader.h"
#include "runtime/checkpoint/restore.h"
#include "src/base/archive/safetensors.h"
#include "tests/runtime/checkpoint/state_plan.h"
#include "tests/runtime/exec/hand_plan.h"
#include "tests/runtime/train/scratch_folder.h"

namespace dc::runtime::test {
namespace {

namespace fs = std::filesystem;
using base::Status;

checkpoint::RunState run_at(const plan::Plan& plan, int64_t step) {
  checkpoint::RunState run;
  run.step = step;
  run.optimizer = "adamw";
  run.model_digest = plan.model_digest;
  run.world = plan.world();
  return run;
}

using Change = std::function<void(RankState&, const plan::Plan&, int rank)>;

// All ranks save their part of the truth; the results by rank.
std::vector<checkpoint::SaveResult> save(const StatePlan& made, const std::string& folder,
                                         int64_t step, bool copies, int64_t keep = 0,
                                         const Change& change = nullptr) {
  fs::create_directories(folder);
  std::vector<checkpoint::SaveResult> results(static_cast<size_t>(made.plan.world()));
  on_ranks(made.plan.world(), {}, [&](comm::ProcessGroup& job, int rank) {
    RankState state(made.plan);
    state.fill(*checkpoint::parts_to_load(made.plan, rank));
    if (change) change(state, made.plan, rank);
    auto saver = checkpoint::CheckpointSaver::create({folder, keep, copies}, made.plan,
                                                     state.memory(), job.control());
    ASSERT_TRUE(saver.ok()) << saver.status().to_string();
    DC_ASSERT_OK((*saver)->begin(run_at(made.plan, step)));
    if (copies) state = RankState(made.plan);  // what the next steps do must not matter
    DC_ASSERT_OK((*saver)->look());
    auto result = (*saver)->settle();
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    results[static_cast<size_t>(rank)] = *result;
  });
  return results;
}

// Every tensor of every rank of `made` holds what the values are, and zeros behind them. Buffers of
// a rank come from rank modulo `saved_world`.
void expect_restored(const StatePlan& made, const std::string& path, int saved_world) {
  for (int rank = 0; rank < made.plan.world(); ++rank) {
    auto reader = checkpoint::CheckpointReader::open(path);
    ASSERT_TRUE(reader.ok()) << reader.status().to_string();
    const auto parts = *checkpoint::parts_to_load(made.plan, rank);
    DC_ASSERT_OK(checkpoint::check_fits(made.plan, **reader, parts));
    RankState state(made.plan);
    DC_ASSERT_OK(checkpoint::restore_state(made.plan, **reader, parts, state.memory()));
    for (const checkpoint::StatePart& part : parts) {
      checkpoint::ValueId id = part.piece.value;
      if (id.rank >= 0) id.rank %= saved_world;
      for (int64_t i = 0; i < state.numel(part.tensor); ++i) {
        const double expected = i < part.piece.count ? truth(id, part.piece.first + i) : 0;
        ASSERT_EQ(state.get(part.tensor, i), expected)
            << checkpoint::describe(id) << " element " << i << " rank " << rank;
      }
    }
  }
}

TEST(Saver, AnyNumberOfRanksReadsWhatAnyOtherWrote) {
  for (int from = 1; from <= 8; ++from) {
    const ScratchFolder scratch;
    for (const int zero : {0, 1, 3}) {
      if (from == 1 && zero > 0) continue;
      const StatePlan writer(from, zero);
      const std::string folder = scratch / ("zero" + std::to_string(zero));
      for (const checkpoint::SaveResult& result : save(writer, folder, 12, zero != 0)) {
        ASSERT_TRUE(result.saved()) << result.failure.to_string() << result.refused;
      }
      for (int to = 1; to <= 8; ++to) {
        SCOPED_TRACE(std::to_string(from) + " ranks of ZeRO " + std::to_string(zero) + " to " +
                     std::to_string(to));
        const std::string path = checkpoint::CheckpointFolder(folder).path_of(12);
        expect_restored(StatePlan(to, 3 - zero), path, from);
        expect_restored(StatePlan(to, zero), path, from);
      }
    }
  }
}

// Ranks and hosts: flat, and in shards that every host has.
const std::vector<std::pair<int, int>> kMeshes = {{1, 1}, {3, 1}, {4, 1}, {4, 2},
                                                  {6, 2}, {6, 3}, {4, 4}, {8, 2}};

TEST(Saver, ShardsThatEveryHostHasGoToAnyRanksAndBack) {
  for (const auto& [from, from_hosts] : kMeshes) {
    for (const int zero : {1, 3}) {
      const ScratchFolder scratch;
      for (const checkpoint::SaveResult& result :
           save(StatePlan(from, zero, from_hosts), scratch / "c", 12, zero != 1)) {
        ASSERT_TRUE(result.saved()) << result.failure.to_string() << result.refused;
      }
      const std::string path = checkpoint::CheckpointFolder(scratch / "c").path_of(12);
      for (const auto& [to, to_hosts] : kMeshes) {
        if (from_hosts == 1 && to_hosts == 1) continue;
        SCOPED_TRACE(std::to_string(from) + " ranks on " + std::to_string(from_hosts) +
                     " hosts to " + std::to_string(to) + " on " + std::to_string(to_hosts));
        expect_restored(StatePlan(to, zero, to_hosts), path, from);
      }
    }
  }
}

TEST(Saver, EveryElementIsWrittenOnceOverAllRanks) {
  for (const auto& [world, hosts] :
       {std::pair(1, 1), {2, 1}, {3, 1}, {4, 1}, {5, 1}, {4, 2}, {4, 4}, {6, 2}, {6, 3}}) {
    for (const int zero : {0, 1, 3}) {
      const StatePlan made(world, zero, hosts);
      std::map<checkpoint::ValueId, std::multiset<int64_t>> seen;
      for (int rank = 0; rank < world; ++rank) {
        const auto parts = checkpoint::parts_to_save(made.plan, rank);
        for (const checkpoint::StatePart& part : *parts) {
          for (int64_t i = 0; i < part.piece.count; ++i)
            seen[part.piece.value].insert(part.piece.first + i);
        }
      }
      for (const auto& [id, elements] : seen) {
        int64_t next = 0;
        for (const int64_t element : elements)
          EXPECT_EQ(element, next++) << checkpoint::describe(id);
      }
      // a: 3, b: 4, scalar: 3, frozen: 1; buffers: two shared, three of each rank.
      EXPECT_EQ(seen.size(), 11u + 2u + 3u * static_cast<size_t>(world));
    }
  }
}

// Of a value that is long enough for all: parts are of whole 32s.
TEST(Saver, EveryRankWritesItsShare) {
  const int64_t elements = int64_t{3} * 11 * 13;
  for (const auto& [world, hosts] : {std::pair(4, 1), {4, 2}, {4, 4}, {6, 2}, {6, 3}, {8, 4}}) {
    for (const int zero : {0, 1, 3}) {
      SCOPED_TRACE(std::to_string(world) + " ranks on " + std::to_string(hosts) + " hosts, ZeRO " +
                   std::to_string(zero));
      const StatePlan made(world, zero, hosts);
      for (int rank = 0; rank < world; ++rank) {
        const auto parts = checkpoint::parts_to_save(made.plan, rank);
        for (const checkpoint::StatePart& part : *parts) {
          if (part.piece.value.fqn != "b") continue;
          EXPECT_LE(part.piece.count, elements / world + 32)
              << checkpoint::describe(part.piece.value) << " rank " << rank;
        }
      }
    }
  }
}

TEST(Saver, TheWeightsAreAFileForOthers) {
  const ScratchFolder scratch;
  const StatePlan made(3, 1);
  ASSERT_TRUE(save(made, scratch / "c", 5, true)[0].saved());
  auto file = base::archive::SafetensorsFile::open(scratch / "c/step-00000005/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  std::set<std::string> names;
  for (const auto& tensor : file->tensors()) names.insert(tensor.name);
  EXPECT_EQ(names, (std::set<std::string>{"a", "b", "scalar", "frozen", "nothing", "statistics",
                                          "count", "table"}));
  const auto* b = file->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->shape, (std::vector<int64_t>{3, 11, 13}));
  for (int64_t i = 0; i < int64_t{3} * 11 * 13; ++i) {
    EXPECT_EQ(kernel::load_real(DType::BF16, file->bytes(*b).data() + 2 * i),
              truth({checkpoint::ValueKind::Parameter, "b", -1}, i));
  }
  EXPECT_EQ(file->metadata().at("step"), "5");
}

// One byte of a file that is there; a file written anew would be waited for.
void put(const std::string& path, size_t at, char byte) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
}

// Bits of all files of a checkpoint.
TEST(Saver, EveryFlippedBitIsNoticed) {
  const ScratchFolder scratch;
  const StatePlan made(2, 3);
  ASSERT_TRUE(save(made, scratch / "c", 5, false)[0].saved());
  const std::string folder = scratch / "c/step-00000005";
  ASSERT_TRUE((*checkpoint::CheckpointReader::open(folder))->verify().ok());
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string path = entry.path().string();
    const std::string whole = read_text(path);
    ++files;
    const size_t stride = whole.size() * 8 / 1000 | 1;  // a thousand bits of each, at odd distances
    for (size_t bit = 0; bit < whole.size() * 8; bit += stride) {
      put(path, bit / 8, static_cast<char>(whole[bit / 8] ^ (1 << bit % 8)));
      auto reader = checkpoint::CheckpointReader::open(folder);
      const Status status = reader.ok() ? (*reader)->verify() : reader.status();
      ASSERT_FALSE(status.ok()) << path << " bit " << bit;
      ASSERT_NE(status.to_string().find(entry.path().filename().string()), std::string::npos)
          << status.to_string();
      put(path, bit / 8, whole[bit / 8]);
    }
    for (size_t size = whole.size(); size-- > 0; size -= std::min(size, whole.size() / 97)) {
      fs::resize_file(path, size);
      auto reader = checkpoint::CheckpointReader::open(folder);
      ASSERT_FALSE(reader.ok() && (*reader)->verify().ok()) << path << " cut to " << size;
    }
    fs::remove(path);
    auto reader = checkpoint::CheckpointReader::open(folder);
    const Status status = reader.ok() ? (*reader)->verify() : reader.status();
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.to_string().find(entry.path().filename().string()), std::string::npos);
    std::ofstream(path, std::ios::binary) << whole;
  }
  EXPECT_EQ(files, 6);  // index, weights, and two files of each rank
  EXPECT_TRUE((*checkpoint::CheckpointReader::open(folder))->verify().ok());
}

TEST(Saver, AStateThatIsNotFiniteIsRefusedByAll) {
  for (const bool copies : {false, true}) {
    const ScratchFolder scratch;
    const StatePlan made(3, 3);
    ASSERT_TRUE(save(made, scratch / "c", 5, copies)[0].saved());
    const auto results = save(made, scratch / "c", 6, copies, 0,
                              [](RankState& state, const plan::Plan& plan, int rank) {
                                if (rank != 1) return;
                                const auto parts = *checkpoint::parts_to_load(plan, rank);
                                state.set(parts[1].tensor, 3, INFINITY);  // exp_avg of a
                              });
    for (const checkpoint::SaveResult& result : results) EXPECT_FALSE(result.saved());
    EXPECT_EQ(results[1].refused, "exp_avg 'a'");
    EXPECT_EQ(results[0].refused, "on rank 1");
    EXPECT_TRUE(results[0].failure.ok());
    EXPECT_EQ(std::distance(fs::directory_iterator(scratch / "c"), {}), 1);
  }
}

// Infinities in buffers are meant.
TEST(Saver, ABufferMayHoldInfinities) {
  const ScratchFolder scratch;
  const auto mask = [](RankState& state, const plan::Plan& plan, int) {
    for (const plan::StateEntry& entry : plan.state) {
      if (entry.name == "mask") state.set(entry.tensor, 2, -static_cast<double>(INFINITY));
    }
  };
  EXPECT_TRUE(save(StatePlan(2, 3), scratch / "c", 6, true, 0, mask)[0].saved());
}

// The folder is gone; rank 0 sees it first.
TEST(Saver, AFailureOfOneRankIsOneOfAll) {
  for (const bool copies : {false, true}) {
    const ScratchFolder scratch;
    const StatePlan made(2, 3);
    scratch.write("c", "a file in the way");
    std::vector<checkpoint::SaveResult> results(2);
    on_ranks(2, {}, [&](comm::ProcessGroup& job, int rank) {
      RankState state(made.plan);
      state.fill(*checkpoint::parts_to_load(made.plan, rank));
      auto saver = checkpoint::CheckpointSaver::create({scratch / "c", 0, copies}, made.plan,
                                                       state.memory(), job.control());
      DC_ASSERT_OK((*saver)->begin(run_at(made.plan, 6)));
      DC_ASSERT_OK((*saver)->look());
      EXPECT_TRUE((*saver)->has_failed());
      results[static_cast<size_t>(rank)] = *(*saver)->settle();
    });
    for (const checkpoint::SaveResult& result : results) {
      EXPECT_EQ(base::exit_code(result.failure.kind()), 73) << result.failure.to_string();
    }
    EXPECT_NE(results[0].failure.sentence().find(".step-00000006.partial"), std::string::npos);
  }
}

// The CPU, from which nothing can be read.
class SilentDevice final : public device::Device {
 public:
  using Memory = base::Result<std::unique_ptr<device::DeviceMemory>>;
  base::DeviceKind kind() const override { return cpu_.kind(); }
  Memory allocate(int64_t bytes) override { return cpu_.allocate(bytes); }
  Memory map_shared(int descriptor, int64_t bytes) override {
    return cpu_.map_shared(descriptor, bytes);
  }
  Memory allocate_host(int64_t bytes) override { return cpu_.allocate_host(bytes); }
  Status upload(std::byte* to, std::span<const std::byte> from) override {
    return cpu_.upload(to, from);
  }
  Status download(std::span<std::byte>, const std::byte*) override {
    return Status(base::ErrorKind::Unavailable, "DC6143", "a download failed");
  }
  std::unique_ptr<device::Stream> make_stream() override { return cpu_.make_stream(); }
  std::unique_ptr<device::Event> make_event() override { return cpu_.make_event(); }
  std::unique_ptr<device::Timestamp> make_timestamp() override { return cpu_.make_timestamp(); }

 private:
  device::Device& cpu_ = device::cpu_device();
};

TEST(Saver, WhatTheDeviceDoesNotGiveIsNotSaved) {
  for (const bool copies : {false, true}) {
    const ScratchFolder scratch;
    const StatePlan made(2, 3);
    fs::create_directories(scratch / "c");
    on_ranks(2, {}, [&](comm::ProcessGroup& job, int rank) {
      SilentDevice silent;
      RankState state(made.plan);
      state.fill(*checkpoint::parts_to_load(made.plan, rank));
      auto saver = checkpoint::CheckpointSaver::create(
          {scratch / "c", 0, copies}, made.plan, rank == 1 ? state.memory(silent) : state.memory(),
          job.control());
      ASSERT_TRUE(saver.ok()) << saver.status().to_string();
      DC_ASSERT_OK((*saver)->begin(run_at(made.plan, 6)));
      const auto result = (*saver)->settle();
      ASSERT_TRUE(result.ok()) << result.status().to_string();
      EXPECT_EQ(result->failure.code(), rank == 1 ? "DC6143" : "DC6851");
      EXPECT_EQ(base::exit_code(result->failure.kind()), 69);
    });
    EXPECT_TRUE(checkpoint::CheckpointFolder(scratch / "c").list().empty());
  }
}

TEST(Saver, KeepsAsManyAsAsked) {
  const ScratchFolder scratch;
  const StatePlan made(2, 1);
  for (const int64_t step : {1, 2, 3, 4}) {
    ASSERT_TRUE(save(made, scratch / "c", step, step % 2 == 0, 2)[0].saved());
  }
  const auto left = checkpoint::CheckpointFolder(scratch / "c").list();
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].step, 3);
  EXPECT_EQ(left[1].step, 4);
}

TEST(Restore, AnotherModelIsNamed) {
  const ScratchFolder scratch;
  StatePlan made(2, 1);
  ASSERT_TRUE(save(made, scratch / "c", 1, false)[0].saved());
  auto opened = checkpoint::CheckpointReader::open(scratch / "c/step-00000001");
  const std::unique_ptr<checkpoint::CheckpointReader> reader = std::move(*opened);
  const auto refused = [&](const StatePlan& other) {
    const Status status =
        checkpoint::check_fits(other.plan, *reader, *checkpoint::parts_to_load(other.plan, 0));
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(base::exit_code(status.kind()), 76);
    return status.to_string();
  };
  StatePlan other = made;
  other.plan.model_digest = std::string(64, 'b');
  EXPECT_NE(refused(other).find("another model"), std::string::npos);
  other = made;
  other.plan.optimizer.kind = plan::OptimizerKind::Sgd;
  EXPECT_NE(refused(other).find("adamw"), std::string::npos);
  other = made;
  other.plan.parameters[0].sizes = {10, 7};
  EXPECT_NE(refused(other).find("exp_avg 'a' is f32[7, 10] where the plan has f32[10, 7]"),
            std::string::npos);
  other = made;
  other.plan.parameters[0].fqn = "renamed";
  EXPECT_NE(refused(other).find("lacks exp_avg 'renamed'"), std::string::npos);
  other = made;
  other.plan.state[0].role = plan::StateRole::Unknown;
  EXPECT_FALSE(checkpoint::parts_to_load(other.plan, 0).ok());
}

}  // namespace
}  // namespace dc::runtime::test
