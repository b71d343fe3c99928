#include "src/frontend/operator_args.h"

#include <algorithm>

namespace dc::frontend {
namespace {

template <typename T>
std::optional<T> as(const ir::Arg* arg) {
  const T* value = arg == nullptr ? nullptr : std::get_if<T>(&arg->value);
  return value == nullptr ? std::nullopt : std::optional<T>(*value);
}

}  // namespace

const ir::Arg* OperatorArgs::find(std::string_view name) const {
  for (const ir::Arg& arg : args_) {
    if (arg.name != name) continue;
    return std::holds_alternative<std::monostate>(arg.value) ? nullptr : &arg;
  }
  return nullptr;
}

bool OperatorArgs::are_among(std::string_view known) const {
  return std::all_of(args_.begin(), args_.end(), [known](const ir::Arg& arg) {
    for (size_t at = 0; at < known.size();) {
      const size_t end = std::min(known.find(',', at), known.size());
      if (known.substr(at, end - at) == arg.name) return true;
      at = end + 1;
    }
    return false;
  });
}

std::optional<int64_t> OperatorArgs::integer(std::string_view name) const {
  return as<int64_t>(find(name));
}

std::optional<int64_t> OperatorArgs::integer(std::string_view name, int64_t otherwise) const {
  return find(name) == nullptr ? otherwise : integer(name);
}

std::optional<bool> OperatorArgs::flag(std::string_view name) const { return as<bool>(find(name)); }

std::optional<std::vector<int64_t>> OperatorArgs::integers(std::string_view name) const {
  if (const auto number = integer(name)) return std::vector<int64_t>{*number};
  return as<std::vector<int64_t>>(find(name));
}

std::optional<base::DType> OperatorArgs::dtype(std::string_view name) const {
  return as<base::DType>(find(name));
}

std::optional<size_t> wrapped_dim(int64_t dim, size_t rank) {
  const int64_t dims = std::max<int64_t>(static_cast<int64_t>(rank), 1);
  if (dim < -dims || dim >= dims) return std::nullopt;
  return static_cast<size_t>(dim < 0 ? dim + dims : dim);
}

}  // namespace dc::frontend
