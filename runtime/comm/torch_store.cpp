#include "runtime/comm/torch_store.h"

#include <cstdint>
#include <cstring>

namespace dc::runtime::comm {
namespace {

constexpr uint32_t kStoreMagic = 0x3C85F7CE;
constexpr uint64_t kLongestValue = 4096;  // what ranks put there is an address
enum class StoreQuery : uint8_t { Validate = 0, Set = 1, Get = 3, Check = 5, Wait = 6 };
enum class StoreAnswer : uint8_t { Ready = 0, NotReady = 1 };  // to Check; to Wait only 0

class StoreMessage {
 public:
  explicit StoreMessage(StoreQuery query) { number(static_cast<uint8_t>(query)); }
  template <typename T>
  StoreMessage& number(T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    bytes_.append(bytes, sizeof(T));
    return *this;
  }
  StoreMessage& text(const std::string& value) {
    number(uint64_t{value.size()});
    bytes_ += value;
    return *this;
  }
  StoreMessage& then(const StoreMessage& next) {
    bytes_ += next.bytes_;
    return *this;
  }
  bool send_to(int socket, const Deadline& deadline) const {
    return send_whole(socket, bytes_.data(), bytes_.size(), deadline);
  }

 private:
  std::string bytes_;
};

}  // namespace

std::optional<TorchStore> TorchStore::greet(device::Descriptor socket, const Deadline& deadline) {
  StoreMessage hello(StoreQuery::Validate);
  hello.number(kStoreMagic);
  // A validation is not answered, so a question follows: does a key exist?
  hello.then(StoreMessage(StoreQuery::Check).number(uint64_t{1}).text("dcrun"));
  uint8_t answer = 0;
  if (!hello.send_to(socket.get(), deadline) ||
      !receive_whole(socket.get(), &answer, sizeof(answer), deadline) ||
      answer > static_cast<uint8_t>(StoreAnswer::NotReady))
    return std::nullopt;
  return TorchStore(std::move(socket));
}

bool TorchStore::set(const std::string& key, const std::string& value, const Deadline& deadline) {
  return StoreMessage(StoreQuery::Set).text(key).text(value).send_to(socket_.get(), deadline);
}

std::optional<std::string> TorchStore::get(const std::string& key, const Deadline& deadline) {
  uint8_t answer = 0;
  if (!StoreMessage(StoreQuery::Wait)
           .number(uint64_t{1})
           .text(key)
           .send_to(socket_.get(), deadline) ||
      !receive_whole(socket_.get(), &answer, sizeof(answer), deadline) || answer != 0)
    return std::nullopt;
  uint64_t bytes = 0;
  if (!StoreMessage(StoreQuery::Get).text(key).send_to(socket_.get(), deadline) ||
      !receive_whole(socket_.get(), &bytes, sizeof(bytes), deadline) || bytes > kLongestValue)
    return std::nullopt;
  std::string value(bytes, 0);
  if (!receive_whole(socket_.get(), value.data(), value.size(), deadline)) return std::nullopt;
  return value;
}

}  // namespace dc::runtime::comm
