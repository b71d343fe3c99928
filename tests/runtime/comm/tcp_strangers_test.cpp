// Three ranks meet over TCP while others call at the same port: none of these ends the job, and
// none keeps its ranks from meeting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/times.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "runtime/comm/control_page.h"
#include "runtime/comm/rendezvous.h"
#include "runtime/comm/tcp_door.h"
#include "tests/runtime/comm/processes.h"

namespace dc::runtime {
namespace {

using base::ErrorKind;
using conformance::fork_ranks;
using conformance::free_port;
using conformance::remote_launch;
using conformance::wait_for;
using std::chrono::milliseconds;

constexpr int kWorld = 3;
const std::string kSecret = "the secret of this job, never sent";

comm::Deadline in_ms(int64_t ms) { return {comm::monotonic_ns() + ms * 1'000'000}; }

device::Descriptor call(int port) {
  for (const comm::Deadline deadline = in_ms(20'000); !deadline.passed(); usleep(2'000)) {
    comm::Connection connection = comm::connect_once({"127.0.0.1", port}, deadline);
    if (connection.socket.ok()) return std::move(connection.socket);
  }
  return device::Descriptor();
}

bool closed_by_peer(const device::Descriptor& socket) {
  char byte = 0;
  const comm::Deadline deadline = in_ms(20'000);
  return !comm::receive_whole(socket.get(), &byte, 1, deadline) && !deadline.passed();
}

void say(const device::Descriptor& socket, const void* data, size_t bytes) {
  comm::send_whole(socket.get(), data, bytes, in_ms(5'000));
}

comm::LaunchInfo launch_of(int port, int rank, const std::string& secret) {
  comm::LaunchInfo launch = remote_launch(port, rank, kWorld);
  launch.secret = secret;
  return launch;
}

// The rank's part of a test: meets, and uses a communicator. The exit code of what went wrong.
int meet(int port, int rank, milliseconds timeout, const std::string& secret = kSecret) {
  comm::CommOptions options;
  options.backend = "tcp";
  options.timeout = timeout;
  auto job = comm::connect(launch_of(port, rank, secret), options);
  if (!job.ok()) return base::exit_code(job.status().kind());
  auto communicator = job.value()->open_communicator();
  if (!communicator.ok()) return base::exit_code(communicator.status().kind());
  int mine = rank + 1, all[kWorld] = {};
  const base::Status status = communicator.value()->exchange(&mine, sizeof(mine), all);
  if (!status.ok()) return base::exit_code(status.kind());
  return all[0] == 1 && all[1] == 2 && all[2] == 3 ? 0 : 99;
}

// Rank 0 alone at first, so that `strangers` come before the others; then these. `descriptors`: how
// many rank 0 may have, if not 0.
void expect_ranks_meet(int port, const std::function<void()>& strangers, int descriptors = 0) {
  const auto rank = [&](int number) {
    if (descriptors > 0 && number == 0) {
      const rlimit limit{static_cast<rlim_t>(descriptors), static_cast<rlim_t>(descriptors)};
      setrlimit(RLIMIT_NOFILE, &limit);
    }
    return meet(port, number, milliseconds(60'000));
  };
  const pid_t hub = fork_ranks(1, [&](int) { return rank(0); })[0];
  strangers();
  const auto others = fork_ranks(kWorld - 1, [&](int number) { return rank(number + 1); });
  for (const pid_t pid : others) EXPECT_EQ(wait_for(pid), 0);
  EXPECT_EQ(wait_for(hub), 0);
}

TEST(TcpStrangers, WhatIsNotOursIsDropped) {
  const int port = free_port();
  std::vector<device::Descriptor> open;
  expect_ranks_meet(port, [&] {
    std::vector<unsigned char> noise(4096);
    ASSERT_EQ(getrandom(noise.data(), noise.size(), 0), 4096);
    for (const size_t bytes : {1, 16, 132, 4096}) {
      open.push_back(call(port));
      say(open.back(), noise.data(), bytes);
    }
    const std::string request = "GET / HTTP/1.1\r\nHost: rank0\r\n\r\n";
    open.push_back(call(port));
    say(open.back(), request.data(), request.size());
    EXPECT_TRUE(closed_by_peer(open.back()));
    call(port);  // and leaves at once
  });
}

// What would have been a rank of another version, or of no version at all.
TEST(TcpStrangers, SixteenBytesDoNotEndTheMeeting) {
  const int port = free_port();
  std::vector<device::Descriptor> open;
  expect_ranks_meet(port, [&] {
    for (const uint32_t protocol :
         {uint32_t{1}, comm::kTcpProtocol, comm::kTcpProtocol + 1, ~uint32_t{0}}) {
      for (const uint32_t bytes : {uint32_t{0}, uint32_t{16}, uint32_t{36}, ~uint32_t{0}}) {
        comm::Hello hello;
        hello.protocol = protocol;
        hello.bytes = bytes;
        open.push_back(call(port));
        say(open.back(), &hello, 16);
        open.push_back(call(port));
        say(open.back(), &hello, sizeof(hello));
      }
    }
  });
}

TEST(TcpStrangers, SlowAndHalfOpenOnesKeepNobodyWaiting) {
  const int port = free_port();
  std::vector<device::Descriptor> open;
  const comm::Hello hello;
  expect_ranks_meet(port, [&] {
    const auto* bytes = reinterpret_cast<const char*>(&hello);
    for (const size_t heard :
         {size_t{0}, size_t{5}, size_t{35}, sizeof(hello) - 1, sizeof(hello)}) {
      open.push_back(call(port));  // stays as it is
      for (size_t i = 0; i < heard; ++i) say(open.back(), bytes + i, 1);
      open.push_back(call(port));
      say(open.back(), bytes, heard);
      shutdown(open.back().get(), SHUT_WR);
    }
  });
}

// All but the key is right: it cannot take a rank's place, at the meeting or later, nor learn
// anything that helps it to.
TEST(TcpStrangers, WithoutTheKeyNobodyTakesPart) {
  const int port = free_port();
  std::vector<device::Descriptor> open;
  expect_ranks_meet(port, [&] {
    for (const bool replay : {false, true}) {
      open.push_back(call(port));
      comm::Hello hello;
      hello.rank = 1;
      hello.world = kWorld;
      hello.nonce = comm::draw_nonce();
      say(open.back(), &hello, sizeof(hello));
      comm::Challenge challenge;
      ASSERT_TRUE(
          comm::receive_whole(open.back().get(), &challenge, sizeof(challenge), in_ms(20'000)));
      // The challenge of another conversation is answered, or this one with another key.
      const comm::Conversation conversation{
          comm::meeting_key(launch_of(port, 1, replay ? kSecret : "a guess that is wrong")),
          hello.nonce, replay ? comm::draw_nonce() : challenge.nonce};
      const comm::Proof proof = conversation.prove("caller", comm::bytes_of(hello));
      say(open.back(), &proof, sizeof(proof));
      char answer[296];
      EXPECT_TRUE(comm::receive_whole(open.back().get(), answer, sizeof(answer), in_ms(20'000)));
      EXPECT_TRUE(closed_by_peer(open.back()));
    }
    comm::Hello link;  // as if all had met
    link.rank = 1;
    link.world = kWorld;
    link.group = 0;
    open.push_back(call(port));
    say(open.back(), &link, sizeof(link));
  });
}

TEST(TcpStrangers, ARankWithAnotherKeyStaysOutside) {
  const int port = free_port();
  const auto ranks = fork_ranks(kWorld, [&](int rank) {
    return meet(port, rank, milliseconds(1'000),
                rank == 2 ? "not the secret of this job" : kSecret);
  });
  for (const pid_t pid : ranks) {
    EXPECT_EQ(wait_for(pid), base::exit_code(ErrorKind::CollectiveTimeout));
  }
}

// Something else listens where rank 0 should be, and answers as if it were.
TEST(TcpStrangers, AFalseRankZeroIsNotBelieved) {
  const int port = free_port();
  device::Descriptor listener = comm::listen_at(port, true);
  ASSERT_TRUE(listener.ok());
  const pid_t rank = fork_ranks(1, [&](int) { return meet(port, 1, milliseconds(1'500)); })[0];
  int conversations = 0;
  for (const comm::Deadline deadline = in_ms(1'500); !deadline.passed(); usleep(1'000)) {
    const device::Descriptor guest = comm::accept_one(listener.get());
    if (!guest.ok()) continue;
    comm::Hello hello;
    if (!comm::receive_whole(guest.get(), &hello, sizeof(hello), in_ms(300))) continue;  // a store?
    comm::Challenge challenge;
    say(guest, &challenge, sizeof(challenge));
    comm::Proof proof;
    if (!comm::receive_whole(guest.get(), &proof, sizeof(proof), in_ms(300))) continue;
    char answer[296] = {2};  // refused
    say(guest, answer, sizeof(answer));
    ++conversations;
  }
  EXPECT_EQ(wait_for(rank), base::exit_code(ErrorKind::CollectiveTimeout));
  EXPECT_GT(conversations, 0);
}

// More silent connections than rank 0 may have descriptors.
TEST(TcpStrangers, IdleConnectionsDoNotShutRanksOut) {
  const int port = free_port();
  std::vector<device::Descriptor> open;
  tms before{}, after{};
  times(&before);
  expect_ranks_meet(
      port,
      [&] {
        for (int i = 0; i < 200; ++i) open.push_back(call(port));
        usleep(300'000);
      },
      48);
  times(&after);
  // Rank 0 sleeps while they are silent: the ranks' processor time, children that have ended.
  const double seconds = static_cast<double>(after.tms_cutime + after.tms_cstime -
                                             before.tms_cutime - before.tms_cstime) /
                         static_cast<double>(sysconf(_SC_CLK_TCK));
  EXPECT_LT(seconds, 0.25);
}

// Where many call there is always one to hear: the deadline holds all the same, or the error that
// names the missing ranks would wait for a pause.
TEST(TcpStrangers, NobodyIsHeardAfterTheDeadline) {
  comm::Door door(comm::listen_at(0, true));
  ASSERT_TRUE(door.ok());
  comm::Hello hello;  // whole, so that its caller would be a visitor
  hello.group = 0;
  const device::Descriptor caller = call(door.port());
  say(caller, &hello, sizeof(hello));
  EXPECT_FALSE(door.next(in_ms(0), {}).has_value());
  EXPECT_TRUE(door.next(in_ms(20'000), {}).has_value());
}

TEST(TcpStrangers, ThousandsCallWhileRanksMeet) {
  const int port = free_port();
  const pid_t caller = fork_ranks(1, [&](int) {
    std::deque<device::Descriptor> open;
    for (;;) {  // until it is killed
      comm::Connection connection = comm::connect_once({"127.0.0.1", port}, in_ms(1'000));
      if (!connection.socket.ok()) {
        usleep(1'000);
        continue;
      }
      if (open.size() % 3 == 0) say(connection.socket, "dcrunt", 6);
      open.push_back(std::move(connection.socket));
      if (open.size() > 200) open.pop_front();
    }
    return 0;
  })[0];
  expect_ranks_meet(
      port, [] { usleep(300'000); }, 64);
  kill(caller, SIGKILL);
  wait_for(caller);
}

}  // namespace
}  // namespace dc::runtime
