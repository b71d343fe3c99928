#include "runtime/comm/agreement.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "src/base/sha256.h"

namespace dc::runtime::comm {

using base::ErrorKind;
using base::Result;
using base::Status;

namespace {

constexpr const char* kElsewhere = "DC6301";

struct Verdict {
  int32_t code = 0;              // exit code of the failure, 0 for none
  std::array<char, 32> words{};  // a digest of its message
  bool operator==(const Verdict&) const = default;
};

Verdict verdict(const Status& status) {
  Verdict verdict;
  if (status.ok()) return verdict;
  verdict.code = base::exit_code(status.kind());
  const std::string digest = base::sha256_hex(status.to_string());
  std::copy_n(digest.begin(), verdict.words.size(), verdict.words.begin());
  return verdict;
}

}  // namespace

Status agree(Communicator& control, Status mine, std::string_view activity) {
  const Verdict own = verdict(mine);
  std::vector<Verdict> all(static_cast<size_t>(control.size()));
  Status exchanged = control.exchange(&own, sizeof(own), all.data());
  if (!exchanged.ok()) return mine.ok() ? exchanged : mine;
  const auto me = static_cast<size_t>(control.rank().v);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].code == 0) continue;
    if (!mine.ok() && (rank >= me || all[rank] != own)) continue;
    return Status(static_cast<ErrorKind>(all[rank].code), kElsewhere,
                  "rank " + std::to_string(rank) + " failed while " + std::string(activity) +
                      "; see its own message");
  }
  return mine;
}

bool is_reported_elsewhere(const Status& status) {
  return !status.ok() && status.code() == kElsewhere;
}

Result<bool> any_rank(Communicator& control, bool mine) {
  const uint8_t flag = mine ? 1 : 0;
  std::vector<uint8_t> flags(static_cast<size_t>(control.size()));
  DC_RETURN_IF_ERROR(control.exchange(&flag, 1, flags.data()));
  for (const uint8_t other : flags) {
    if (other != 0) return true;
  }
  return false;
}

Status check_equal(Communicator& control, const std::string& text, std::string_view what) {
  constexpr size_t kBytes = 64;  // of a digest in hex
  const std::string digest = base::sha256_hex(text);
  std::array<char, kBytes> mine{};
  std::memcpy(mine.data(), digest.data(), std::min(digest.size(), kBytes));
  std::vector<char> all(kBytes * static_cast<size_t>(control.size()));
  DC_RETURN_IF_ERROR(control.exchange(mine.data(), kBytes, all.data()));
  std::string different;
  int count = 0;
  for (size_t rank = 1; rank < static_cast<size_t>(control.size()); ++rank) {
    if (std::memcmp(all.data(), all.data() + rank * kBytes, kBytes) == 0) continue;
    different += (count++ ? ", " : "") + std::to_string(rank);
  }
  if (count == 0) return base::ok_status();
  return Status(ErrorKind::Mismatch, "DC6302",
                "the " + std::string(what) + " of rank" + (count > 1 ? "s " : " ") + different +
                    (count > 1 ? " differ" : " differs") +
                    " from rank 0's; start all ranks with the same arguments and files");
}

Result<std::string> broadcast_text(Communicator& control, const std::string& text) {
  auto size = static_cast<int64_t>(text.size());
  DC_RETURN_IF_ERROR(control.broadcast(&size, sizeof(size), base::Rank{0}));
  std::string copy = text;
  copy.resize(static_cast<size_t>(size));
  if (size > 0) DC_RETURN_IF_ERROR(control.broadcast(copy.data(), size, base::Rank{0}));
  return copy;
}

}  // namespace dc::runtime::comm
