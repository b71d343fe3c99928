#include "runtime/train/output_places.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "runtime/checkpoint/tensor_file.h"
#include "src/base/file.h"

namespace dc::runtime::train {

using base::ErrorKind;
using base::Status;

Status prepare_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!std::filesystem::is_directory(folder)) {
    return Status(ErrorKind::CannotWrite, "DC6311",
                  folder + ": this folder cannot be made" +
                      (error ? " (" + error.message() + ")" : std::string()) +
                      "; choose one you may write to");
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return Status(ErrorKind::CannotWrite, "DC6311",
                  folder + ": no file can be made in this folder (" + std::strerror(errno) +
                      "); choose one you may write to");
  }
  return prepare_file(folder + "/model.safetensors");
}

Status check_shared(const std::string& folder, comm::Communicator& control) {
  Status status =
      checkpoint::TensorFile::create(folder + "/model.safetensors", {}, {}, control).status();
  return std::move(status).add_context("all ranks write into " + folder +
                                       ", so give a folder that their hosts share");
}

Status prepare_file(const std::string& path) {
  if (std::filesystem::is_directory(path)) {
    return Status(ErrorKind::CannotWrite, "DC6312", path + " is a folder; give a file name");
  }
  return base::check_writable(path);
}

Status prepare_lines(const std::string& path) {
  std::error_code none;
  const std::filesystem::file_status place = std::filesystem::status(path, none);
  if (!std::filesystem::is_other(place)) return prepare_file(path);
  if (access(path.c_str(), W_OK) == 0) return base::ok_status();  // a pipe or a device
  return Status(ErrorKind::CannotWrite, "DC6313", path + " cannot be written to");
}

}  // namespace dc::runtime::train
