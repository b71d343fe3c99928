// The CUDA device on the double of the driver (tests/double).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <vector>

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/device.h"

namespace dc::runtime {
namespace {

device::Device& gpu() { return *device::open_device(base::DeviceKind::Cuda).value(); }

std::vector<std::byte> bytes_of(const std::byte* at, size_t count) {
  std::vector<std::byte> seen(count);
  EXPECT_TRUE(gpu().download(seen, at).ok());
  return seen;
}

TEST(CudaDevice, MovesBytesThroughUploadStreamsAndDownload) {
  auto memory = gpu().allocate(10000);
  auto host = gpu().allocate_host(64);
  ASSERT_TRUE(memory.ok() && host.ok());
  std::byte* at = (*memory)->base();
  EXPECT_EQ(bytes_of(at, 10000), std::vector<std::byte>(10000));  // zeros at first
  EXPECT_TRUE(gpu().upload(at + 5000, std::vector<std::byte>(3, std::byte{3})).ok());
  auto stream = gpu().make_stream();
  stream->fill(at + 5001, std::byte{7}, 1);
  stream->copy((*host)->base(), at + 4999, 5);
  ASSERT_TRUE(stream->drain().ok());
  EXPECT_EQ((*host)->base()[1], std::byte{3});
  EXPECT_EQ((*host)->base()[2], std::byte{7});
}

TEST(CudaDevice, CopiesThatOverlapMoveWhatWasThere) {
  auto memory = gpu().allocate(4096);
  ASSERT_TRUE(memory.ok());
  std::byte* at = (*memory)->base();
  std::vector<std::byte> expected(300);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<std::byte>(i);
  EXPECT_TRUE(gpu().upload(at, expected).ok());
  auto stream = gpu().make_stream();
  stream->copy(at + 7, at, 200);
  stream->copy(at, at + 5, 150);
  ASSERT_TRUE(stream->drain().ok());
  std::move_backward(expected.begin(), expected.begin() + 200, expected.begin() + 207);
  std::move(expected.begin() + 5, expected.begin() + 155, expected.begin());
  EXPECT_EQ(bytes_of(at, 300), expected);
}

// Each stream in turn doubles what the other has written: a missing wait shows, because every piece
// of work comes after a pause of random length.
TEST(CudaDevice, StreamsWaitForEachOthersEvents) {
  constexpr uint32_t kTurns = 60;
  auto memory = gpu().allocate(128);
  ASSERT_TRUE(memory.ok());
  std::byte* at = (*memory)->base();
  auto one = gpu().make_stream(), two = gpu().make_stream();
  auto first = gpu().make_event(), second = gpu().make_event();
  for (uint32_t turn = 1; turn <= kTurns; ++turn) {
    if (turn > 1) {
      ASSERT_TRUE(one->wait(*second, turn - 1));
    }
    one->copy(at, at + 64, 64);
    one->fill(at, static_cast<std::byte>(turn), 1);
    one->signal(*first, turn);
    ASSERT_TRUE(two->wait(*first, turn));
    two->copy(at + 64, at, 64);
    two->signal(*second, turn);
  }
  EXPECT_TRUE(second->wait(kTurns));
  EXPECT_EQ(bytes_of(at + 64, 1)[0], std::byte{kTurns});
  EXPECT_TRUE(one->drain().ok() && two->drain().ok());
}

// Two streams that wait for each other, recorded once and launched many times: what each launch
// does follows what the one before has done.
TEST(CudaDevice, RecordsWorkOfStreamsAndLaunchesIt) {
  constexpr int kLaunches = 20;
  auto memory = gpu().allocate(256);
  ASSERT_TRUE(memory.ok());
  std::byte* at = (*memory)->base();
  auto one = gpu().make_stream(), two = gpu().make_stream();
  auto there = gpu().make_event();
  device::Stream* const streams[] = {one.get(), two.get()};
  auto graph = gpu().record(streams, [&] {
    one->copy(at + 64, at, 64);
    one->signal(*there, 1);
    EXPECT_TRUE(two->wait(*there, 1));
    two->copy(at + 128, at + 64, 64);
    one->fill(at, std::byte{9}, 1);
    return base::ok_status();
  });
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(bytes_of(at + 128, 1)[0], std::byte{0});  // recorded, not done
  for (int launch = 1; launch <= kLaunches; ++launch) {
    one->fill(at, static_cast<std::byte>(launch), 1);
    (*graph)->launch(*one);
    one->copy(at + 192, at + 128, 64);
    ASSERT_TRUE(one->drain().ok());
    EXPECT_EQ(bytes_of(at + 192, 1)[0], static_cast<std::byte>(launch));
    EXPECT_EQ(bytes_of(at, 1)[0], std::byte{9});
  }
}

TEST(CudaDevice, TimestampsFollowTheOrderOfTheWork) {
  auto memory = gpu().allocate(64);
  ASSERT_TRUE(memory.ok());
  auto one = gpu().make_stream(), two = gpu().make_stream();
  auto there = gpu().make_event();
  std::vector<std::unique_ptr<device::Timestamp>> stamps;
  stamps.reserve(4);
  for (int i = 0; i < 4; ++i) stamps.push_back(gpu().make_timestamp());
  const auto begin = std::chrono::steady_clock::now();
  one->write_timestamp(*stamps[0]);
  for (int i = 0; i < 50; ++i) one->fill((*memory)->base(), std::byte{1}, 64);
  one->write_timestamp(*stamps[1]);
  one->signal(*there, 1);
  ASSERT_TRUE(two->wait(*there, 1));
  two->write_timestamp(*stamps[2]);
  two->fill((*memory)->base(), std::byte{1}, 64);
  two->write_timestamp(*stamps[3]);
  ASSERT_TRUE(one->drain().ok() && two->drain().ok());
  const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - begin;
  for (size_t i = 1; i < stamps.size(); ++i)
    EXPECT_GE(stamps[i]->since(*stamps[i - 1]).value(), 0) << i;
  EXPECT_GT(stamps[1]->since(*stamps[0]).value(), 0);
  // Times of the driver are in milliseconds, as f32.
  EXPECT_LE(stamps[3]->since(*stamps[0]).value(), spent.count() + spent.count() / 1000 + 1000);
}

// Each launch writes what was recorded: after what comes before it, and before what follows.
TEST(CudaDevice, AGraphWritesItsTimestampsAtEachLaunch) {
  auto memory = gpu().allocate(64);
  ASSERT_TRUE(memory.ok());
  auto stream = gpu().make_stream();
  device::Stream* const streams[] = {stream.get()};
  const auto begin = gpu().make_timestamp(), end = gpu().make_timestamp();
  auto graph = gpu().record(streams, [&] {
    stream->write_timestamp(*begin);
    stream->fill((*memory)->base(), std::byte{1}, 64);
    stream->write_timestamp(*end);
    return base::ok_status();
  });
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  const auto before = gpu().make_timestamp(), after = gpu().make_timestamp();
  for (int launch = 0; launch < 5; ++launch) {
    stream->write_timestamp(*before);
    (*graph)->launch(*stream);
    stream->write_timestamp(*after);
    ASSERT_TRUE(stream->drain().ok());
    EXPECT_GE(begin->since(*before).value(), 0);
    EXPECT_GE(end->since(*begin).value(), 0);
    EXPECT_GE(after->since(*end).value(), 0);
  }
}

TEST(CudaDevice, SaysWhatAProfileKeepsOfIt) {
  const std::optional<base::GpuIdentity> facts = gpu().gpu();
  ASSERT_TRUE(facts.has_value());
  EXPECT_FALSE(facts->name.empty());
  const int architecture = static_cast<device::CudaDevice&>(gpu()).architecture();
  EXPECT_EQ(facts->compute_capability,
            std::to_string(architecture / 10) + "." + std::to_string(architecture % 10));
  EXPECT_GE(std::stod(facts->driver), 12);
  EXPECT_GT(facts->multiprocessors, 0);
  EXPECT_GT(facts->memory_bytes, int64_t{1} << 30);
  EXPECT_GT(facts->clock_khz, 0);
  EXPECT_GT(facts->memory_clock_khz, 0);
}

TEST(CudaDevice, RecordingEndsWithTheFailureOfWhatIsRecorded) {
  auto one = gpu().make_stream();
  device::Stream* const streams[] = {one.get()};
  const base::Status failure(base::ErrorKind::Internal, "DC6614", "a failure");
  EXPECT_EQ(gpu().record(streams, [&] { return base::Status(failure); }).status().code(), "DC6614");
  EXPECT_TRUE(one->drain().ok());  // the stream is as before
}

TEST(CudaDevice, ACancelledEventEndsWaits) {
  auto event = gpu().make_event();
  event->cancel();
  EXPECT_FALSE(event->wait(1));
  EXPECT_FALSE(gpu().make_stream()->wait(*event, 1));
}

// The driver copies and fills on its own stream, and the call may return before.
TEST(CudaDevice, StreamsSeeWhatWasUploadedBefore) {
  constexpr int kTurns = 100;
  auto stream = gpu().make_stream();
  for (int turn = 1; turn <= kTurns; ++turn) {
    auto memory = gpu().allocate(192);
    ASSERT_TRUE(memory.ok());
    std::byte* at = (*memory)->base();
    stream->copy(at + 64, at, 64);
    ASSERT_TRUE(stream->drain().ok());
    ASSERT_EQ(bytes_of(at + 64, 1)[0], std::byte{0}) << "turn " << turn;
    EXPECT_TRUE(gpu().upload(at, std::vector<std::byte>(64, static_cast<std::byte>(turn))).ok());
    stream->copy(at + 128, at, 64);
    ASSERT_TRUE(stream->drain().ok());
    ASSERT_EQ(bytes_of(at + 128, 1)[0], static_cast<std::byte>(turn));
  }
}

TEST(CudaDevice, MayAllocateAndFillNothing) {
  auto none = gpu().allocate(0), on_host = gpu().allocate_host(0);
  ASSERT_TRUE(none.ok() && on_host.ok());
  EXPECT_EQ((*none)->bytes(), 0);
  auto stream = gpu().make_stream();
  stream->fill((*none)->base(), std::byte{1}, 0);
  stream->copy((*none)->base(), (*none)->base(), 0);
  EXPECT_TRUE(stream->drain().ok());
}

TEST(CudaDevice, AFullGpuSaysHowMuchIsFree) {
  auto memory = gpu().allocate(int64_t{1} << 45);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.status().kind(), base::ErrorKind::OutOfMemory);
  EXPECT_NE(memory.status().to_string().find("are free"), std::string::npos);
}

TEST(CudaDeviceDeathTest, TheHostCannotTouchItsMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto memory = gpu().allocate(4096);
  ASSERT_TRUE(memory.ok());
  volatile std::byte* at = (*memory)->base();
  EXPECT_DEATH({ [[maybe_unused]] const std::byte value = *at; }, "");
}

// A failure that comes after the call that issued the work, and one of a call itself, in another
// process: such errors stay.
TEST(CudaDeviceDeathTest, AFailureOnTheGpuStays) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        auto memory = gpu().allocate(64);
        auto stream = gpu().make_stream();
        stream->fill((*memory)->base() + 60, std::byte{1}, 8);  // beyond its end
        const base::Status status = stream->drain();
        stream->fill((*memory)->base(), std::byte{1}, 1);
        std::byte there{};
        bool stays = stream->drain().code() == status.code();
        stays = stays && gpu().upload((*memory)->base(), {&there, 1}).code() == status.code();
        stays = stays && gpu().download({&there, 1}, (*memory)->base()).code() == status.code();
        std::fputs(status.to_string().c_str(), stderr);
        std::_Exit(!status.ok() && stays ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "DC6143.*CUDA_ERROR_ILLEGAL_ADDRESS");
}

struct Broken {
  const char *variable, *value, *code, *says;
};
class NoCudaDevice : public ::testing::TestWithParam<Broken> {};
TEST_P(NoCudaDevice, IsAnErrorThatSaysWhatToDo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Broken& broken = GetParam();
  EXPECT_EXIT(
      {
        setenv(broken.variable, broken.value, 1);
        const auto device = device::open_device(base::DeviceKind::Cuda);
        if (device.ok()) std::_Exit(1);
        std::fputs(device.status().to_string().c_str(), stderr);
        std::_Exit(base::exit_code(device.status().kind()));
      },
      ::testing::ExitedWithCode(69), std::string(broken.code) + ".*" + broken.says);
}
INSTANTIATE_TEST_SUITE_P(
    Cases, NoCudaDevice,
    ::testing::Values(Broken{"DOUBLE_FAIL", "cuInit:1:999", "DC6140", "CUDA_ERROR_OF_THE_DOUBLE"},
                      Broken{"DOUBLE_FAIL", "cuInit:1:100", "DC6142", "the driver shows none"},
                      Broken{"DOUBLE_VERSION", "11080", "DC6141", "11.8; 12.0 is needed"},
                      Broken{"DOUBLE_GPUS", "0", "DC6142", "the driver shows none"},
                      Broken{"DOUBLE_FAIL", "cuDevicePrimaryCtxRetain:1:2", "DC6142",
                             "CUDA_VISIBLE_DEVICES"}));

}  // namespace
}  // namespace dc::runtime
