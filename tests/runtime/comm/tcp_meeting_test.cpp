// How ranks of several hosts find each other, and what does not keep them from it.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <optional>
#include <thread>

#include "runtime/comm/control_page.h"
#include "runtime/comm/rendezvous.h"
#include "runtime/comm/tcp_door.h"
#include "tests/runtime/comm/processes.h"

namespace dc::runtime {
namespace {

using base::ErrorKind;
using conformance::free_port;
using conformance::remote_launch;
using std::chrono::milliseconds;
using testing::HasSubstr;

comm::CommOptions tcp(milliseconds timeout = milliseconds(60'000)) {
  comm::CommOptions options;
  options.backend = "tcp";
  options.timeout = timeout;
  return options;
}

comm::Deadline in_seconds(int64_t seconds) {
  return {comm::monotonic_ns() + seconds * 1'000'000'000};
}

device::Descriptor call(int port) {
  for (const comm::Deadline deadline = in_seconds(20); !deadline.passed(); usleep(2'000)) {
    comm::Connection connection = comm::connect_once({"127.0.0.1", port}, deadline);
    if (connection.socket.ok()) return std::move(connection.socket);
  }
  return device::Descriptor();
}

using Connected = base::Result<std::unique_ptr<comm::ProcessGroup>>;

// Connects each of `launches` on another thread; `meanwhile` runs concurrently.
std::vector<std::optional<Connected>> connect_all(const std::vector<comm::LaunchInfo>& launches,
                                                  const comm::CommOptions& options,
                                                  const std::function<void()>& meanwhile) {
  std::vector<std::optional<Connected>> results(launches.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < launches.size(); ++i)
    threads.emplace_back([&, i] { results[i] = comm::connect(launches[i], options); });
  meanwhile();
  for (std::thread& thread : threads) thread.join();
  return results;
}

std::vector<std::optional<Connected>> connect_all(const std::vector<comm::LaunchInfo>& launches,
                                                  const comm::CommOptions& options) {
  return connect_all(launches, options, [] {});
}

void expect_connected(std::vector<std::optional<Connected>>& results) {
  std::vector<std::thread> threads;
  for (auto& result : results) {
    ASSERT_TRUE(result->ok()) << result->status().to_string();
    threads.emplace_back([&result] {
      auto communicator = result->value()->open_communicator();
      ASSERT_TRUE(communicator.ok()) << communicator.status().to_string();
      EXPECT_TRUE(communicator.value()->barrier().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A rank of this job with another version of dcrun: only that it has the key makes it count.
TEST(TcpMeeting, AnotherVersionOfThisJobIsRefused) {
  const int port = free_port();
  const comm::LaunchInfo launch = remote_launch(port, 1, 2);
  auto results = connect_all({remote_launch(port, 0, 2)}, tcp(), [&] {
    const device::Descriptor other = call(port);
    std::vector<std::byte> hello(200);  // longer than ours: unknown fields follow
    comm::Hello known;
    known.protocol = comm::kTcpProtocol + 1;
    known.bytes = static_cast<uint32_t>(hello.size());
    known.nonce = comm::draw_nonce();
    std::memcpy(hello.data(), &known, offsetof(comm::Hello, rank));
    comm::send_whole(other.get(), hello.data(), hello.size(), in_seconds(1));
    comm::Challenge challenge;
    EXPECT_TRUE(comm::receive_whole(other.get(), &challenge, sizeof(challenge), in_seconds(20)));
    const comm::Conversation conversation{comm::meeting_key(launch), known.nonce, challenge.nonce};
    const comm::Proof proof = conversation.prove("caller", hello);
    comm::send_whole(other.get(), &proof, sizeof(proof), in_seconds(1));
    char answer[64];
    EXPECT_TRUE(comm::receive_whole(other.get(), answer, sizeof(answer), in_seconds(20)));
  });
  ASSERT_FALSE(results[0]->ok());
  EXPECT_EQ(results[0]->status().kind(), ErrorKind::Mismatch);
  EXPECT_THAT(results[0]->status().sentence(), HasSubstr("another version of dcrun"));
}

TEST(TcpMeeting, WorldsMustAgree) {
  const int port = free_port();
  const auto results = connect_all({remote_launch(port, 0, 2), remote_launch(port, 1, 3)}, tcp());
  for (const auto& result : results) {
    ASSERT_FALSE(result->ok());
    EXPECT_EQ(result->status().kind(), ErrorKind::BadConfig);
    EXPECT_THAT(result->status().sentence(), HasSubstr("world of 3, rank 0 for 2"));
  }
}

TEST(TcpMeeting, RanksMustDiffer) {
  const int port = free_port();
  const auto results = connect_all(
      {remote_launch(port, 0, 3), remote_launch(port, 1, 3), remote_launch(port, 1, 3)}, tcp());
  for (const auto& result : results) {
    ASSERT_FALSE(result->ok());
    EXPECT_EQ(result->status().kind(), ErrorKind::BadConfig);
    EXPECT_THAT(result->status().sentence(), HasSubstr("rank 1 came twice"));
  }
}

TEST(TcpMeeting, TheMissingAreNamed) {
  const int port = free_port();
  const auto results =
      connect_all({remote_launch(port, 0, 3), remote_launch(port, 1, 3)}, tcp(milliseconds(400)));
  for (const auto& result : results) {
    ASSERT_FALSE(result->ok());
    EXPECT_EQ(result->status().kind(), ErrorKind::CollectiveTimeout);
    EXPECT_THAT(result->status().sentence(), HasSubstr("missing: 2"));
  }
}

TEST(TcpMeeting, ARankZeroThatDoesNotComeIsNamed) {
  const auto results = connect_all({remote_launch(free_port(), 1, 2)}, tcp(milliseconds(300)));
  ASSERT_FALSE(results[0]->ok());
  EXPECT_EQ(results[0]->status().kind(), ErrorKind::CollectiveTimeout);
  EXPECT_THAT(results[0]->status().sentence(), HasSubstr("rank 0 does not answer at 127.0.0.1:"));
}

TEST(TcpMeeting, ATakenPortIsToldApart) {
  const int port = free_port();
  const device::Descriptor other = comm::listen_at(port, true);
  ASSERT_TRUE(other.ok());
  const auto results = connect_all({remote_launch(port, 0, 2)}, tcp(milliseconds(200)));
  ASSERT_FALSE(results[0]->ok());
  EXPECT_EQ(results[0]->status().kind(), ErrorKind::BadConfig);
  EXPECT_THAT(results[0]->status().sentence(), HasSubstr("taken by another program"));
}

TEST(TcpMeeting, SeveralHostsNeedAMaster) {
  comm::LaunchInfo launch = remote_launch(1, 0, 2);
  launch.master.reset();
  const auto job = comm::connect(launch, tcp());
  ASSERT_FALSE(job.ok());
  EXPECT_EQ(job.status().kind(), ErrorKind::BadConfig);
  EXPECT_THAT(job.status().sentence(), HasSubstr("MASTER_ADDR"));
}

// torchrun's store as far as ranks use it, written after its protocol: a byte for the query, texts
// with their length in 8 bytes.
class Store {
 public:
  explicit Store(int port)
      : listener_(comm::listen_at(port, true)), accepting_([this] { accept(); }) {}
  ~Store() {
    shutdown(listener_.get(), SHUT_RDWR);
    accepting_.join();
    for (std::thread& thread : serving_) thread.join();
  }
  void set(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
  }
  std::string get(const std::string& key) {
    const std::lock_guard lock(mutex_);
    return values_[key];
  }

 private:
  void accept() {
    for (;;) {
      pollfd event{listener_.get(), POLLIN, 0};
      if (poll(&event, 1, -1) > 0 && (event.revents & POLLHUP) != 0) return;
      device::Descriptor guest = comm::accept_one(listener_.get());
      if (guest.ok()) serving_.emplace_back([this, s = std::move(guest)] { serve(s.get()); });
    }
  }
  void serve(int s) {
    uint8_t query = 0;
    while (comm::receive_whole(s, &query, 1, in_seconds(20))) {
      uint32_t magic = 0;
      uint64_t count = 0;
      const auto text = [&] {
        uint64_t size = 0;
        EXPECT_TRUE(comm::receive_whole(s, &size, 8, in_seconds(20)));
        std::string value(size, 0);
        EXPECT_TRUE(comm::receive_whole(s, value.data(), size, in_seconds(20)));
        return value;
      };
      const auto answer = [&](uint8_t byte) { comm::send_whole(s, &byte, 1, in_seconds(1)); };
      if (query == 0) {
        EXPECT_TRUE(comm::receive_whole(s, &magic, 4, in_seconds(20)));
        if (magic != 0x3C85F7CE) return;
      } else if (query == 1) {
        const std::string key = text();
        set(key, text());
      } else if (query == 3) {
        const std::string value = get(text());
        const uint64_t size = value.size();
        comm::send_whole(s, &size, 8, in_seconds(1));
        comm::send_whole(s, value.data(), size, in_seconds(1));
      } else if (query == 5 || query == 6) {
        EXPECT_TRUE(comm::receive_whole(s, &count, 8, in_seconds(20)));
        EXPECT_EQ(count, 1u);
        const std::string key = text();
        while (query == 6 && get(key).empty()) usleep(1'000);
        answer(query == 6 || !get(key).empty() ? 0 : 1);
      } else {
        return;
      }
    }
  }

  std::mutex mutex_;
  std::map<std::string, std::string> values_;
  device::Descriptor listener_;
  std::vector<std::thread> serving_;
  std::thread accepting_;
};

std::vector<comm::LaunchInfo> agents_ranks(int port, int world, bool agent_says_so) {
  std::vector<comm::LaunchInfo> launches;
  for (int rank = 0; rank < world; ++rank) {
    launches.push_back(remote_launch(port, rank, world));
    launches.back().master->store = agent_says_so;
  }
  return launches;
}

TEST(TcpStore, RanksMeetThroughTheAgentsStore) {
  const int port = free_port();
  Store store(port);
  auto results = connect_all(agents_ranks(port, 3, true), tcp());
  expect_connected(results);
}

// RANK and MASTER_* by hand, and a store at that port all the same.
TEST(TcpStore, RanksFindOutThatThereIsAStore) {
  const int port = free_port();
  Store store(port);
  auto results = connect_all(agents_ranks(port, 3, false), tcp());
  expect_connected(results);
}

TEST(TcpStore, AnEarlierStartsAddressMisleadsNobody) {
  const int port = free_port();
  Store store(port);
  store.set("dcrun/by-hand", "127.0.0.1 " + std::to_string(free_port()));
  auto launches = agents_ranks(port, 2, true);
  std::optional<Connected> early;
  std::thread first([&] { early = comm::connect(launches[1], tcp()); });
  usleep(50'000);  // long enough to read the old address
  auto results = connect_all({launches[0]}, tcp());
  first.join();
  results.push_back(std::move(early));
  expect_connected(results);
}

}  // namespace
}  // namespace dc::runtime
