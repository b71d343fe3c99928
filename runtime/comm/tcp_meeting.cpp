#include "runtime/comm/tcp_meeting.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/comm/control_page.h"
#include "runtime/comm/meeting.h"
#include "runtime/comm/tcp_master.h"

namespace dc::runtime::comm {
namespace {

using base::ErrorKind;
using base::Status;

enum class Word : uint32_t { Heard, Welcome, Refused, OtherProcessGroup };

// Of rank 0, the same in every protocol; a welcome is followed by the seats and their proof. To
// OtherProcessGroup there is no proof: what one side would prove the other has no key to.
struct Answer {
  Word word = Word::Heard;
  int32_t error = 0;  // ErrorKind of a refusal
  Nonce start{};      // with a welcome: what session_key() wants
  char text[240] = {};
  Proof proof{};  // "answer", of all before it
  std::span<const std::byte> before_proof() const {
    return bytes_of(*this).first(offsetof(Answer, proof));
  }
};

struct WireSeat {
  char host[48] = {};
  int32_t port = 0, pid = 0;
};

void put(char (&field)[48], const std::string& text) {
  std::memcpy(field, text.data(), std::min(text.size(), sizeof(field) - 1));
}
std::string get(const char (&field)[48]) { return std::string(field, strnlen(field, 48)); }

// Rank 0's side.
class TcpHub {
 public:
  TcpHub(const LaunchInfo& launch, Deadline deadline)
      : launch_(launch), deadline_(deadline), key_(meeting_key(launch)), start_(draw_nonce()) {
    conversations_.resize(static_cast<size_t>(launch.world));
    gathering_.session = session_key(key_, start_);
    gathering_.lines.resize(static_cast<size_t>(launch.world));
    gathering_.seats.resize(static_cast<size_t>(launch.world));
    gathering_.seats[0].pid = getpid();
  }

  base::Result<Gathering> run(std::chrono::milliseconds timeout) {
    DC_ASSIGN_OR_RETURN(gathering_.door, open_to_all(launch_, deadline_));
    Status status;
    while (status.ok() && arrived_ + 1 < launch_.world) status = turn(timeout);
    if (status.ok()) status = welcome_all();
    if (!status.ok()) {
      refuse_all(status);
      return status;
    }
    return std::move(gathering_);
  }

 private:
  Status turn(std::chrono::milliseconds timeout) {
    std::vector<int> watched;
    for (const device::Descriptor& line : gathering_.lines) watched.push_back(line.get());
    auto visitor = gathering_.door.next(deadline_, watched);
    if (visitor) return greet(std::move(*visitor));
    for (size_t rank = 1; rank < watched.size(); ++rank) {
      if (watched[rank] >= 0 && has_ended(watched[rank]))
        return ended_early(static_cast<int>(rank), gathering_.seats[rank].pid);
    }
    return deadline_.passed() ? ranks_absent(gathering_.lines, timeout) : base::ok_status();
  }

  // Only who has proved that it is of this job can make the meeting fail.
  Status greet(Visitor visitor) {
    const Hello& hello = visitor.hello;
    const int socket = visitor.socket.get();
    const Conversation conversation{key_, hello.nonce, visitor.challenge};
    if (hello.group != kMeeting) return base::ok_status();
    if (!conversation.proves(visitor.proof, "caller", visitor.hello_bytes)) {
      say(socket, Word::OtherProcessGroup, base::ok_status(), conversation);
      return base::ok_status();
    }
    if (hello.protocol != kTcpProtocol) {
      Status status(ErrorKind::Mismatch, "DC6109",
                    "a rank at " + peer_address(socket).host +
                        " runs another version of dcrun than rank 0; install the same on "
                        "every host");
      say(socket, Word::Refused, status, conversation);
      return status;
    }
    const auto rank = static_cast<size_t>(hello.rank);
    const bool exists = hello.rank > 0 && rank < gathering_.lines.size();
    if (Status status =
            check_arrival(launch_, hello.rank, hello.world, exists && gathering_.lines[rank].ok());
        !status.ok()) {
      say(socket, Word::Refused, status, conversation);
      return status;
    }
    say(socket, Word::Heard, base::ok_status(), conversation);
    gathering_.seats[rank] = {{get(hello.host), hello.port}, hello.pid};
    gathering_.lines[rank] = std::move(visitor.socket);
    conversations_[rank] = conversation;
    ++arrived_;
    return base::ok_status();
  }

  bool say(int socket, Word word, const Status& status, const Conversation& conversation) {
    Answer answer;
    answer.word = word;
    if (word == Word::Welcome) answer.start = start_;
    if (!status.ok()) {
      answer.error = static_cast<int32_t>(status.kind());
      std::memcpy(answer.text, status.sentence().data(),
                  std::min(status.sentence().size(), sizeof(answer.text) - 1));
    }
    if (word != Word::OtherProcessGroup)
      answer.proof = conversation.prove("answer", answer.before_proof());
    return send_whole(socket, &answer, sizeof(answer), deadline_);
  }

  Status welcome_all() {
    std::vector<WireSeat> table(gathering_.seats.size());
    for (size_t rank = 0; rank < table.size(); ++rank) {
      const Seat& seat = gathering_.seats[rank];
      put(table[rank].host, seat.address.host);
      table[rank].port = seat.address.port;
      table[rank].pid = seat.pid;
    }
    const auto bytes = std::as_bytes(std::span(table));
    for (size_t rank = 1; rank < table.size(); ++rank) {
      const int socket = gathering_.lines[rank].get();
      const Proof proof = conversations_[rank].prove("seats", bytes);
      if (!say(socket, Word::Welcome, base::ok_status(), conversations_[rank]) ||
          !send_whole(socket, bytes.data(), bytes.size(), deadline_) ||
          !send_whole(socket, &proof, sizeof(proof), deadline_))
        return ended_early(static_cast<int>(rank), gathering_.seats[rank].pid);
    }
    for (size_t rank = 1; rank < table.size(); ++rank)
      make_reachable(gathering_.seats[rank].address, peer_address(gathering_.lines[rank].get()));
    return base::ok_status();
  }

  void refuse_all(const Status& why) {
    for (size_t rank = 1; rank < gathering_.lines.size(); ++rank) {
      const device::Descriptor& line = gathering_.lines[rank];
      if (line.ok()) say(line.get(), Word::Refused, why, conversations_[rank]);
    }
  }

  const LaunchInfo& launch_;
  Deadline deadline_;
  std::string key_;
  Nonce start_;
  Gathering gathering_;
  std::vector<Conversation> conversations_;  // by rank, of those who came
  int arrived_ = 0;
};

// The side of all others.
class Guest {
 public:
  Guest(const LaunchInfo& launch, Deadline deadline)
      : launch_(launch), deadline_(deadline), conversation_{meeting_key(launch), {}, {}} {}

  base::Result<Gathering> run() {
    DC_RETURN_IF_ERROR(reach_rank0());
    Answer answer;
    // Rank 0 gives up first and says why, so the grace is only for a rank 0 that hangs.
    const Deadline grace{deadline_.ns + 2'000'000'000};
    if (!receive_whole(line_.get(), &answer, sizeof(answer), grace)) {
      if (grace.passed())
        return Status(ErrorKind::CollectiveTimeout, "DC6103", "rank 0 does not answer; missing: 0");
      return rank0_ended();
    }
    if (!is_genuine(answer)) return rank0_ended();
    if (answer.word != Word::Welcome) return refused(answer);
    gathering_.session = session_key(conversation_.key, answer.start);
    DC_RETURN_IF_ERROR(take_seats(grace));
    gathering_.lines.push_back(std::move(line_));
    return std::move(gathering_);
  }

 private:
  static Status rank0_ended() {
    return Status(ErrorKind::PeerDied, "DC6104", "rank 0 ended before all ranks had connected");
  }

  bool is_genuine(const Answer& answer) const {
    return conversation_.proves(answer.proof, "answer", answer.before_proof());
  }

  // What listens where rank 0 should be may be anything: only an answer with a proof counts.
  Status reach_rank0() {
    DC_ASSIGN_OR_RETURN(Search search, Search::create(launch_, deadline_));
    for (;;) {
      DC_ASSIGN_OR_RETURN(line_, search.next());
      DC_RETURN_IF_ERROR(open_door());
      Answer answer;
      if (!introduce() ||
          !receive_whole(line_.get(), &answer, sizeof(answer), sooner(deadline_, kPatienceNs))) {
        DC_RETURN_IF_ERROR(search.go_on("what listens there is not rank 0"));
      } else if (answer.word == Word::OtherProcessGroup) {
        DC_RETURN_IF_ERROR(
            search.go_on("what listens there is rank 0 of another job, or has another job key"));
      } else if (!is_genuine(answer)) {
        DC_RETURN_IF_ERROR(search.go_on("what listens there cannot prove that it is of this job"));
      } else {
        return answer.word == Word::Heard ? base::ok_status() : refused(answer);
      }
    }
  }

  Status open_door() {
    if (gathering_.door.ok()) return base::ok_status();
    gathering_.door = Door(listen_at(0, stays_inside(launch_, local_address(line_.get()))));
    return gathering_.door.ok() ? base::ok_status() : socket_failed("listen", errno);
  }

  // Says hello and proves it.
  bool introduce() {
    Hello hello;
    hello.nonce = conversation_.caller = draw_nonce();
    hello.rank = launch_.rank;
    hello.world = launch_.world;
    hello.pid = getpid();
    hello.port = gathering_.door.port();
    put(hello.host, local_address(line_.get()).host);
    Challenge challenge;
    if (!send_whole(line_.get(), &hello, sizeof(hello), deadline_) ||
        !receive_whole(line_.get(), &challenge, sizeof(challenge),
                       sooner(deadline_, kPatienceNs)) ||
        std::memcmp(challenge.magic, Challenge().magic, sizeof(challenge.magic)) != 0)
      return false;
    conversation_.host = challenge.nonce;
    const Proof proof = conversation_.prove("caller", bytes_of(hello));
    return send_whole(line_.get(), &proof, sizeof(proof), deadline_);
  }

  Status take_seats(const Deadline& deadline) {
    std::vector<WireSeat> table(static_cast<size_t>(launch_.world));
    Proof proof{};
    if (!receive_whole(line_.get(), table.data(), table.size() * sizeof(WireSeat), deadline) ||
        !receive_whole(line_.get(), &proof, sizeof(proof), deadline) ||
        !conversation_.proves(proof, "seats", std::as_bytes(std::span(table))))
      return rank0_ended();
    const Address rank0 = peer_address(line_.get());
    for (const WireSeat& seat : table) {
      gathering_.seats.push_back({{get(seat.host), seat.port}, seat.pid});
      make_reachable(gathering_.seats.back().address, rank0);
    }
    gathering_.seats[0].address = rank0;
    return base::ok_status();
  }

  static Status refused(const Answer& answer) {
    if (answer.word != Word::Refused)
      return Status(ErrorKind::Mismatch, "DC6109", "rank 0 runs another version of dcrun");
    return Status(static_cast<ErrorKind>(answer.error), "DC6109",
                  std::string(answer.text, strnlen(answer.text, sizeof(answer.text))));
  }

  const LaunchInfo& launch_;
  Deadline deadline_;
  Conversation conversation_;  // with rank 0
  Gathering gathering_;
  device::Descriptor line_;
};

}  // namespace

base::Result<Gathering> gather_ranks(const LaunchInfo& launch, std::chrono::milliseconds timeout) {
  if (!launch.master && !launch.one_host()) {
    return Status(
        ErrorKind::BadConfig, "DC6128",
        "the ranks are on several hosts and do not know where to connect; set MASTER_ADDR "
        "and MASTER_PORT to a free port of the host of rank 0, for all ranks");
  }
  const Deadline deadline{monotonic_ns() + std::chrono::nanoseconds(timeout).count()};
  if (launch.rank == 0) return TcpHub(launch, deadline).run(timeout);
  return Guest(launch, deadline).run();
}

}  // namespace dc::runtime::comm
