// Status and Result<T>: how every fallible function of this project reports failure.
//
// A failure is a kind (which decides the exit code), a code such as "DC2103" that tests and users
// can search for, one sentence (what went wrong, where, what to do next), and context lines added
// on the way up ("in pass shard-parameters").
#pragma once

#include <cassert>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dc::base {

// The value is the process exit code.
enum class ErrorKind : int {
  Usage = 64,         // wrong command line
  BadInput = 65,      // an input file is malformed
  MissingInput = 66,  // an input file does not exist, or may not be read
  Unavailable = 69,   // no backend or peer
  Internal = 70,      // our bug
  CannotWrite = 73,   // an output cannot be created
  Io = 74,            // reading or writing failed
  Stopped = 75,       // stopped on request; --save has the state
  Mismatch = 76,      // digest, world size or version mismatch
  NotPermitted = 77,  // not permitted
  BadConfig = 78,     // contradictory or unknown configuration
  OutOfMemory = 80,   // does not fit the memory budget
  Unsupported = 81,   // unsupported operator or feature
  CollectiveTimeout = 82,
  PeerDied = 83,
  NonFinite = 84,  // a NaN or infinity in loss or gradient
};

int exit_code(ErrorKind kind);

class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  Status(ErrorKind kind, std::string code, std::string sentence)
      : error_(std::make_unique<Error>(Error{kind, std::move(code), std::move(sentence), {}})) {}
  Status(const Status& other)
      : error_(other.error_ ? std::make_unique<Error>(*other.error_) : nullptr) {}
  Status& operator=(const Status& other) {
    error_ = other.error_ ? std::make_unique<Error>(*other.error_) : nullptr;
    return *this;
  }
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;

  bool ok() const { return error_ == nullptr; }
  ErrorKind kind() const { return error_->kind; }           // requires !ok()
  const std::string& code() const { return error_->code; }  // requires !ok()
  const std::string& sentence() const { return error_->sentence; }
  const std::vector<std::string>& context() const { return error_->context; }

  // Adds a line of context; outermost last. Does nothing on success.
  Status& add_context(std::string line) & {
    if (error_) error_->context.push_back(std::move(line));
    return *this;
  }
  Status&& add_context(std::string line) && {
    if (error_) error_->context.push_back(std::move(line));
    return std::move(*this);
  }
  // "error[DC2103]: sentence" followed by one indented line per context; empty string on success.
  std::string to_string() const;

 private:
  struct Error {
    ErrorKind kind;
    std::string code;
    std::string sentence;
    std::vector<std::string> context;
  };
  std::unique_ptr<Error> error_;
};

inline Status ok_status() { return Status(); }

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}                                  // NOLINT
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }  // NOLINT
  Result(ErrorKind kind, std::string code, std::string sentence)
      : status_(kind, std::move(code), std::move(sentence)) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const& { return status_; }
  Status&& status() && { return std::move(status_); }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

// Aborts with a message: only for conditions that our own code must make impossible.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace dc::base

#define DC_CHECK(condition) \
  ((condition) ? (void)0 : ::dc::base::check_failed(#condition, __FILE__, __LINE__))

#define DC_CONCAT_INNER(a, b) a##b
#define DC_CONCAT(a, b) DC_CONCAT_INNER(a, b)

#define DC_RETURN_IF_ERROR(expression)                                                     \
  do {                                                                                     \
    if (::dc::base::Status dc_status_ = (expression); !dc_status_.ok()) return dc_status_; \
  } while (false)

// DC_ASSIGN_OR_RETURN(auto file, open(path));
#define DC_ASSIGN_OR_RETURN(declaration, expression) \
  DC_ASSIGN_OR_RETURN_IMPL(DC_CONCAT(dc_result_, __LINE__), declaration, expression)
#define DC_ASSIGN_OR_RETURN_IMPL(result, declaration, expression) \
  auto result = (expression);                                     \
  if (!result.ok()) return std::move(result).status();            \
  declaration = std::move(result).value()
