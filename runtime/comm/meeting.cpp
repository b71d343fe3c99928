#include "runtime/comm/meeting.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>

#include "runtime/comm/control_page.h"
#include "src/base/sha256.h"

namespace dc::runtime::comm {
namespace {

using base::ErrorKind;
using base::Status;

constexpr uint32_t kMagic = 0x64635201;  // changes with the protocol and the control page
constexpr size_t kMostGuests = 64;       // the oldest that has not spoken leaves for one more
enum class Kind : uint32_t { Hello, Welcome, Refusal, Memory };

struct Message {
  uint32_t magic = kMagic;
  Kind kind = Kind::Hello;
  int32_t rank = 0, world = 0;
  int32_t error = 0;  // ErrorKind of a refusal
  int64_t bytes = 0;
  char text[240] = {};
};

Status socket_error(const char* call) {
  return Status(ErrorKind::Unavailable, "DC6108",
                std::string("the ranks cannot connect: ") + call + ": " + std::strerror(errno));
}

// An abstract address exists as long as its socket: nothing to clean up. All users of the host see
// it, so it tells nothing of the job's name, which may be the only secret that its ranks share.
socklen_t make_address(const LaunchInfo& launch, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  const std::string hidden = base::sha256_hex(launch.secret + "\n" + launch.job);
  const std::string name = "dcrun/" + std::to_string(geteuid()) + "/" + hidden;
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

void sleep_ms(int64_t milliseconds) {
  const timespec pause{milliseconds / 1000, (milliseconds % 1000) * 1'000'000};
  nanosleep(&pause, nullptr);
}

int left_ms(int64_t deadline) {
  return static_cast<int>(
      std::clamp<int64_t>((deadline - monotonic_ns()) / 1'000'000 + 1, 0, 1'000'000'000));
}

bool send_message(int socket, const Message& message, int descriptor) {
  iovec data{const_cast<Message*>(&message), sizeof(message)};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = room;
    header.msg_controllen = sizeof(room);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
  }
  return sendmsg(socket, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(message));
}

// What has arrived; nothing if the peer closed its end or sent what is no message.
std::optional<Message> receive_message(int socket, device::Descriptor* descriptor) {
  Message message;
  iovec data{&message, sizeof(message)};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = room;
  header.msg_controllen = sizeof(room);
  const ssize_t got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (cmsghdr* rights = CMSG_FIRSTHDR(&header);
      got >= 0 && rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
    int received = -1;
    std::memcpy(&received, CMSG_DATA(rights), sizeof(int));
    device::Descriptor owned(received);
    if (descriptor != nullptr) *descriptor = std::move(owned);
  }
  if (got != static_cast<ssize_t>(sizeof(message)) || message.magic != kMagic) return std::nullopt;
  return message;
}

std::optional<ucred> peer_of(int socket) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return std::nullopt;
  return credentials;
}

Message refusal(const Status& why) {
  Message message;
  message.kind = Kind::Refusal;
  message.error = static_cast<int32_t>(why.kind());
  const size_t length = std::min(why.sentence().size(), sizeof(message.text) - 1);
  std::memcpy(message.text, why.sentence().data(), length);
  return message;
}

// Rank 0's side of the meeting.
class Hub {
 public:
  Hub(const LaunchInfo& launch, int64_t deadline)
      : launch_(launch),
        deadline_(deadline),
        peers_(static_cast<size_t>(launch.world)),
        pids_(peers_.size(), 0) {
    pids_[0] = getpid();
  }

  Status run(std::chrono::milliseconds timeout) {
    Status status = listen_for_peers();
    while (status.ok() && missing() > 0) status = turn(timeout);
    if (!status.ok()) refuse_all(status);
    return status;
  }
  std::vector<device::Descriptor> take_peers() { return std::move(peers_); }
  const std::vector<int>& pids() const { return pids_; }

 private:
  int missing() const {
    return static_cast<int>(std::count_if(peers_.begin() + 1, peers_.end(),
                                          [](const device::Descriptor& d) { return !d.ok(); }));
  }

  Status listen_for_peers() {
    sockaddr_un address;
    const socklen_t length = make_address(launch_, &address);
    listener_ = device::Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!listener_.ok()) return socket_error("socket");
    // An earlier start of the same job, restarted by its launcher, may need a moment to end.
    const int64_t patience = std::min(deadline_, monotonic_ns() + 5'000'000'000);
    while (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
      if (errno != EADDRINUSE) return socket_error("bind");
      if (monotonic_ns() > patience) {
        return Status(ErrorKind::BadConfig, "DC6109",
                      "another rank 0 of job '" + launch_.job +
                          "' is running on this host; every start needs another job id");
      }
      sleep_ms(50);
    }
    return listen(listener_.get(), std::max(launch_.world, 16)) == 0 ? base::ok_status()
                                                                     : socket_error("listen");
  }

  // Waits for one event: a connection, a hello, or the end of a peer.
  Status turn(std::chrono::milliseconds timeout) {
    std::vector<pollfd> events{{listener_.get(), POLLIN, 0}};
    for (const device::Descriptor& guest : guests_) events.push_back({guest.get(), POLLIN, 0});
    for (const device::Descriptor& peer : peers_) events.push_back({peer.get(), POLLRDHUP, 0});
    const int ready = poll(events.data(), events.size(), left_ms(deadline_));
    if (ready < 0) return errno == EINTR ? base::ok_status() : socket_error("poll");
    if (ready == 0)
      return monotonic_ns() < deadline_ ? base::ok_status() : ranks_absent(peers_, timeout);
    for (size_t rank = 1; rank < peers_.size(); ++rank) {
      if (events[1 + guests_.size() + rank].revents == 0) continue;
      return ended_early(static_cast<int>(rank), pids_[rank]);
    }
    std::vector<device::Descriptor> waiting;
    const size_t guests = guests_.size();
    for (size_t i = 0; i < guests; ++i) {
      if (events[1 + i].revents == 0)
        waiting.push_back(std::move(guests_[i]));
      else
        DC_RETURN_IF_ERROR(greet(std::move(guests_[i])));
    }
    guests_ = std::move(waiting);
    if (events[0].revents != 0) accept_one();
    return base::ok_status();
  }

  void accept_one() {
    device::Descriptor guest(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!guest.ok()) {
      if (!guests_.empty())
        guests_.erase(guests_.begin());  // gives its descriptor back
      else
        sleep_ms(10);  // until one is free
      return;
    }
    const auto credentials = peer_of(guest.get());
    if (credentials && credentials->uid == geteuid()) guests_.push_back(std::move(guest));
    if (guests_.size() > kMostGuests) guests_.erase(guests_.begin());
  }

  Status greet(device::Descriptor guest) {
    const auto hello = receive_message(guest.get(), nullptr);
    if (!hello || hello->kind != Kind::Hello) {
      send_message(
          guest.get(),
          refusal(Status(ErrorKind::Mismatch, "DC6109", "rank 0 runs another version of dcrun")),
          -1);
      return base::ok_status();
    }
    const auto rank = static_cast<size_t>(hello->rank);
    const bool exists = hello->rank > 0 && rank < peers_.size();
    if (Status status =
            check_arrival(launch_, hello->rank, hello->world, exists && peers_[rank].ok());
        !status.ok()) {
      send_message(guest.get(), refusal(status), -1);
      return status;
    }
    pids_[rank] = peer_process(guest.get());
    peers_[rank] = std::move(guest);
    return base::ok_status();
  }

  void refuse_all(const Status& why) {
    for (const device::Descriptor& peer : peers_) {
      if (peer.ok()) send_message(peer.get(), refusal(why), -1);
    }
  }

  const LaunchInfo& launch_;
  int64_t deadline_;
  device::Descriptor listener_;
  std::vector<device::Descriptor> guests_;  // connected, have not said who they are
  std::vector<device::Descriptor> peers_;
  std::vector<int> pids_;
};

base::Result<device::Descriptor> call_hub(const LaunchInfo& launch, int64_t deadline) {
  sockaddr_un address;
  const socklen_t length = make_address(launch, &address);
  for (int64_t pause = 1;; pause = std::min<int64_t>(pause * 2, 50)) {
    device::Descriptor hub(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!hub.ok()) return socket_error("socket");
    if (connect(hub.get(), reinterpret_cast<sockaddr*>(&address), length) == 0) {
      const auto credentials = peer_of(hub.get());
      if (credentials && credentials->uid == geteuid()) return hub;
      return Status(ErrorKind::NotPermitted, "DC6109",
                    "rank 0 of job '" + launch.job + "' belongs to another user");
    }
    if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR && errno != ENOENT)
      return socket_error("connect");
    if (monotonic_ns() > deadline) {
      return Status(
          ErrorKind::CollectiveTimeout, "DC6103",
          "rank 0 of job '" + launch.job +
              "' did not appear on this host; see whether it started, or raise --timeout");
    }
    sleep_ms(pause);
  }
}

base::Result<Welcome> meet_as_guest(const LaunchInfo& launch, int64_t control_bytes,
                                    int64_t deadline) {
  DC_ASSIGN_OR_RETURN(device::Descriptor hub, call_hub(launch, deadline));
  Message hello;
  hello.rank = launch.rank;
  hello.world = launch.world;
  const Status gone(ErrorKind::PeerDied, "DC6104", "rank 0 ended before all ranks had connected");
  if (!send_message(hub.get(), hello, -1)) return gone;
  for (;;) {
    pollfd event{hub.get(), POLLIN, 0};
    // Rank 0 times out first and says why. The extra time after the deadline is only for a rank 0
    // that hangs.
    const int ready = poll(&event, 1, left_ms(deadline + 2'000'000'000));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return socket_error("poll");
    if (ready == 0)
      return Status(ErrorKind::CollectiveTimeout, "DC6103", "rank 0 does not answer; missing: 0");
    break;
  }
  device::Descriptor memory;
  const auto message = receive_message(hub.get(), &memory);
  if (!message) return gone;
  if (message->kind == Kind::Refusal) {
    return Status(static_cast<ErrorKind>(message->error), "DC6109",
                  std::string(message->text, strnlen(message->text, sizeof(message->text))));
  }
  if (message->kind != Kind::Welcome || message->bytes != control_bytes || !memory.ok()) {
    return Status(ErrorKind::Mismatch, "DC6109", "rank 0 runs another version of dcrun");
  }
  Welcome welcome;
  DC_ASSIGN_OR_RETURN(welcome.control, device::Mapping::shared(memory.get(), control_bytes));
  welcome.links.sockets.push_back(std::move(hub));
  return welcome;
}

Status send_to_all(const Links& links, Kind kind, int memory, int64_t bytes) {
  Message message;
  message.kind = kind;
  message.bytes = bytes;
  for (size_t rank = 0; rank < links.sockets.size(); ++rank) {
    if (!links.sockets[rank].ok()) continue;
    if (send_message(links.sockets[rank].get(), message, memory)) continue;
    return Status(ErrorKind::PeerDied, "DC6104",
                  "rank " + std::to_string(rank) + " ended while rank 0 handed out memory");
  }
  return base::ok_status();
}

}  // namespace

int peer_process(int socket) {
  const auto credentials = peer_of(socket);
  return credentials ? credentials->pid : 0;
}

base::Status check_arrival(const LaunchInfo& launch, int rank, int world, bool came_before) {
  const auto fault = [](const std::string& sentence) {
    return Status(ErrorKind::BadConfig, "DC6109", sentence);
  };
  if (world != launch.world) {
    return fault("rank " + std::to_string(rank) + " was started for a world of " +
                 std::to_string(world) + ", rank 0 for " + std::to_string(launch.world) +
                 "; start all ranks of a job alike");
  }
  if (rank > 0 && rank < world && !came_before) return base::ok_status();
  return fault("rank " + std::to_string(rank) +
               " came twice or does not exist; every rank must be started once");
}

base::Status ended_early(int rank, int pid) {
  return Status(ErrorKind::PeerDied, "DC6104",
                "rank " + std::to_string(rank) + " (process " + std::to_string(pid) +
                    ") ended before all ranks had connected");
}

base::Status ranks_absent(const std::vector<device::Descriptor>& peers,
                          std::chrono::milliseconds timeout) {
  std::string ranks;
  for (size_t rank = 1; rank < peers.size(); ++rank) {
    if (!peers[rank].ok()) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  return Status(ErrorKind::CollectiveTimeout, "DC6103",
                "rank 0 waited " + std::to_string(timeout.count() / 1000) +
                    " s for the ranks to connect; missing: " + ranks +
                    "; see whether they started, or raise --timeout");
}

base::Result<Welcome> meet(const LaunchInfo& launch, int64_t control_bytes,
                           const PrepareControl& prepare, std::chrono::milliseconds timeout) {
  const int64_t deadline = monotonic_ns() + std::chrono::nanoseconds(timeout).count();
  if (launch.rank != 0) return meet_as_guest(launch, control_bytes, deadline);
  Hub hub(launch, deadline);
  DC_RETURN_IF_ERROR(hub.run(timeout));
  DC_ASSIGN_OR_RETURN(device::Descriptor memory, device::make_shared_memory(control_bytes));
  Welcome welcome;
  DC_ASSIGN_OR_RETURN(welcome.control, device::Mapping::shared(memory.get(), control_bytes));
  welcome.links.sockets = hub.take_peers();
  prepare(welcome.control.base(), hub.pids());
  DC_RETURN_IF_ERROR(send_to_all(welcome.links, Kind::Welcome, memory.get(), control_bytes));
  return welcome;
}

base::Status hand_out(const Links& links, int memory, int64_t bytes) {
  return send_to_all(links, Kind::Memory, memory, bytes);
}

base::Result<device::Descriptor> take_handed_out(const Links& links, int64_t bytes) {
  device::Descriptor memory;
  const auto message = receive_message(links.sockets[0].get(), &memory);
  if (message && message->kind == Kind::Memory && message->bytes == bytes && memory.ok())
    return memory;
  return Status(ErrorKind::PeerDied, "DC6104", "rank 0 ended while it handed out memory");
}

}  // namespace dc::runtime::comm
